"""/v1/conversations and their items.

A conversation is a session, and its items are the messages of the branch named main; `conversation`
of a response goes on there. One that was made here goes by an id that holds its session's; any
other session goes by its key or id. What else the session has, such as forks, is not shown here.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping
from typing import Any, Literal
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
from sennit.server.openai.chat_schemas import check_notes
from sennit.server.openai.derived_sessions import SOURCE
from sennit.server.openai.history_match import branch_trail
from sennit.server.openai.item_schemas import items_in, items_of
from sennit.server.openai.locate import CLIENT_NOTES, is_main_of_conversation, new_branch
from sennit.server.openai.pagination import IncludeQuery, ItemsQuery, listed, message_of, page
from sennit.server.openai.repeated_items import add_once
from sennit.server.openai.translate import ClientMessages, check_calls, system_message
from sennit.server.openai.translate import ClientToolCall as ToolCall
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.turns.tools.pending_calls import pending

routes = Routes()

_PATH = "/v1/conversations"
_ONE = _PATH + "/{conversation}"
_ITEM = _ONE + "/items/{item}"
_PREFIX = "conv_"


class NewConversation(RequestModel):
    """A conversation to be made."""

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
    """That a conversation is gone."""

    id: str
    deleted: bool = True
    object: Literal["conversation.deleted"] = "conversation.deleted"


def is_conversation_id(name: str) -> bool:
    """Return whether a name is an id that was given here; then there is no other session it may
    mean.
    """
    return _session_in(name) is not None


def session_named(name: str) -> str:
    """The key or id of the session that a conversation is."""
    uid = _session_in(name)
    return name if uid is None else str(uid)


def _session_in(name: str) -> UUID | None:
    raw = name.removeprefix(_PREFIX)
    if not name.startswith(_PREFIX) or len(raw) != 32:
        return None
    try:
        return UUID(hex=raw)
    except ValueError:
        return None


async def find_conversation(caller: Caller, name: str, *, required: bool = True) -> Session | None:
    """The session of a conversation; raises HTTPError 404 if it must be there and is not."""
    try:
        return await caller.session(session_named(name))
    except NotFoundError:
        if required:
            message = f"There is no conversation {name[:100]!r}."
            raise HTTPError(404, "not_found", message, param="conversation") from None
        return None


async def _named(request: HTTPRequest) -> Session:
    session = await find_conversation(request.caller, request.path["conversation"])
    assert session is not None
    return session


def main_of(session: Session) -> Branch | None:
    """The branch that holds the items; None if nothing has been said yet."""
    return session.get_branch(DEFAULT_BRANCH, None)


def lasting_on(session: Session) -> str | None:
    """Return the system message of a conversation, without instructions for a single response."""
    main = main_of(session)
    system = None if main is None else main.system
    if system is None:
        return None
    content = system.content
    text = content.system_message if isinstance(content, SystemContent) else None
    return system.metadata.get("lasting", text) or None


@routes.post(
    _PATH,
    scope="write",
    summary="A new conversation, as OpenAI's clients make it",
    body=NewConversation,
    misfit=400,
    answer=ConversationObject,
)
async def create(request: HTTPRequest) -> ConversationObject:
    """A new conversation, with what was said in it so far."""
    body: NewConversation = request.body
    metadata = _checked(body.metadata)
    sent = await _items(request, body.items or [])
    check_calls(sent.messages, may_wait=True)
    session = await _made(request.caller, sent, {**SOURCE, CLIENT_NOTES: metadata})
    return _told(session, _PREFIX + session.id.hex)


async def _made(caller: Caller, sent: ClientMessages, metadata: Mapping[str, Any]) -> Session:
    """A session with a main branch; its id is told when all of it is there."""
    uid = new_id()
    system = None if sent.system is None else system_message(sent.system)
    branch = await caller.client.abegin(uid, system=system, metadata=metadata)
    assert branch is not None  # the id is new
    await branch.session.aadd_messages(sent.messages, branches=branch)
    await to_thread(_note, caller, branch)
    return await caller.session(str(uid))


def _checked(metadata: dict[str, str] | None) -> dict[str, str]:
    check_notes(metadata or {})
    return metadata or {}


def _told(session: Session, name: str) -> ConversationObject:
    created = clock.from_datetime(session.created_at) // 1_000_000
    metadata = session.metadata.get(CLIENT_NOTES, {})
    return ConversationObject(id=name, created_at=created, metadata=dict(metadata))


@routes.get(_ONE, scope="read", summary="A conversation", answer=ConversationObject)
async def retrieve(request: HTTPRequest) -> ConversationObject:
    """A conversation."""
    return _told(await _named(request), request.path["conversation"])


@routes.post(
    _ONE,
    scope="write",
    summary="Note something else of a conversation",
    body=ConversationMetadata,
    misfit=400,
    answer=ConversationObject,
)
async def update(request: HTTPRequest) -> ConversationObject:
    """Note something else of a conversation."""
    body: ConversationMetadata = request.body
    metadata = _checked(body.metadata)
    session = await _named(request)
    await session.adescribe({**session.metadata, CLIENT_NOTES: metadata})
    return _told(session, request.path["conversation"])


@routes.delete(
    _ONE,
    scope="write",
    summary="Erase a conversation and all that was said in it",
    answer=DeletedConversation,
)
async def delete(request: HTTPRequest) -> DeletedConversation:
    """Erase a conversation and all that was said in it."""
    session = await _named(request)
    request.caller.open.drop(session.id)
    await request.caller.client.adelete_session(session.id)
    return DeletedConversation(id=request.path["conversation"])


@routes.get(
    _ONE + "/items",
    scope="read",
    summary="What was said in a conversation",
    query=ItemsQuery,
    answer=dict[str, Any],
)
async def list_items(request: HTTPRequest) -> dict[str, Any]:
    """List the items, page by page."""
    session, max_bytes = await _named(request), request.limits.answer_bytes

    def read() -> dict[str, Any]:
        main = main_of(session)
        if main is not None:
            _note(request.caller, main)
        return page([] if main is None else main.messages, request.query, max_bytes)

    return await to_thread(read)


@routes.post(
    _ONE + "/items",
    scope="write",
    summary="Say something in a conversation, without asking a model",
    query=IncludeQuery,
    body=NewItems,
    misfit=400,
    answer=dict[str, Any],
)
async def add_items(request: HTTPRequest) -> dict[str, Any]:
    """Say something in a conversation, without asking a model."""
    body: NewItems = request.body
    sent = await _items(request, body.items)
    session = await _named(request)
    return await to_thread(_add, request.caller, session, sent)


async def _items(request: HTTPRequest, items: list[dict[str, Any]]) -> ClientMessages:
    request.check_count(len(items), request.limits.items, "items")
    return await request.build(len(items), items_in, items, "items")


def _add(caller: Caller, session: Session, sent: ClientMessages) -> dict[str, Any]:
    with session.lock:
        main = main_of(session)
        if main is None:
            main = new_branch(session, None)
        check_calls(sent.messages, [ToolCall.of(message).id for message in pending(main)], may_wait=True)
        system: list[Message] = []
        if sent.system is not None:
            texts = (text for text in (lasting_on(session), sent.system) if text)
            system.append(system_message("\n\n".join(texts)))
            session.add_messages(system, branches=main)
        messages = [*system, *add_once(session, main, sent.messages)]
        _note(caller, main)
    return listed([item for message in messages for item in items_of(message)])


def _note(caller: Caller, main: Branch) -> None:
    """Have responses to all of a conversation go to its session, unless they do so already."""
    last = branch_trail(main)[-1:]
    if is_main_of_conversation(main) and caller.known.spot(caller.client, last) is None:
        caller.known.note(caller.client, last, main)


@routes.get(
    _ITEM,
    scope="read",
    summary="One item of a conversation",
    query=IncludeQuery,
    answer=dict[str, Any],
)
async def get_item(request: HTTPRequest) -> dict[str, Any]:
    """One of the items."""
    return _item(await _named(request), request.path["item"])[1]


def _item(session: Session, name: str) -> tuple[Message, dict[str, Any]]:
    uid, main = message_of(name), main_of(session)
    if uid is not None and main is not None and uid in main:
        message = session.messages[uid]
        for item in items_of(message):
            if item["id"] == name:
                return message, item
    raise HTTPError(404, "not_found", f"There is no item {name[:100]!r} here.")


@routes.delete(
    _ITEM, scope="write", summary="Erase an item of a conversation", answer=ConversationObject
)
async def delete_item(request: HTTPRequest) -> ConversationObject:
    """Erase the message that an item is, or is a part of."""
    session = await _named(request)
    message, _ = _item(session, request.path["item"])
    await to_thread(session.remove_messages, [message], forget=False)
    return _told(session, request.path["conversation"])
