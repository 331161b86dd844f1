"""Chats of web pages, on sessions: where a request continues one, and the run that answers it.

The id of a chat is the key of a session. The server has the history: of the messages that a page
sends, only the last one is read, and the ids of those before it tell where it belongs. A page that
sends another message after an earlier one, or asks for another answer, gets a fork. A request that
comes again, since a client or a proxy repeats it, streams the answer that exists and runs nothing:
each run stores the id of the message that it answers, and those that the page gave the run.

A message of a page is a message of the user, or all that answers it. A user's message keeps the id
that the page gave it; an answer has the id of its first message.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from sennit.api.session import Session
from sennit.errors import NotFoundError, ValidationError
from sennit.messages.codec import loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
)
from sennit.messages.media import ImagePart, MediaPart
from sennit.messages.message import Message
from sennit.server.frontends.page_stream import PageStream
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import EventStream
from sennit.server.http.starlette_imports import Response
from sennit.server.rest.runs import RunPlan, RunRequest, plan_resume, resume_run, start_run
from sennit.sessions.blobs import inline_blobs
from sennit.sessions.branch import Branch, messages_from
from sennit.sessions.client import blobs_of
from sennit.sessions.plan import fork_history
from sennit.sessions.run_repository import RunRepository
from sennit.sessions.segments import tail_of
from sennit.stores.records.sessions import Owner, RunRecord
from sennit.stores.session_ids import session_id
from sennit.turns.events import AnyEvent, RunEnded, RunStarted
from sennit.turns.recovery import replay
from sennit.turns.subscription import Subscription, has_active_run
from sennit.turns.tools.pending_calls import pending_approvals

_ID_KEY = "ui_id"
"""The key of the id that the page gave a message, in its metadata."""
_MAX_ID_CHARS = 200
_PAGE_NOTE = "page"
"""The key of the message that a run answers, and of the page's ids of the run, in its notes."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A request of a page, which ends with a message of the user or a decision."""

    chat: str
    """The id of the chat."""
    ids: Sequence[str]
    """The ids of the messages."""
    message: Message | None
    """The last message if it is the user's."""
    decisions: Mapping[str, tuple[bool, str]] = field(default_factory=dict[str, tuple[bool, str]])
    """Decisions about tool calls: whether each is approved, and why not."""
    history_path: str = ""
    """The path where a page reads the history."""
    asks_again: bool = False
    """Whether a message that is answered gets another answer, unless `run_id` has run."""
    run_id: str | None = None
    """The id that the page gives the run."""


@dataclass(frozen=True, slots=True)
class Group:
    """The messages of a branch that are one UI message."""

    id: str
    is_user: bool
    messages: list[Message]
    end: int
    """The number of messages up to its end, without the system message."""


def groups_of(branch: Branch) -> list[Group]:
    """Return the messages of a branch in groups."""
    with branch.session.lock:
        start = int(branch.system_id is not None)
        messages = messages_from(branch, start)
    groups: list[Group] = []
    own: list[Message] = []
    for at, message in enumerate(messages):
        is_user = isinstance(message.content, InstructionContent)
        if is_user or not groups or groups[-1].is_user:
            own = []
            groups.append(Group(_id_of(message), is_user, own, at + 1))
        own.append(message)
        groups[-1] = Group(groups[-1].id, is_user, own, at + 1)
    return groups


def _id_of(message: Message) -> str:
    ui_id = message.metadata.get(_ID_KEY)
    return ui_id if isinstance(ui_id, str) else str(message.id)


def shared(groups: Sequence[Group], ids: Sequence[str]) -> int:
    """Return how many of the first groups have these ids."""
    pairs = zip(groups, ids, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1], pairs))


def call_id_of(message: Message) -> str:
    """Return the id of a tool call."""
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content.call_id or str(message.id)


def outcome_of(messages: Sequence[Message], call: Message) -> Message | None:
    """Return the result of a call among the messages of its answer."""
    names = (call_id_of(call), str(call.id))
    for message in messages:
        content = message.content
        if isinstance(content, ActionResponseContent) and content.request_id in names:
            return message
    return None


