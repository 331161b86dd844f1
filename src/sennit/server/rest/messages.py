"""Messages of a branch: pages, appends, locations."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from sennit.api.session import Session
from sennit.errors import NotFoundError, ValidationError
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.messages.parts import TextPart, part_from_dict
from sennit.server.http.endpoint import (
    MAX_INLINE_ITEMS,
    HTTPRequest,
    RequestModel,
    ResponseModel,
    Routes,
    fitting,
)
from sennit.server.rest.branches import BRANCH_PATH
from sennit.server.schemas import MessageShape, Sibling, message_shape
from sennit.sessions.branch import Branch
from sennit.sessions.message_versions import MessageVersion, versions
from sennit.sessions.run_repository import RunRepository
from sennit.sessions.session import SessionCore

routes: Final = Routes()

Role: TypeAlias = Literal["user", "assistant"]


class MessagesQuery(RequestModel):
    """A range of messages by index: those before, those from `after` on, or the last ones."""

    before: Annotated[int, Meta(ge=0)] | None = None
    after: Annotated[int, Meta(ge=-1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class MessagePage(ResponseModel):
    """A page of a branch's messages."""

    messages: list[MessageShape]
    total: int
    start: int
    """The index of the first message of the page."""
    seq: int
    """The sequence number of the branch's last event: read events after it to miss none."""


class NewMessage(RequestModel):
    """A message, with a text or parts."""

    role: Role
    text: str | UnsetType = UNSET
    parts: list[dict[str, Any]] | UnsetType = UNSET
    id: UUID | None = None
    """The id, chosen by the client, so that a retry adds nothing; only with a text."""


class Added(ResponseModel):
    """The added messages."""

    messages: list[MessageShape]


@routes.get(BRANCH_PATH + "/messages", scope="read")
async def list_messages(request: HTTPRequest, query: MessagesQuery) -> MessagePage:
    """List the messages of a branch, by default the last."""
    if query.before is not None and query.after is not None:
        raise ValidationError("Send 'before' or 'after', not both.")
    branch = await request.branch()
    return await to_thread(_page, branch, query, request.limits.answer_bytes)


def _page(branch: Branch, query: MessagesQuery, max_bytes: int) -> MessagePage:
    seq = RunRepository(branch).last_seq()  # read before the messages, so that no event is missed
    with branch.session.lock:
        total = len(branch)
        start, stop = _range(total, query)
        messages = branch.session.messages.pick(branch[start:stop])
    siblings = versions(branch)
    # The size limit cuts the end away from the cursor.
    step = 1 if query.after is not None else -1
    shapes = (
        message_shape(message, index, _siblings(siblings, index))
        for index, message in list(enumerate(messages, start))[::step]
    )
    page = list(fitting(shapes, max_bytes))[::step]
    if step < 0:
        start += len(messages) - len(page)
    return MessagePage(messages=page, total=total, start=start, seq=seq)


def _range(total: int, query: MessagesQuery) -> tuple[int, int]:
    if query.after is not None:
        start = min(query.after + 1, total)
        return start, start + query.limit
    stop = total if query.before is None else min(total, query.before)
    return max(0, stop - query.limit), stop


def _siblings(siblings: dict[int, list[MessageVersion]], index: int) -> list[Sibling]:
    return [
        Sibling(
            branch_id=version.branch.id, branch_name=version.branch.name, message_id=version.message
        )
        for version in siblings.get(index, ())
    ]


@routes.post(BRANCH_PATH + "/messages", scope="write", status=201)
async def add_message(request: HTTPRequest, body: NewMessage) -> Added:
    """Append a message to a branch, without calling a model."""
    if body.id is not None:
        branch = await request.branch()  # up to date: another process may have added it
        message = _message_with_id(branch.session, body)
        return _added(branch, [await branch.session.aadd_message(message, branches=branch)])
    if isinstance(body.parts, list):
        request.check_count(len(body.parts), request.limits.parts, "parts")
        parts = await request.build(len(body.parts), _parts, body)
    else:
        parts = _parts(body)
    cached = request.caller.cached_branch(request.path["session"], request.path["branch"])
    if cached is not None:
        with suppress(NotFoundError):  # removed; another branch may have its name
            return await _append(request, cached, body.role, parts)
    return await _append(request, await request.branch(), body.role, parts)


async def _append(request: HTTPRequest, branch: Branch, role: Role, parts: list[Any]) -> Added:
    if request.is_large or len(parts) > MAX_INLINE_ITEMS:
        return await request.server.work.run(request.caller, _append_now, branch, role, parts)
    group = await branch.session.aadd_message(role, parts, branches=branch)
    return _added(branch, group.messages)


def _append_now(branch: Branch, role: Role, parts: list[Any]) -> Added:
    group = branch.session.add_message(role, parts, branches=branch)
    return _added(branch, group.messages)


def _added(branch: Branch, added: Sequence[Message]) -> Added:
    return Added(messages=[message_shape(message, branch.index(message.id)) for message in added])


def _parts(body: NewMessage) -> list[Any]:
    if isinstance(body.text, str) and body.parts is UNSET:
        return [TextPart(body.text)]
    if isinstance(body.parts, list) and body.text is UNSET:
        return [part_from_dict(part) for part in body.parts]
    raise ValidationError("Send either 'text' or 'parts'.")


def _message_with_id(session: SessionCore, body: NewMessage) -> Message:
    """Return a message with the id that the client chose; raise ValidationError for parts."""
    if not isinstance(body.text, str) or body.parts is not UNSET:
        raise ValidationError("'id' needs a 'text'; it cannot be combined with 'parts'.")
    if body.role == "user":
        content = InstructionContent(instruction=body.text)
        return Message(content, sender=session.user, id=body.id)
    content = AssistantResponseContent(assistant_response=body.text)
    return Message(content, sender=session.agent, id=body.id)


class LocationQuery(RequestModel):
    """The branch to look on first, by id or name."""

    branch: str | None = None


class MessageLocation(ResponseModel):
    """A branch that has the message, and its index there."""

    branch_id: UUID
    index: int


@routes.get("/api/sessions/{session}/messages/{message}", scope="read")
async def locate(request: HTTPRequest, query: LocationQuery) -> MessageLocation:
    """Locate a message: its branch and index.

    Raises NotFoundError if none has.
    """
    session = await request.session()
    return await to_thread(_find, session, request.path["message"], query.branch)


def _find(session: Session, message: str, first: str | None) -> MessageLocation:
    preferred: list[Branch] = [] if first is None else [session.get_branch(first)]
    with session.lock:
        for branch in (*preferred, *session.branches):
            if message in branch:
                return MessageLocation(branch_id=branch.id, index=branch.index(message))
    raise NotFoundError(f"No branch of this session has the message {message!r}.")
