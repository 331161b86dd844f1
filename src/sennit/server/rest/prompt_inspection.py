"""The prompt behind an answer, reconstructed from the store.

The history up to the answer stands on the branch; what was added to the prompt is named in the
journal of the run, by address; and every version of a memory is kept, so the one that held then can
be shown. What was erased since is named without its text.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sennit.api.client import Client
from sennit.errors import NotFoundError, ValidationError
from sennit.memory.extraction.values import abstract_of
from sennit.memory.uri import Uri
from sennit.messages.codec import loads
from sennit.messages.content import MessageRole, SystemContent
from sennit.messages.message import Message
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.rest.branches import ONE
from sennit.server.rest.event_schemas import ItemShape, RecalledKind, item_shape, recalled_kind
from sennit.server.rest.learning import message_id
from sennit.services.models.usage import letters_in, tokens_in
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import EventRecord
from sennit.turns.context import REPLACED
from sennit.turns.events import ContextAdded, Injection, is_stored_as
from sennit.turns.prompt_history import sent_at
from sennit.turns.result import SPECIAL

routes = Routes()

PartKind: TypeAlias = RecalledKind | Literal["system", "message", "tools", "replaced"]

# The newest events of a journal that `recalled` reads: a long branch stays quick to open.
_EVENTS_READ = 20_000


class SeenPart(ResponseModel):
    """A part of a prompt."""

    kind: PartKind
    text: str | None
    """None if it was erased since."""
    tokens: int
    """About how many it took."""
    uri: str | None = None
    message_id: UUID | None = None
    session: UUID | None = None
    """Of a message that was recalled, the session it stands in."""


class Seen(ResponseModel):
    """The prompt behind an answer."""

    model: str
    parts: list[SeenPart]
    tokens: int
    """About how many tokens all of it took."""
    counted: int | None
    """How many the provider counted, if it did."""


class RecalledShape(ResponseModel):
    """The context added to the prompt of one instruction."""

    message_id: UUID
    """The instruction."""
    items: list[ItemShape]


class RecalledList(ResponseModel):
    """The context added to the prompts on a branch."""

    recalled: list[RecalledShape]


@routes.get(
    ONE + "/recalled",
    scope="read",
    summary="What was added to the prompts on a branch, by instruction",
    answer=RecalledList,
)
async def recalled(request: HTTPRequest) -> RecalledList:
    """List what was added to the prompts on a branch, for its latest instructions."""
    branch = await request.caller.branch(request.path["session"], request.path["branch"])
    return await to_thread(_recalled_on, branch)


def _recalled_on(branch: Branch) -> RecalledList:
    recalled: dict[UUID, RecalledShape] = {}
    for runs in _journals(branch):
        latest: dict[UUID, EventRecord] = {}
        for event in runs.all_events(max(0, runs.last_seq() - _EVENTS_READ)):
            if event.message is not None and is_stored_as(event, ContextAdded):
                latest[event.message] = event
        for uid in latest.keys() - recalled.keys():
            if uid in branch:
                items = [item_shape(Injection(*item)) for item in loads(latest[uid].body)[1]]
                recalled[uid] = RecalledShape(message_id=uid, items=items)
    return RecalledList(recalled=list(recalled.values()))


@routes.get(
    ONE + "/messages/{message}/seen",
    scope="read",
    summary="What the model saw when it gave this answer",
    answer=Seen,
)
async def seen(request: HTTPRequest) -> Seen:
    """Return the prompt behind an answer; raises HTTPError 422 for any other message."""
    branch = await request.caller.branch(request.path["session"], request.path["branch"])
    uid = message_id(request.path["message"])
    return await to_thread(_seen, request.caller.client, branch, uid, request.server.tools)


def _seen(client: Client, branch: Branch, uid: UUID, tools: dict[str, Tool]) -> Seen:
    with branch.session.lock:  # a run may go on with the branch, or rewrite it
        messages = branch.messages
        index = branch.index(uid)
        first, end = _turn(messages, index)
        prompt = sent_at(branch, first)
    answer = messages[index]
    if answer.role is not MessageRole.ASSISTANT:
        message = (
            f"Message {uid} is from the {answer.role.value}; only answers of a model have a prompt."
        )
        raise HTTPError(422, "invalid", message, param="message")
    notes, injections = _journal(branch, uid)
    parts = [_said(message) for message in prompt]
    parts[-1:-1] = [_injected(client, *injection, answer.created_at) for injection in injections]
    if offered := [tools[name] for name in notes.get("tools", ()) if name in tools]:
        parts.insert(0, _offered(offered))
    usage: dict[str, Any] = end.metadata.get("usage", {})
    return Seen(
        model=end.metadata.get("model") or notes.get("model") or _model_named(answer),
        parts=parts,
        tokens=sum(part.tokens for part in parts),
        counted=usage.get("input_tokens"),
    )


def _model_named(answer: Message) -> str:
    """The sender of an answer if it is a model's name; "" for a mere role."""
    sender = answer.sender
    return "" if sender is None or isinstance(sender, MessageRole) else str(sender)


