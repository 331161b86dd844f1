"""Messages of a branch: pages and appends."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from sennit.errors import NotFoundError, ValidationError
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.messages.parts import TextPart, part_from_dict
from sennit.server.http.endpoint import (
    FEW,
    HTTPRequest,
    RequestModel,
    ResponseModel,
    Routes,
    within,
)
from sennit.server.rest.branches import ONE
from sennit.server.schemas import MessageShape, Sibling, message_shape
from sennit.sessions.branch import Branch
from sennit.sessions.message_versions import MessageVersion, versions
from sennit.sessions.run_repository import RunRepository
from sennit.sessions.session import SessionCore

routes = Routes()


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
    """The index of the first one here."""
    seq: int
    """The number of the branch's last event: read events from there on to miss none."""


class NewMessage(RequestModel):
    """Something said, in words or in parts."""

    role: Literal["user", "assistant"]
    text: str | UnsetType = UNSET
    parts: list[dict[str, Any]] | UnsetType = UNSET
    id: UUID | None = None
    """The message's id, made by whoever says it: saying it again changes nothing. For words."""


class Added(ResponseModel):
    """The added messages."""

    messages: list[MessageShape]


@routes.get(
    ONE + "/messages",
    scope="read",
    summary="The messages of a branch, by default the last ones",
    query=MessagesQuery,
    answer=MessagePage,
)
async def list_messages(call: HTTPRequest) -> MessagePage:
    """A page of messages, by default the last ones."""
    query: MessagesQuery = call.query
    if query.before is not None and query.after is not None:
        raise ValidationError("Pass before or after, not both.")
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    return await to_thread(_page, branch, query, call.limits.answer_bytes)


def _page(branch: Branch, query: MessagesQuery, most: int) -> MessagePage:
    seq = RunRepository(branch).last_seq()  # before the messages, so that no event is missed
    with branch.session.lock:
        total = len(branch)
        start, stop = _range(total, query)
        messages = branch.session.messages.pick(branch[start:stop])
    found = versions(branch)
    # A page is filled from where it was asked for: from its beginning, or else from its end.
    step = 1 if query.after is not None else -1
    shapes = (
        message_shape(one, index, _siblings(found, index))
        for index, one in list(enumerate(messages, start))[::step]
    )
    page = list(within(shapes, most))[::step]
    if step < 0:
        start += len(messages) - len(page)
    return MessagePage(messages=page, total=total, start=start, seq=seq)


def _range(total: int, query: MessagesQuery) -> tuple[int, int]:
    if query.after is not None:
        start = min(query.after + 1, total)
        return start, start + query.limit
    stop = total if query.before is None else min(total, query.before)
    return max(0, stop - query.limit), stop


def _siblings(found: dict[int, list[MessageVersion]], index: int) -> list[Sibling]:
    return [
        Sibling(branch_id=one.branch.id, branch_name=one.branch.name, message_id=one.message)
        for one in found.get(index, ())
    ]


@routes.post(
    ONE + "/messages",
    scope="write",
    summary="Say something on a branch, without asking a model",
    body=NewMessage,
    answer=Added,
    status=201,
)
async def add_message(call: HTTPRequest) -> Added:
    """Say something on a branch."""
    given: NewMessage = call.body
    where = call.path["session"], call.path["branch"]
    if given.id is not None:
        branch = await call.caller.branch(*where)  # it may have been said elsewhere
        added = [await branch.session.aadd_message(_whole(branch.session, given), branches=branch)]
        return _shown(branch, added)
    if isinstance(given.parts, list):
        call.check_count(len(given.parts), call.limits.parts, "parts")
        parts = await call.build(len(given.parts), _parts, given)
    else:
        parts = _parts(given)
    seen = call.caller.seen_branch(*where)
    if seen is not None:
        with suppress(NotFoundError):  # it was removed; another one may go by that name by now
            return await _said(call, seen, parts)
    return await _said(call, await call.caller.branch(*where), parts)


async def _said(call: HTTPRequest, branch: Branch, parts: list[Any]) -> Added:
    given: NewMessage = call.body
    if call.is_large or len(parts) > FEW:
        return await call.server.work.run(call.caller, _said_now, branch, given.role, parts)
    group = await branch.session.aadd_message(given.role, parts, branches=branch)
    return _shown(branch, group.messages)


def _said_now(branch: Branch, role: Literal["user", "assistant"], parts: list[Any]) -> Added:
    group = branch.session.add_message(role, parts, branches=branch)
    return _shown(branch, group.messages)


def _shown(branch: Branch, added: Sequence[Message]) -> Added:
    return Added(messages=[message_shape(one, branch.index(one.id)) for one in added])


def _parts(given: NewMessage) -> list[Any]:
    if isinstance(given.text, str) and given.parts is UNSET:
        return [TextPart(given.text)]
    if isinstance(given.parts, list) and given.text is UNSET:
        return [part_from_dict(one) for one in given.parts]
    raise ValidationError("Pass either a text or parts.")


def _whole(session: SessionCore, given: NewMessage) -> Message:
    """A message under the id its author made for it."""
    if not isinstance(given.text, str) or given.parts is not UNSET:
        raise ValidationError(
            "An id can be set only for a message with a text; parts have their own ids."
        )
    if given.role == "user":
        content = InstructionContent(instruction=given.text)
        return Message(content, sender=session.user, id=given.id)
    content = AssistantResponseContent(assistant_response=given.text)
    return Message(content, sender=session.agent, id=given.id)
