"""/v1/conversations and their items.

A conversation is a session, and its items are the messages of the main branch, which a response
with that `conversation` continues. A conversation created here has an id that contains its
session's id; any other session is named by its key or id. Other branches are not shown.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from uuid import UUID

from sennit import clock
from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.ids import new_id
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.openai.chat_schemas import check_metadata
from sennit.server.openai.derived_sessions import SOURCE
from sennit.server.openai.history import best_match, branch_turns, turns_of
from sennit.server.openai.items import items_of, parse_items
from sennit.server.openai.locate import CLIENT_METADATA, is_main_of_conversation, new_branch
from sennit.server.openai.pagination import IncludeQuery, ItemsQuery, item_list, message_id, page
from sennit.server.openai.translate import ClientMessages, check_calls, system_message
from sennit.server.openai.translate import ClientToolCall as ToolCall
from sennit.sessions.blobs import inline_blobs
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.client import begin_session
from sennit.sessions.segments import tail_of
from sennit.turns.tools.pending_calls import pending_calls

routes: Final = Routes()

_PATH = "/v1/conversations"
_CONVERSATION = _PATH + "/{conversation}"
_ITEM = _CONVERSATION + "/items/{item}"
_PREFIX = "conv_"


class NewConversation(RequestModel):
    """A conversation to create."""

    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None


class ConversationMetadata(RequestModel):
    """Metadata of a conversation."""

    metadata: dict[str, str] | None


class NewItems(RequestModel):
    """Items to add, without calling a model."""

    items: list[dict[str, Any]]


class ConversationObject(ResponseModel):
    """A conversation, as OpenAI's clients see it."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class DeletedConversation(ResponseModel):
    """The confirmation that a conversation was deleted."""

    id: str
    deleted: bool = True
    object: Literal["conversation.deleted"] = "conversation.deleted"


def is_conversation_id(name: str) -> bool:
    """Return whether a name is the id of a conversation created here, not a session key."""
    return _session_id(name) is not None


def session_name(name: str) -> str:
    """Return the key or id of the session of a conversation."""
    uid = _session_id(name)
    return name if uid is None else str(uid)


def _session_id(name: str) -> UUID | None:
    raw = name.removeprefix(_PREFIX)
    if not name.startswith(_PREFIX) or len(raw) != 32:
        return None
    try:
        return UUID(hex=raw)
    except ValueError:
        return None


async def find_conversation(caller: Caller, name: str, *, required: bool = True) -> Session | None:
    """Return the session of a conversation; None, or HTTPError 404 if `required`, if missing."""
    try:
        return await caller.session(session_name(name))
    except NotFoundError:
        if required:
            message = f"There is no conversation {name[:100]!r}."
            raise HTTPError(404, "not_found", message, param="conversation") from None
        return None


async def _session_of(request: HTTPRequest) -> Session:
    session = await find_conversation(request.caller, request.path["conversation"])
    assert session is not None
    return session


def main_branch(session: Session) -> Branch | None:
    """Return the branch that holds the items; None if there are none yet."""
    return session.get_branch(DEFAULT_BRANCH, None)


def lasting_system(session: Session) -> str | None:
    """Return the system text of a conversation, without instructions for a single response."""
    main = main_branch(session)
    system = None if main is None else main.system
    if system is None:
        return None
    content = system.content
    text = content.system_message if isinstance(content, SystemContent) else None
    return system.metadata.get("lasting", text) or None


@routes.post(_PATH, scope="write")
async def create(request: HTTPRequest, body: NewConversation) -> ConversationObject:
    """Create a conversation, as OpenAI's clients do."""
    metadata = _checked_metadata(body.metadata)
    sent = await _parse_items(request, body.items or [])
    check_calls(sent.messages, may_wait=True)
    session = await _create(request, sent, {**SOURCE, CLIENT_METADATA: metadata})
    return _conversation_object(session, _PREFIX + session.id.hex)


async def _create(
    request: HTTPRequest, sent: ClientMessages, metadata: Mapping[str, Any]
) -> Session:
    """Create a session and its main branch; return it once all messages are stored."""
    uid = new_id()
    system = None if sent.system is None else system_message(sent.system)
    branch = await begin_session(request.caller.client, uid, system=system, metadata=metadata)
    assert branch is not None  # the id is new
    await branch.session.aadd_messages(sent.messages, branches=branch)
    await to_thread(_cache_main, request, branch)
    return await request.caller.session(str(uid))


def _checked_metadata(metadata: dict[str, str] | None) -> dict[str, str]:
    check_metadata(metadata or {})
    return metadata or {}


def _conversation_object(session: Session, name: str) -> ConversationObject:
    created = clock.from_datetime(session.created_at) // 1_000_000
    metadata = session.metadata.get(CLIENT_METADATA, {})
    return ConversationObject(id=name, created_at=created, metadata=dict(metadata))


@routes.get(_CONVERSATION, scope="read")
async def retrieve(request: HTTPRequest) -> ConversationObject:
    """Read a conversation."""
    return _conversation_object(await _session_of(request), request.path["conversation"])


@routes.post(_CONVERSATION, scope="write")
async def update(request: HTTPRequest, body: ConversationMetadata) -> ConversationObject:
    """Replace the metadata of a conversation."""
    metadata = _checked_metadata(body.metadata)
    session = await _session_of(request)
    await session.adescribe({**session.metadata, CLIENT_METADATA: metadata})
    return _conversation_object(session, request.path["conversation"])


