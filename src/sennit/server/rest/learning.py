"""Labels and training exports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Final, Literal
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
from sennit.server.rest.branches import BRANCH_PATH

routes: Final = Routes()

_LABEL_PATH = BRANCH_PATH + "/messages/{message}/label"
_JSONL = "application/jsonl"
_CHUNK_BYTES = 65_536  # bytes


class LabelRequest(RequestModel):
    """A label: a score or a thumb."""

    score: float | UnsetType = UNSET
    thumb: Literal["up", "down"] | UnsetType = UNSET
    by: str = "user"


class LabelQuery(RequestModel):
    """The author of a label."""

    by: str = "user"


class LabelsQuery(RequestModel):
    """The author of labels; by default all authors."""

    by: str | None = None


class LabelList(ResponseModel):
    """The labels of a session's messages, oldest first."""

    labels: list[Label]


class ExportQuery(RequestModel):
    """The format: messages as stored ("jsonl"), or a training format."""

    format: str = "jsonl"


@routes.post(_LABEL_PATH, scope="write", status=201)
async def label(request: HTTPRequest, body: LabelRequest) -> Label:
    """Label a message with a score or a thumb."""
    if (body.score is UNSET) == (body.thumb is UNSET):
        raise ValidationError("Pass either a score or a thumb.")
    session, uid = await _message(request)
    score = None if body.score is UNSET else body.score
    thumb = None if body.thumb is UNSET else body.thumb
    return await session.alabel(uid, score, thumb=thumb, by=body.by)


@routes.get("/api/sessions/{session}/labels", scope="read")
async def list_labels(request: HTTPRequest, query: LabelsQuery) -> LabelList:
    """List the labels of a session's messages."""
    session = await request.session()
    return LabelList(labels=await session.alabels(by=query.by))


@routes.delete(_LABEL_PATH, scope="write")
async def unlabel(request: HTTPRequest, query: LabelQuery) -> None:
    """Remove a label."""
    session, uid = await _message(request)
    await session.aunlabel(uid, by=query.by)


async def _message(request: HTTPRequest) -> tuple[Session, UUID]:
    """Return the session and the message id; raise NotFoundError if the branch lacks it."""
    session = await request.caller.session(request.path["session"])
    branch = session.get_branch(request.path["branch"])
    return session, branch[branch.index(message_id(request.path["message"]))]


def message_id(text: str) -> UUID:
    """Parse the id of a message; raise HTTPError 404 if it is invalid."""
    try:
        return UUID(text)
    except ValueError:
        raise HTTPError(404, "not_found", f"There is no message {text[:100]!r}.") from None


@routes.get("/api/sessions/{session}/export", scope="read", media=_JSONL)
async def export(request: HTTPRequest, query: ExportQuery) -> StreamingResponse:
    """Export a session as JSON lines: as stored, or for training.

    For training formats a header counts what was left out of the first 64 KiB, by reason.
    """
    session = await request.session()
    name = f"session-{session.id}.{query.format}.jsonl"
    headers = {**PRIVATE, "content-disposition": f'attachment; filename="{name}"'}
    if query.format == "jsonl":
        body = _chunks(request, _messages(session))
    else:
        options = ExportOptions(format=query.format)
        training = request.caller.client.training_lines
        lines = await request.server.work.run(request.caller, training, session.id, options)
        first = await request.server.work.run(request.caller, _next_chunk, lines)
        headers["x-sennit-left-out"] = dumps(dict(lines.left_out)).decode()
        body = _chunks(request, lines, first)
    return StreamingResponse(body, headers=headers, media_type=_JSONL)


def _messages(session: Session) -> Iterator[bytes]:
    """Yield every message once, with the name of its first branch."""
    seen: set[UUID] = set()
    for branch in session.branches:
        for message in branch.messages:
            if message.id not in seen:
                seen.add(message.id)
                fields = {"branch": branch.name, **message.to_dict()}
                yield dumps(fields) + b"\n"


def _next_chunk(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, about 64 KiB."""
    chunk: list[bytes] = []
    size = 0
    while size < _CHUNK_BYTES and (line := next(lines, None)) is not None:
        cancellation.raise_if_cancelled()
        chunk.append(line)
        size += len(line)
    return b"".join(chunk)


async def _chunks(
    request: HTTPRequest, lines: Iterator[bytes], first: bytes | None = None
) -> AsyncGenerator[bytes]:
    """Yield lines in chunks, produced in the thread pool."""
    run = request.server.work.run
    chunk = await run(request.caller, _next_chunk, lines) if first is None else first
    while chunk:
        yield chunk
        chunk = await run(request.caller, _next_chunk, lines)
