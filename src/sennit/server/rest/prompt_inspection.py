"""The prompt behind an answer, reconstructed from the store.

The history up to the answer is on the branch, the events of the run name the URIs that were added
to the prompt, and every version of a memory is stored, so the one used at the time can be shown.
What was erased since is listed without its text.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from sennit.api.client import Client
from sennit.errors import NotFoundError, ValidationError
from sennit.memory.extraction.values import abstract_of
from sennit.memory.memory import engine_of
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.memory.uri import Uri
from sennit.messages.codec import loads
from sennit.messages.content import MessageRole, SystemContent
from sennit.messages.message import Message
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.rest.branches import BRANCH_PATH
from sennit.server.rest.event_schemas import ItemShape, RecalledKind, item_shape, recalled_kind
from sennit.server.rest.learning import message_id
from sennit.services.models.usage import count_chars, tokens_of_chars
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import EventRecord
from sennit.turns.context import REPLACED_KEY
from sennit.turns.events import ContextAdded, Injection, is_stored_as
from sennit.turns.prompt_history import prompt_at
from sennit.turns.result import SPECIAL_TURN_KEY

routes: Final = Routes()

PartKind: TypeAlias = RecalledKind | Literal["system", "message", "tools", "replaced"]

# The newest events that `recalled` reads, so that a long branch stays fast.
_MAX_EVENTS_READ = 20_000


class SeenPart(ResponseModel):
    """A part of a prompt."""

    kind: PartKind
    text: str | None
    """The text; None if it was erased since."""
    tokens: int
    """The estimated number of tokens."""
    uri: str | None = None
    message_id: UUID | None = None
    session: UUID | None = None
    """The session of a recalled message."""


class Seen(ResponseModel):
    """The prompt behind an answer."""

    model: str
    parts: list[SeenPart]
    tokens: int
    """The estimated number of tokens of all parts."""
    counted: int | None
    """The number of tokens that the provider counted, if it did."""


class RecalledShape(ResponseModel):
    """The context added to the prompt of one instruction."""

    message_id: UUID
    """The instruction."""
    items: list[ItemShape]


class RecalledList(ResponseModel):
    """The context added to the prompts on a branch."""

    recalled: list[RecalledShape]


@routes.get(BRANCH_PATH + "/recalled", scope="read")
async def recalled(request: HTTPRequest) -> RecalledList:
    """List the context added to prompts on a branch, by instruction."""
    branch = await request.branch()
    return await to_thread(_recalled_on, branch)


def _recalled_on(branch: Branch) -> RecalledList:
    return RecalledList(
        recalled=[
            RecalledShape(message_id=uid, items=[*map(item_shape, items)])
            for uid, items in _added_to(branch).items()
        ]
    )


def _added_to(branch: Branch) -> dict[UUID, list[Injection]]:
    """Return the context added to the prompts on a branch, by instruction."""
    added: dict[UUID, list[Injection]] = {}
    for runs in _journals(branch):
        latest: dict[UUID, EventRecord] = {}
        for event in runs.all_events(max(0, runs.last_seq() - _MAX_EVENTS_READ)):
            if event.message is not None and is_stored_as(event, ContextAdded):
                latest[event.message] = event
        for uid in latest.keys() - added.keys():
            if uid in branch:
                added[uid] = [Injection(*item) for item in loads(latest[uid].body)[1]]
    return added


@routes.get(BRANCH_PATH + "/messages/{message}/seen", scope="read")
async def seen(request: HTTPRequest) -> Seen:
    """Reconstruct the prompt behind an answer.

    Raises HTTPError 422 for any other message.
    """
    branch = await request.branch()
    uid = message_id(request.path["message"])
    return await to_thread(_seen, request.caller.client, branch, uid, request.server.tools)


def _seen(client: Client, branch: Branch, uid: UUID, tools: dict[str, Tool]) -> Seen:
    with branch.session.lock:  # a run may append to the branch or rewrite it
        messages = branch.messages
        index = branch.index(uid)
        first, end = _turn(messages, index)
        prompt = prompt_at(branch, first)
    answer = messages[index]
    if answer.role is not MessageRole.ASSISTANT:
        message = (
            f"Message {uid} is from the {answer.role.value}; only answers of a model have a prompt."
        )
        raise HTTPError(422, "invalid", message, param="message")
    notes, own = _run_of(branch, uid)
    added = _added_to(branch)
    keeps = notes.get("memory", {}).get("recalled", True)
    parts: list[SeenPart] = []
    for message in prompt:
        parts += [
            _injected_part(client, item.uri, item.tokens, answer.created_at)
            for item in added.get(message.id, ())
            if message.id == own or (keeps and item.source == MemoryContext.__name__)
        ]
        parts.append(_message_part(message))
    if offered := [tools[name] for name in notes.get("tools", ()) if name in tools]:
        parts.insert(0, _tools_part(offered))
    usage: dict[str, Any] = end.metadata.get("usage", {})
    return Seen(
        model=end.metadata.get("model") or notes.get("model") or _sender_model(answer),
        parts=parts,
        tokens=sum(part.tokens for part in parts),
        counted=usage.get("input_tokens"),
    )


def _sender_model(answer: Message) -> str:
    """Return the sender of an answer if it is the name of a model, else ""."""
    sender = answer.sender
    return "" if sender is None or isinstance(sender, MessageRole) else str(sender)


def _turn(messages: list[Message], index: int) -> tuple[int, Message]:
    """Return the index where the model's turn of a message starts, and its last message."""
    first = last = index
    while first > 0 and _continues_turn(messages[first - 1]):
        first -= 1
    while (
        last + 1 < len(messages)
        and _continues_turn(messages[last])
        and _is_from_model(messages[last + 1])
    ):
        last += 1
    return first, messages[last]


