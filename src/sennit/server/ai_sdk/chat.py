"""/api/chat: the server side of `useChat`, with history, resume, stop, regenerate and approval.

The id of a chat is the key of a session. The server has the history: of the messages that a page
sends, only the last one is read, and the ids of those before it tell where it belongs. A page that
sends another message after an earlier one, or asks for another answer, gets a fork.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from sennit.api.session import Session
from sennit.errors import NotFoundError, ValidationError
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.server.ai_sdk.ui_messages import (
    Group,
    UIMessage,
    call_id_of,
    decisions_of,
    groups_of,
    shared,
    ui_message,
    user_message,
)
from sennit.server.ai_sdk.ui_stream import UIMessageStream
from sennit.server.http.endpoint import HTTPRequest, RequestModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import MEDIA, EventStream, sse_event
from sennit.server.http.starlette_imports import Response
from sennit.server.rest.runs import RunRequest, plan_resume, plan_run, resume_run, start_run
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.subscription import Subscription, has_active_run
from sennit.turns.tools.pending_calls import pending_approvals

routes = Routes()

_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
_END = b"data: [DONE]\n\n"


class ChatRequest(RequestModel, kw_only=True):
    """The body that the AI SDK's DefaultChatTransport sends; its `body` option adds `model`."""

    takes_unknown: ClassVar[bool] = True
    id: str
    messages: list[UIMessage]
    trigger: str = "submit-message"
    model: str | None = None
    """Ours: a model of the server; without it, the first."""


@routes.post("/api/chat", scope="run", media=MEDIA)
async def chat(request: HTTPRequest, body: ChatRequest) -> EventStream:
    """Answer the last message of a chat as a UI message stream.

    The run goes on if the page disconnects. Raises HTTPError 409 if the server does not have the
    messages before it.
    """
    request.check_count(len(body.messages), request.limits.items, "messages")
    request.open_stream()
    plan = plan_run(request, RunRequest(model=body.model))
    target = await to_thread(_locate, request, body)
    if target.decisions:
        return await _decide(request, target)
    branch = target.branch
    if target.fork_at is not None:
        branch = await branch.session.afork_history(
            branch, target.fork_at, name=None, grants=branch.grants, system=branch.system_id
        )
    started = await start_run(request, branch, plan, target.message)
    return _stream(request, branch, started.after, None)


async def _decide(request: HTTPRequest, target: _Target) -> EventStream:
    """Approve or deny calls that wait, and resume the run."""
    branch = target.branch
    after = await to_thread(RunRepository(branch).last_seq)
    plan = await plan_resume(request, branch, RunRequest())
    conversation = await plan.conversation(branch)
    for call_id, (approved, reason) in target.decisions.items():
        if approved:
            await conversation.aapprove(call_id, resume=False)
        else:
            await conversation.adeny(call_id, reason, resume=False)
    if not await conversation.apending_approvals():
        await resume_run(request, plan, conversation)
    return _stream(request, branch, after, target.group)


@routes.get("/api/chat/{chat}", scope="read")
async def history(request: HTTPRequest) -> dict[str, Any]:
    """Read the messages of a chat, for `messages` of `useChat` after a reload.

    An answer that is being generated is left out: the page gets it from the stream.
    """
    session = await request.caller.session(request.path["chat"])
    return await to_thread(_history, session)


@routes.get("/api/chat/{chat}/stream", scope="read", media=MEDIA)
async def follow(request: HTTPRequest) -> Response:
    """Follow the answer that is being generated, from its beginning; 204 if there is none."""
    try:
        session = await request.caller.session(request.path["chat"])
    except NotFoundError:
        return Response(status_code=204)
    active = await to_thread(_active_branch, session)
    if active is None:
        return Response(status_code=204)
    request.open_stream()
    branch, after = active
    return _stream(request, branch, after, None)


@routes.post("/api/chat/{chat}/stop", scope="run", status=204, stops=True)
async def stop(request: HTTPRequest) -> None:
    """Stop the answers that are being generated; their text so far stays."""
    session = await request.caller.session(request.path["chat"])
    await request.server.runs.stop_on(session.branches)


@dataclass(frozen=True, slots=True)
class _Target:
    """The place where a request continues a chat."""

    branch: Branch
    message: Message | None = None
    """The new message; None to answer the last one again."""
    fork_at: int | None = None
    """Where to fork: the number of messages, without the system message; None: at the end."""
    decisions: Mapping[str, tuple[bool, str]] = field(default_factory=dict[str, tuple[bool, str]])
    """Decisions about tool calls that wait, by call id."""
    group: str | None = None
    """The id of the answer that they belong to."""


