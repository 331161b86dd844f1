"""Labels and training exports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Literal
from uuid import UUID

from msgspec import UNSET, UnsetType

from sennit import cancellation
from sennit.api.session import Session
from sennit.errors import ValidationError
from sennit.learning.export import ExportOptions
from sennit.learning.labels import Label
from sennit.messages.codec import dumps
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.http.errors import PRIVATE, HTTPError
from sennit.server.http.starlette_imports import StreamingResponse
from sennit.server.rest.branches import ONE
from sennit.server.schemas import iso

routes = Routes()

_LABEL = ONE + "/messages/{message}/label"
_LINES = "application/jsonl"
_AT_ONCE = 65_536  # bytes


class LabelRequest(RequestModel):
    """A judgement: a score or a thumb."""

    score: float | UnsetType = UNSET
    thumb: Literal["up", "down"] | UnsetType = UNSET
    by: str = "user"


class LabelQuery(RequestModel):
    """The judge of a label."""

    by: str = "user"


class LabelShape(ResponseModel):
    """A judgement of a message."""

    message: UUID
    score: float
    by: str
    created_at: str


class LabelsQuery(RequestModel):
    """The judge of labels; without a name, every judge."""

    by: str | None = None


class LabelList(ResponseModel):
    """The judgements of a session's messages, the oldest first."""

    labels: list[LabelShape]


class ExportQuery(RequestModel):
    """In which form: messages as they are ("jsonl"), or as training tools read them."""

    format: str = "jsonl"


@routes.post(
    _LABEL,
    scope="write",
    summary="Judge a message by a score or a thumb",
    body=LabelRequest,
    answer=LabelShape,
    status=201,
)
async def label(request: HTTPRequest) -> LabelShape:
    """Judge a message; judging again replaces it."""
    body: LabelRequest = request.body
    if (body.score is UNSET) == (body.thumb is UNSET):
        raise ValidationError("Pass either a score or a thumb.")
    session, uid = await _message(request)
    score = None if body.score is UNSET else body.score
    thumb = None if body.thumb is UNSET else body.thumb
    saved = await session.alabel(uid, score, thumb=thumb, by=body.by)
    return _shape(saved)


def _shape(label: Label) -> LabelShape:
    return LabelShape(
        message=label.message, score=label.score, by=label.by, created_at=iso(label.created_at)
    )


@routes.get(
    "/api/sessions/{session}/labels",
    scope="read",
    summary="The judgements of a session's messages",
    query=LabelsQuery,
    answer=LabelList,
)
async def list_labels(request: HTTPRequest) -> LabelList:
    """The judgements of a session's messages."""
    query: LabelsQuery = request.query
    session = await request.caller.session(request.path["session"])
    labels = await session.alabels(by=query.by)
    return LabelList(labels=[_shape(label) for label in labels])


@routes.delete(_LABEL, scope="write", summary="Take a judgement back", query=LabelQuery, status=204)
async def unlabel(request: HTTPRequest) -> None:
    """Take a judgement back."""
    query: LabelQuery = request.query
    session, uid = await _message(request)
    await session.aunlabel(uid, by=query.by)


async def _message(request: HTTPRequest) -> tuple[Session, UUID]:
    """The session and the message that are meant, which must stand on the branch."""
    session = await request.caller.session(request.path["session"])
    branch = session.get_branch(request.path["branch"])
    return session, branch[branch.index(message_id(request.path["message"]))]


def message_id(text: str) -> UUID:
    """The id of a message; raises HTTPError 404 for what can be none."""
    try:
        return UUID(text)
    except ValueError:
        raise HTTPError(404, "not_found", f"There is no message {text[:100]!r}.") from None


@routes.get(
    "/api/sessions/{session}/export",
    scope="read",
    summary="A session as lines of JSON: as it is, or for training",
    query=ExportQuery,
    media=_LINES,
)
async def export(request: HTTPRequest) -> StreamingResponse:
    """A session as lines of JSON, sent as they are made.

    A header counts what the training formats leave out of the first 64 KiB, by the reason.
    """
    query: ExportQuery = request.query
    session = await request.caller.session(request.path["session"])
    name = f"session-{session.id}.{query.format}.jsonl"
    headers = {**PRIVATE, "content-disposition": f'attachment; filename="{name}"'}
    if query.format == "jsonl":
        body = _pieces(request, _messages(session))
    else:
        options = ExportOptions(format=query.format)
        training = request.caller.client.training_lines
        lines = await request.server.work.run(request.caller, training, session.id, options)
        first = await request.server.work.run(request.caller, _piece, lines)
        headers["x-sennit-left-out"] = dumps(dict(lines.left_out)).decode()
        body = _pieces(request, lines, first)
    return StreamingResponse(body, headers=headers, media_type=_LINES)


def _messages(session: Session) -> Iterator[bytes]:
    """Every message once, branch by branch, with the first branch it stands on."""
    seen: set[UUID] = set()
    for branch in session.branches:
        for message in branch.messages:
            if message.id not in seen:
                seen.add(message.id)
                fields = {"branch": branch.name, **message.to_dict()}
                yield dumps(fields) + b"\n"


def _piece(lines: Iterator[bytes]) -> bytes:
    """The next lines, about 64 KiB of them."""
    chunk: list[bytes] = []
    size = 0
    while size < _AT_ONCE and (line := next(lines, None)) is not None:
        cancellation.check()
        chunk.append(line)
        size += len(line)
    return b"".join(chunk)


async def _pieces(
    request: HTTPRequest, lines: Iterator[bytes], first: bytes | None = None
) -> AsyncGenerator[bytes]:
    """Lines, some at a time, made in a thread when it is the owner's turn."""
    run = request.server.work.run
    chunk = await run(request.caller, _piece, lines) if first is None else first
    while chunk:
        yield chunk
        chunk = await run(request.caller, _piece, lines)