def _is_from_model(message: Message) -> bool:
    return message.role is MessageRole.ASSISTANT and SPECIAL_TURN_KEY not in message.metadata


def _continues_turn(message: Message) -> bool:
    """Return whether the turn continues after a message: its last message has the usage."""
    return _is_from_model(message) and "usage" not in message.metadata


def _run_of(branch: Branch, uid: UUID) -> tuple[dict[str, Any], UUID | None]:
    """Return the options of the run that produced a message, and where it added context by then."""
    for runs in _journals(branch):
        context: dict[UUID, UUID | None] = {}
        for event in runs.all_events():
            if is_stored_as(event, ContextAdded):
                context[event.run] = event.message
            elif event.message == uid:
                record = next((run for run in runs.runs() if run.id == event.run), None)
                return {} if record is None else loads(record.body), context.get(event.run)
    return {}, None


def _journals(branch: Branch) -> Iterator[RunRepository]:
    """Yield the runs of a branch and of those it was forked from."""
    yield RunRepository(branch)
    for origin in branch.lineage():
        parent = branch.session.get_branch(origin.branch_id, None)
        if parent is not None:
            yield RunRepository(parent)


def _message_part(message: Message) -> SeenPart:
    kind: PartKind = "message"
    if isinstance(message.content, SystemContent):
        kind = "system"
    elif REPLACED_KEY in message.metadata:
        kind = "replaced"
    rendered = message.rendered
    text = rendered if isinstance(rendered, str) else message.content.words
    tokens = tokens_of_chars(count_chars(rendered))
    return SeenPart(kind=kind, text=text, tokens=tokens, message_id=message.id)


def _injected_part(client: Client, uri: str | None, tokens: int, at: datetime) -> SeenPart:
    path, kind = uri or "", recalled_kind(uri)
    if kind == "recalled":
        return _recalled_part(client, path, tokens)
    return SeenPart(kind=kind, text=_text_at(client, path, at), tokens=tokens, uri=uri)


def _recalled_part(client: Client, uri: str, tokens: int) -> SeenPart:
    """Return a message of another session as the prompt had it: dated and abridged."""
    file, _, message_text = uri.partition("#")
    uid, session = (
        UUID(message_text),
        engine_of(client.memory).scope.session_id(Uri.parse(file).names[0]),
    )
    try:
        message = client.session(session, create=False).messages.get(uid)
        text = f"[{message.created_at:%Y-%m-%d}] {abstract_of(message.content.words)}"
    except NotFoundError:
        text = None
    return SeenPart(
        kind="recalled", text=text, tokens=tokens, uri=file, message_id=uid, session=session
    )


def _text_at(client: Client, uri: str, at: datetime) -> str | None:
    """Return a memory as it was at a time, or the current abstract of a session file."""
    try:
        if not uri.startswith("viking://session"):
            versions = [
                version for version in client.memory.history(uri) if version.learnt_at <= at
            ]
            return versions[-1].text if versions else None
        return client.fs.abstract(uri.partition("#")[0])
    except (NotFoundError, ValidationError):
        return None


def _tools_part(tools: list[Tool]) -> SeenPart:
    schemas = [tool.schema for tool in tools]
    letters = sum(
        count_chars((schema.name, schema.description, schema.parameters)) for schema in schemas
    )
    text = "\n".join(f"{schema.name}: {schema.description}" for schema in schemas)
    return SeenPart(kind="tools", text=text, tokens=tokens_of_chars(letters))