def _locate(request: HTTPRequest, body: ChatRequest) -> _Target:
    """Return where a request continues; raise HTTPError 409 for messages that nobody has.

    A new chat gets a session.
    """
    caller, messages = request.caller, body.messages
    if not messages:
        raise HTTPError(422, "invalid", "'messages' must not be empty.", param="messages")
    ids, last = [message.id for message in messages], messages[-1]
    message = _new_message(last, caller.client.user, len(messages) - 1)
    try:
        session = caller.hold(caller.client.session(body.id, create=False))
    except NotFoundError:
        if message is None or len(ids) > 1:
            raise _unknown_message(body, 0) from None
        session = caller.hold(caller.client.session(body.id))
    match = _best(session, ids, message)
    branch, groups, count = match.branch, match.groups, match.known
    if message is None and count == len(ids):
        return _decided(branch, groups[count - 1], decisions_of(last))
    if message is None or count < len(ids) - 1:
        raise _unknown_message(body, count)
    if match.has_message:  # another answer to it
        return _Target(branch, fork_at=None if count == len(groups) else groups[count - 1].end)
    before = len(ids) - 1  # a page that changes a message keeps its id
    if before == len(groups):
        return _Target(branch, message)
    return _Target(branch, message, groups[before - 1].end if before else 0)


def _unknown_message(body: ChatRequest, at: int) -> HTTPError:
    message = (
        f"This chat has no message {body.messages[at].id[:100]!r}; read its history from "
        f"/api/chat/{body.id[:100]} and send the message again."
    )
    return HTTPError(409, "history", message, param=f"messages[{at}]")


def _new_message(last: UIMessage, sender: str, at: int) -> Message | None:
    """Return the last message if it is the user's; raise HTTPError 422 if it is invalid."""
    if last.role != "user":
        return None
    try:
        return user_message(last, sender)
    except ValidationError as error:
        raise HTTPError(422, "invalid", str(error), param=f"messages[{at}]") from None


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


def _decided(branch: Branch, group: Group, decisions: dict[str, tuple[bool, str]]) -> _Target:
    """Return the run that waits for decisions about the calls in an answer."""
    decided = {call: decision for call, decision in decisions.items() if call in _waiting(branch)}
    if not decided:
        message = "Nothing waits for an answer: the last message is one, and no call is decided."
        raise HTTPError(409, "answered", message, param="messages")
    return _Target(branch, decisions=decided, group=group.id)


def _history(session: Session) -> dict[str, Any]:
    branch = max(session.branches, key=_last_change, default=None)
    if branch is None:
        return {"messages": []}
    groups = groups_of(branch)
    if groups and not groups[-1].is_user and has_active_run(RunRepository(branch)):
        groups.pop()
    waiting = _waiting(branch)
    return {"messages": [ui_message(group, waiting) for group in groups]}


def _waiting(branch: Branch) -> set[str]:
    """Return the ids of the calls that wait for approval."""
    return {call_id_of(call) for call in pending_approvals(branch)}


def _last_change(branch: Branch) -> tuple[int, int]:
    count = branch.tail.total
    last = branch.tail.id_at(count - 1).int if count else 0
    return max(last, 0), branch.created_us


def _active_branch(session: Session) -> tuple[Branch, int] | None:
    """Return the branch with an active run, and the number of the event before it."""
    for branch in sorted(session.branches, key=_last_change, reverse=True):
        runs = RunRepository(branch)
        if has_active_run(runs):
            last = runs.last()
            return branch, 0 if last is None else loads(last.body).get("after", 0)
    return None


def _stream(request: HTTPRequest, branch: Branch, after: int, name: str | None) -> EventStream:
    chunks = _chunks(Subscription(RunRepository(branch), after), UIMessageStream(name))
    server = request.server
    return EventStream(chunks, request.limits, _HEADERS, open_streams=server.streams)


async def _chunks(subscription: Subscription, stream: UIMessageStream) -> AsyncGenerator[bytes]:
    async with subscription:
        while events := await subscription.batch():
            if chunks := [sse_event(chunk) for event in events for chunk in stream.convert(event)]:
                yield b"".join(chunks)
    yield _END