def user_message(
    uid: str, texts: Sequence[str], media: Sequence[MediaPart], sender: Any
) -> Message:
    """Return a user's message; raises ValidationError if it is empty."""
    if not 0 < len(uid) <= _MAX_ID_CHARS:
        raise ValidationError(f"A message needs an 'id' of 1 to {_MAX_ID_CHARS} characters.")
    text = "\n".join(text for text in texts if text)
    if not text and not media:
        raise ValidationError("A message needs a text or a file.")
    content = InstructionContent.create(
        instruction=text or None,
        images=[part.url for part in media if isinstance(part, ImagePart)] or None,
        files=[part for part in media if not isinstance(part, ImagePart)] or None,
    )
    return Message(content, sender=sender, metadata={_ID_KEY: uid})


async def answer(
    request: HTTPRequest,
    turn: ChatTurn,
    plan: RunPlan,
    encoder: Callable[[str | None], PageStream],
    headers: Mapping[str, str],
) -> EventStream:
    """Run a turn and return its events; the run goes on if the page disconnects.

    A turn that comes again gets the events of its run. `encoder` gets the id of the answer that the
    run continues, after a decision. Raises HTTPError 409 if the server does not have the messages
    before the last one.
    """
    request.open_stream()
    client = request.caller.client
    chat = session_id(Owner(client.tenant, "user", client.user), turn.chat)
    # Until the run has begun, its repetition would not find it.
    async with request.server.branch_cache.lock(chat):
        return await _begin(request, turn, plan, encoder, headers)


async def _begin(
    request: HTTPRequest,
    turn: ChatTurn,
    plan: RunPlan,
    encoder: Callable[[str | None], PageStream],
    headers: Mapping[str, str],
) -> EventStream:
    target = await to_thread(_locate, request.caller, turn)
    branch = target.branch
    if target.repeated is not None:
        chunks = _repeated(RunRepository(branch), target.repeated, encoder(None))
        return _event_stream(request, chunks, headers)
    if target.decided:
        after = await to_thread(RunRepository(branch).last_seq)
        await _decide(request, branch, target.decided, turn.run_id)
        return stream(request, branch, after, encoder(target.group), headers)
    if target.fork_at is not None:
        branch = await fork_history(branch, target.fork_at, system=branch.system_id)
    note = {"message": str(target.asked), "runs": [] if turn.run_id is None else [turn.run_id]}
    plan = replace(plan, notes={_PAGE_NOTE: note})
    started = await start_run(request, branch, plan, target.message)
    return stream(request, branch, started.after, encoder(None), headers)


async def _decide(
    request: HTTPRequest,
    branch: Branch,
    decided: Mapping[str, tuple[bool, str]],
    run_id: str | None,
) -> None:
    """Approve or deny calls that wait, and resume the run when none waits any more."""
    plan = await plan_resume(request, branch, RunRequest())
    if run_id is not None and (note := plan.notes.get(_PAGE_NOTE)) is not None:
        plan = replace(plan, notes={_PAGE_NOTE: {**note, "runs": [*note["runs"], run_id]}})
    conversation = await plan.conversation(branch)
    for call_id, (approved, reason) in decided.items():
        if approved:
            await conversation.aapprove(call_id, resume=False)
        else:
            await conversation.adeny(call_id, reason, resume=False)
    if not await conversation.apending_approvals():
        await resume_run(request, plan, conversation)


def stream(
    request: HTTPRequest,
    branch: Branch,
    after: int,
    encoder: PageStream,
    headers: Mapping[str, str],
) -> EventStream:
    """Return the events of a branch after a number, until its run has ended."""
    chunks = _chunks(Subscription(RunRepository(branch), after), encoder)
    return _event_stream(request, chunks, headers)


def _event_stream(
    request: HTTPRequest, chunks: AsyncGenerator[bytes], headers: Mapping[str, str]
) -> EventStream:
    return EventStream(chunks, request.limits, headers, open_streams=request.server.streams)


async def _chunks(subscription: Subscription, encoder: PageStream) -> AsyncGenerator[bytes]:
    async with subscription:
        while events := await subscription.batch():
            if chunk := b"".join(map(encoder.encode, _as_one_run(events))):
                yield chunk
    yield encoder.end