def _turn(messages: list[Message], index: int) -> tuple[int, Message]:
    """Return the start of the model's turn that contains a message, and its last message."""
    first = last = index
    while first > 0 and _same_turn(messages[first - 1]):
        first -= 1
    while (
        last + 1 < len(messages)
        and _same_turn(messages[last])
        and _said_by_model(messages[last + 1])
    ):
        last += 1
    return first, messages[last]


def _said_by_model(message: Message) -> bool:
    return message.role is MessageRole.ASSISTANT and SPECIAL not in message.metadata


def _same_turn(message: Message) -> bool:
    """Return whether what follows a message belongs to the same turn: the last of one notes its
    usage.
    """
    return _said_by_model(message) and "usage" not in message.metadata


def _journal(branch: Branch, uid: UUID) -> tuple[dict[str, Any], list[tuple[str | None, int]]]:
    """Return the events of the run that produced a message, and the context it had added by
    then.
    """
    for runs in _journals(branch):
        context: dict[UUID, EventRecord] = {}
        for event in runs.all_events():
            if is_stored_as(event, ContextAdded):
                context[event.run] = event
            elif event.message == uid:
                record = next((run for run in runs.runs() if run.id == event.run), None)
                event_record = context.get(event.run)
                return {} if record is None else loads(record.body), _added(event_record)
    return {}, []


def _added(event: EventRecord | None) -> list[tuple[str | None, int]]:
    items: list[tuple[str, str | None, int]] = [] if event is None else loads(event.body)[1]
    return [(uri, tokens) for _, uri, tokens in items]


def _journals(branch: Branch) -> Iterator[RunRepository]:
    """The journals of a branch and of those it was forked from: one of them has the run."""
    yield RunRepository(branch)
    for origin in branch.lineage():
        parent = branch.session.get_branch(origin.branch_id, None)
        if parent is not None:
            yield RunRepository(parent)


def _said(message: Message) -> SeenPart:
    kind: PartKind = "message"
    if isinstance(message.content, SystemContent):
        kind = "system"
    elif REPLACED in message.metadata:
        kind = "replaced"
    rendered = message.rendered
    text = rendered if isinstance(rendered, str) else message.content.words
    tokens = tokens_in(letters_in(rendered))
    return SeenPart(kind=kind, text=text, tokens=tokens, message_id=message.id)


def _injected(client: Client, uri: str | None, tokens: int, at: datetime) -> SeenPart:
    path, kind = uri or "", recalled_kind(uri)
    if kind == "recalled":
        return _recalled(client, path, tokens)
    return SeenPart(kind=kind, text=_text_at(client, path, at), tokens=tokens, uri=uri)


def _recalled(client: Client, uri: str, tokens: int) -> SeenPart:
    """A message of elsewhere in a line, with its date; of a long one only a part was told."""
    file, _, message_text = uri.partition("#")
    uid, session = UUID(message_text), client.memory.realm.session_id(Uri.parse(file).names[0])
    try:
        message = client.session(session, create=False).messages.get(uid)
        text = f"[{message.created_at:%Y-%m-%d}] {abstract_of(message.content.words)}"
    except NotFoundError:
        text = None
    return SeenPart(
        kind="recalled", text=text, tokens=tokens, uri=file, message_id=uid, session=session
    )


def _text_at(client: Client, uri: str, at: datetime) -> str | None:
    """Return the text of a file at that time; for other files, the present text."""
    try:
        if not uri.startswith("viking://session"):
            versions = [version for version in client.memory.history(uri) if version.learnt_at <= at]
            return versions[-1].text if versions else None
        return client.fs.abstract(uri.partition("#")[0])
    except (NotFoundError, ValidationError):
        return None


def _offered(tools: list[Tool]) -> SeenPart:
    schemas = [tool.schema for tool in tools]
    letters = sum(letters_in((schema.name, schema.description, schema.parameters)) for schema in schemas)
    text = "\n".join(f"{schema.name}: {schema.description}" for schema in schemas)
    return SeenPart(kind="tools", text=text, tokens=tokens_in(letters))
