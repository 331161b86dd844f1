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
async def label(call: HTTPRequest) -> LabelShape:
    """Judge a message; judging again replaces it."""
    ask: LabelRequest = call.body
    if (ask.score is UNSET) == (ask.thumb is UNSET):
        raise ValidationError("Pass either a score or a thumb.")
    session, uid = await _message(call)
    score = None if ask.score is UNSET else ask.score
    thumb = None if ask.thumb is UNSET else ask.thumb
    made = await session.alabel(uid, score, thumb=thumb, by=ask.by)
    return _shape(made)


def _shape(made: Label) -> LabelShape:
    return LabelShape(
        message=made.message, score=made.score, by=made.by, created_at=iso(made.created_at)
    )


@routes.get(
    "/api/sessions/{session}/labels",
    scope="read",
    summary="The judgements of a session's messages",
    query=LabelsQuery,
    answer=LabelList,
)
async def list_labels(call: HTTPRequest) -> LabelList:
    """The judgements of a session's messages."""
    query: LabelsQuery = call.query
    session = await call.caller.session(call.path["session"])
    found = await session.alabels(by=query.by)
    return LabelList(labels=[_shape(one) for one in found])


@routes.delete(_LABEL, scope="write", summary="Take a judgement back", query=LabelQuery, status=204)
async def unlabel(call: HTTPRequest) -> None:
    """Take a judgement back."""
    query: LabelQuery = call.query
    session, uid = await _message(call)
    await session.aunlabel(uid, by=query.by)


async def _message(call: HTTPRequest) -> tuple[Session, UUID]:
    """The session and the message that are meant, which must stand on the branch."""
    session = await call.caller.session(call.path["session"])
    branch = session.get_branch(call.path["branch"])
    return session, branch[branch.index(message_id(call.path["message"]))]


def message_id(given: str) -> UUID:
    """The id of a message; raises HTTPError 404 for what can be none."""
    try:
        return UUID(given)
    except ValueError:
        raise HTTPError(404, "not_found", f"There is no message {given[:100]!r}.") from None


@routes.get(
    "/api/sessions/{session}/export",
    scope="read",
    summary="A session as lines of JSON: as it is, or for training",
    query=ExportQuery,
    media=_LINES,
)
async def export(call: HTTPRequest) -> StreamingResponse:
    """A session as lines of JSON, sent as they are made.

    A header counts what the training formats leave out of the first 64 KiB, by the reason.
    """
    query: ExportQuery = call.query
    session = await call.caller.session(call.path["session"])
    name = f"session-{session.id}.{query.format}.jsonl"
    headers = {**PRIVATE, "content-disposition": f'attachment; filename="{name}"'}
    if query.format == "jsonl":
        body = _pieces(call, _messages(session))
    else:
        options = ExportOptions(format=query.format)
        training = call.caller.client.training_lines
        lines = await call.server.work.run(call.caller, training, session.id, options)
        first = await call.server.work.run(call.caller, _piece, lines)
        headers["x-sennit-left-out"] = dumps(dict(lines.left_out)).decode()
        body = _pieces(call, lines, first)
    return StreamingResponse(body, headers=headers, media_type=_LINES)


def _messages(session: Session) -> Iterator[bytes]:
    """Every message once, branch by branch, with the first branch it stands on."""
    seen: set[UUID] = set()
    for branch in session.branches:
        for message in branch.messages:
            if message.id not in seen:
                seen.add(message.id)
                told = {"branch": branch.name, **message.to_dict()}
                yield dumps(told) + b"\n"


def _piece(lines: Iterator[bytes]) -> bytes:
    """The next lines, about 64 KiB of them."""
    found: list[bytes] = []
    size = 0
    while size < _AT_ONCE and (line := next(lines, None)) is not None:
        cancellation.check()
        found.append(line)
        size += len(line)
    return b"".join(found)


async def _pieces(
    call: HTTPRequest, lines: Iterator[bytes], first: bytes | None = None
) -> AsyncGenerator[bytes]:
    """Lines, some at a time, made in a thread when it is the owner's turn."""
    run = call.server.work.run
    piece = await run(call.caller, _piece, lines) if first is None else first
    while piece:
        yield piece
        piece = await run(call.caller, _piece, lines)