@routes.delete(_CONVERSATION, scope="write")
async def delete(request: HTTPRequest) -> DeletedConversation:
    """Erase a conversation and its items."""
    session = await _session_of(request)
    request.caller.drop(session.id)
    await request.caller.client.adelete_session(session.id)
    return DeletedConversation(id=request.path["conversation"])


@routes.get(_CONVERSATION + "/items", scope="read")
async def list_items(request: HTTPRequest, query: ItemsQuery) -> dict[str, Any]:
    """List the items of a conversation."""
    session, max_bytes = await _session_of(request), request.limits.answer_bytes

    def read() -> dict[str, Any]:
        main = main_branch(session)
        if main is not None:
            _cache_main(request, main)
        return page(session, [] if main is None else main.messages, query, max_bytes)

    return await to_thread(read)


@routes.post(_CONVERSATION + "/items", scope="write")
async def add_items(request: HTTPRequest, _query: IncludeQuery, body: NewItems) -> dict[str, Any]:
    """Add items to a conversation, without calling a model."""
    sent = await _parse_items(request, body.items)
    session = await _session_of(request)
    return await to_thread(_add_items, request, session, sent)


async def _parse_items(request: HTTPRequest, items: list[dict[str, Any]]) -> ClientMessages:
    request.check_count(len(items), request.limits.items, "items")
    return await request.build(len(items), parse_items, items, "items")


def _add_items(request: HTTPRequest, session: Session, sent: ClientMessages) -> dict[str, Any]:
    with session.lock:
        main = main_branch(session)
        if main is None:
            main = new_branch(session, None)
        open_calls = [ToolCall.of(message).id for message in pending_calls(main)]
        check_calls(sent.messages, open_calls, may_wait=True)
        system: list[Message] = []
        if sent.system is not None:
            texts = (text for text in (lasting_system(session), sent.system) if text)
            system.append(system_message("\n\n".join(texts)))
            session.add_messages(system, branches=main)
        messages = [*system, *_add_new(session, main, sent.messages)]
        _cache_main(request, main)
    inlined = inline_blobs(session, messages)
    return item_list([item for message in inlined for item in items_of(message)])


def _add_new(session: Session, main: Branch, new: Sequence[Message]) -> list[Message]:
    """Append messages to the main branch, and return them as stored; hold the session's lock.

    The Agents SDK sends the whole history to /v1/responses without naming its conversation, then
    adds the input and the answer as items. The response is on a fork in the session of the
    conversation (`locate`). Items that match that fork are its messages, which then replace those
    of the main branch; only the others are stored.
    """
    own = _ids(main)
    history = [*session.messages.pick(own), *new]
    others = [branch for branch in session.branches if branch is not main]
    match = best_match(turns_of(history), others) if others else None
    if match is None or match.message_count <= len(own):
        session.add_messages(new, branches=main)
        return list(new)
    shared = _ids(match.branch)[: match.at]
    _show(main, own, shared)
    rest = new[match.message_count - len(own) :]
    session.add_messages(rest, branches=main)
    _erase(session, set(own) - set(shared))
    start = match.at - (match.message_count - len(own))
    return [*session.messages.pick(shared[max(start, 0) :]), *rest]


def _ids(branch: Branch) -> list[UUID]:
    """Return the message ids of a branch without its system message."""
    return branch[len(branch) - tail_of(branch).total :]


def _show(main: Branch, own: Sequence[UUID], shared: Sequence[UUID]) -> None:
    """Replace the messages of the main branch by these, from where they differ."""
    start = next(
        (at for at, (a, b) in enumerate(zip(own, shared, strict=False)) if a != b),
        min(len(own), len(shared)),
    )
    if start < max(len(own), len(shared)):
        main[len(main) - len(own) + start :] = shared[start:]


def _erase(session: Session, ids: set[UUID]) -> None:
    """Erase the messages that are on no branch any more; memories of them stay."""
    orphans = [uid for uid in ids if not any(uid in branch for branch in session.branches)]
    if orphans:
        session.remove_messages(orphans, forget=False)


def _cache_main(request: HTTPRequest, main: Branch) -> None:
    """Cache the main branch for its history, so that responses continue in this session."""
    cache, client, last = (
        request.server.branch_cache,
        request.caller.client,
        branch_turns(main)[-1:],
    )
    known = cache.find(client, last)
    elsewhere = known is None or known[0] != main.session.id
    if is_main_of_conversation(main) and elsewhere:
        cache.add(client, last, main)


@routes.get(_ITEM, scope="read")
async def get_item(request: HTTPRequest, _query: IncludeQuery) -> dict[str, Any]:
    """Read an item of a conversation.

    Raises HTTPError 404 if there is none.
    """
    return _find_item(await _session_of(request), request.path["item"])[1]


def _find_item(session: Session, name: str) -> tuple[Message, dict[str, Any]]:
    uid, main = message_id(name), main_branch(session)
    if uid is not None and main is not None and uid in main:
        message = session.messages[uid]
        for item in items_of(next(inline_blobs(session, [message]))):
            if item["id"] == name:
                return message, item
    raise HTTPError(404, "not_found", f"This conversation has no item {name[:100]!r}.")


@routes.delete(_ITEM, scope="write")
async def delete_item(request: HTTPRequest) -> ConversationObject:
    """Erase an item of a conversation."""
    session = await _session_of(request)
    message, _ = _find_item(session, request.path["item"])
    await to_thread(session.remove_messages, [message], forget=False)
    return _conversation_object(session, request.path["conversation"])