async def _repeated(
    runs: RunRepository, run: RunRecord, encoder: PageStream
) -> AsyncGenerator[bytes]:
    """Yield the events of a run from its beginning, live if it is active."""
    if await to_thread(_is_active, runs, run):
        async for chunk in _chunks(Subscription(runs, loads(run.body)["after"]), encoder):
            yield chunk
        return
    for event in _as_one_run(await to_thread(replay, runs, run.id)):
        yield encoder.encode(event)
    yield encoder.end


def _is_active(runs: RunRepository, run: RunRecord) -> bool:
    last = runs.last()
    return last is not None and last.id == run.id and has_active_run(runs)


def _as_one_run(events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """Return the events of a run with one end at most: it may have waited for approval before."""
    ends = [event for event in events if isinstance(event, RunEnded)]
    if not ends or ends == [*events[-1:]]:
        return events
    rest = [event for event in events if not isinstance(event, RunEnded)]
    is_resumed = any(
        isinstance(event, RunStarted) and event.resumed and event.seq > ends[-1].seq
        for event in rest
    )
    return rest if is_resumed else [*rest, ends[-1]]


async def follow(
    request: HTTPRequest, chat: str, encoder: Callable[[], PageStream], headers: Mapping[str, str]
) -> Response:
    """Follow the answer that is being generated, from its beginning; 204 if there is none."""
    try:
        session = await request.caller.session(chat)
    except NotFoundError:
        return Response(status_code=204)
    active = await to_thread(_active_branch, session)
    if active is None:
        return Response(status_code=204)
    request.open_stream()
    branch, after = active
    return stream(request, branch, after, encoder(), headers)


def shown_groups(session: Session) -> tuple[list[Group], set[str]]:
    """Return the messages that a page shows after a reload, and the calls that wait for approval.

    They are those of the branch that changed last. An answer that is being generated is left out:
    the page gets it from the stream.
    """
    branch = max(session.branches, key=_last_change, default=None)
    if branch is None:
        return [], set()
    runs = RunRepository(branch)
    active, groups = has_active_run(runs), groups_of(branch)
    while active != has_active_run(runs):  # a run has begun or ended in between
        active, groups = not active, groups_of(branch)
    if active and groups and not groups[-1].is_user:
        groups.pop()
    for group in groups:
        group.messages[:] = inline_blobs(session, group.messages)
    return groups, _waiting(branch)


def _waiting(branch: Branch) -> set[str]:
    """Return the ids of the calls that wait for approval."""
    return {call_id_of(call) for call in pending_approvals(branch)}


def _last_change(branch: Branch) -> tuple[int, int]:
    count = tail_of(branch).total
    return tail_of(branch).id_at(count - 1).int if count else 0, branch.created_us


def _active_branch(session: Session) -> tuple[Branch, int] | None:
    """Return the branch with an active run, and the number of the event before it."""
    for branch in sorted(session.branches, key=_last_change, reverse=True):
        runs = RunRepository(branch)
        if has_active_run(runs):
            last = runs.last()
            return branch, 0 if last is None else loads(last.body).get("after", 0)
    return None


class _Target(NamedTuple):
    """The place where a request continues a chat."""

    branch: Branch
    message: Message | None = None
    """The new message; None to answer the last one again."""
    fork_at: int | None = None
    """Where to fork: the number of messages, without the system message; None: at the end."""
    decided: Mapping[str, tuple[bool, str]] = {}
    """Decisions about tool calls that wait, by call id."""
    group: str | None = None
    """The id of the answer that they belong to."""
    asked: UUID | None = None
    """The message that is answered, unless calls are decided."""
    repeated: RunRecord | None = None
    """The run that has answered, or answers, if the request came again."""


def _locate(caller: Caller, turn: ChatTurn) -> _Target:
    """Return where a request continues; raise HTTPError 409 for messages that nobody has.

    A new chat gets a session. Raises NotFoundError for a message with a blob that nobody stored.
    """
    ids, message = turn.ids, turn.message
    if not ids:
        raise HTTPError(422, "invalid", "'messages' must not be empty.", param="messages")
    if message is not None:
        blobs_of(caller.client).check([message])  # before a session is created
    try:
        session = caller.hold(caller.client.session(turn.chat, create=False))
    except NotFoundError:
        if message is None or len(ids) > 1:
            raise _unknown_message(turn, 0) from None
        session = caller.hold(caller.client.session(turn.chat))
    match = _best(session, ids, message)
    branch, groups, count = match.branch, match.groups, match.known
    if message is None and count == len(ids):
        return _decided(branch, groups[count - 1], turn.decisions)
    if message is None or count < len(ids) - 1:
        raise _unknown_message(turn, count)
    if match.has_message:
        return _repetition(turn, match) or _another_answer(turn, match)
    before = len(ids) - 1  # a page that changes a message keeps its id
    if before == len(groups):
        return _Target(branch, message, asked=message.id)
    return _Target(branch, message, groups[before - 1].end if before else 0, asked=message.id)


def _repetition(turn: ChatTurn, match: _Match) -> _Target | None:
    """Return the run that a request has started before; None if it asks for a new one."""
    asked = str(match.asked.id)
    if match.is_at_end and not turn.asks_again and not has_active_run(RunRepository(match.branch)):
        return None  # nothing has answered
    others = [branch for branch in list(match.branch.session.branches) if branch != match.branch]
    for branch in (match.branch, *others):
        for run in RunRepository(branch).runs():
            note = loads(run.body).get(_PAGE_NOTE)
            if note is None or note["message"] != asked:
                continue
            if not turn.asks_again or turn.run_id in note["runs"]:
                return _Target(branch, repeated=run)
    return None


def _another_answer(turn: ChatTurn, match: _Match) -> _Target:
    """Return where a message that the branch has is answered; raise HTTPError 409 if it is."""
    branch, asked = match.branch, match.asked.id
    if match.is_at_end:
        return _Target(branch, asked=asked)
    if turn.asks_again:
        return _Target(branch, fork_at=match.groups[match.known - 1].end, asked=asked)
    message = (
        f"The message {turn.ids[-1][:100]!r} has an answer; read it from "
        f"{turn.history_path[:200]}, or ask for another one with the trigger "
        "'regenerate-message' (AI SDK) or a new 'runId' (AG-UI)."
    )
    raise HTTPError(409, "answered", message, param="messages")


def _unknown_message(turn: ChatTurn, at: int) -> HTTPError:
    message = (
        f"This chat has no message {turn.ids[at][:100]!r}; read its history from "
        f"{turn.history_path[:200]} and send the message again."
    )
    return HTTPError(409, "history", message, param=f"messages[{at}]")


class _Match(NamedTuple):
    """The messages of a request on a branch."""

    known: int
    """The number of first messages whose ids the branch has."""
    has_message: bool
    """Whether the last one is among them, with the same content."""
    is_at_end: bool
    """Whether the branch has no more."""
    branch: Branch
    groups: list[Group]

    @property
    def asked(self) -> Message:
        """The last of these messages."""
        return self.groups[self.known - 1].messages[0]


def _best(session: Session, ids: Sequence[str], message: Message | None) -> _Match:
    """Return the branch with the most of these messages."""

    def match(branch: Branch) -> _Match:
        groups = groups_of(branch)
        count = shared(groups, ids)
        has_message = (
            message is not None
            and count == len(ids)
            and groups[count - 1].messages[0].content == message.content
        )
        return _Match(count, has_message, count == len(groups), branch, groups)

    matches = map(match, list(session.branches) or [session.default_branch])
    return max(matches, key=lambda match: match[:3])


def _decided(branch: Branch, group: Group, decisions: Mapping[str, tuple[bool, str]]) -> _Target:
    """Return the run that waits for decisions about the calls in an answer."""
    waiting = _waiting(branch)
    decided = {call: decision for call, decision in decisions.items() if call in waiting}
    if not decided:
        message = "Nothing waits for an answer: the last message is one, and no call is decided."
        raise HTTPError(409, "answered", message, param="messages")
    return _Target(branch, decided=decided, group=group.id)
