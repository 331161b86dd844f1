"""Runs of MCP clients: start, follow, decide, resume and cancel them, by a handle.

A handle names the session, the branch and the run, and is all the state there is: any process with
the store can tell how the run is doing, and can continue it after a restart. It is no secret, since
it is looked up among the sessions of the caller. This module does not depend on the MCP protocol.
"""

from __future__ import annotations

from asyncio import CancelledError, to_thread
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.errors import ConflictError, NotFoundError, ValidationError, short_repr
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.messages.content import ActionRequestContent
from sennit.messages.message import Message
from sennit.server.active_runs import MemoryOptions, run_notes
from sennit.server.http.errors import HTTPError
from sennit.server.mcp.scope import MAX_ANSWER_CHARS, McpScope, cut
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent, ApprovalRequired, RunEnded, ToolStarted, TurnStarted
from sennit.turns.recovery import find_unfinished_run, replay
from sennit.turns.request import Request
from sennit.turns.result import Return
from sennit.turns.subscription import Subscription, has_active_run
from sennit.turns.tools.pending_calls import call_id_of, pending_approvals

Report: TypeAlias = Callable[[str], Awaitable[None]]
"""Tells the client what a run does."""
RunState: TypeAlias = Literal["working", "waiting", "interrupted", "ended"]

_RESUMED_ELSEWHERE = ("busy", "nothing_to_resume")
_CANCELLED = "The MCP client cancelled its task."
_SUSPENDED = "The server is shutting down; the run is suspended and can be resumed."
_WAITING = "These tool calls wait for a person, who decides in the studio or over the API."


@dataclass(frozen=True, slots=True)
class ClientRun:
    """A run on a branch."""

    branch: Branch
    id: UUID
    after: int
    """The number of an event: the run is followed from the next one on."""
    conversation: ConversationSession | None = None
    """The conversation that runs it, if this request has started or resumed it."""

    @property
    def handle(self) -> str:
        """The name of the run for the client."""
        ids = (self.branch.session.id, self.branch.id, self.id)
        return urlsafe_b64encode(b"".join(uid.bytes for uid in ids)).decode()


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision about a tool call."""

    approve: bool
    reason: str = ""
    """The reason of a denial, for the model."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run."""

    state: RunState
    """ "waiting" for approval, or "interrupted" by a restart or a crash."""
    created_at: str
    updated_at: str
    waiting: Mapping[str, Message]
    """The tool calls that wait for approval, by a key that is never used for another question."""
    result: Return | None = None
    """The result of a run that has ended."""


async def find_run(access: McpScope, handle: str) -> ClientRun:
    """Return the run with that handle; raise NotFoundError unless it is the caller's."""
    missing = NotFoundError(f"There is no task {short_repr(handle)} of this user.")
    try:
        ids = urlsafe_b64decode(handle)
        session_id, branch_id, run_id = (UUID(bytes=ids[at : at + 16]) for at in (0, 16, 32))
    except ValueError:
        raise missing from None
    try:
        session = await access.client.asession(str(session_id), create=False)
        branch = session.get_branch(branch_id)
    except NotFoundError:
        raise missing from None
    return ClientRun(branch, run_id, await to_thread(RunRepository(branch).last_seq))


async def start_run(access: McpScope, branch: Branch, text: str) -> ClientRun:
    """Say something and start the run that answers it; raises HTTPError if it is rejected."""
    conversation = _conversation(access, branch)
    try:
        started = await access.runs.start(conversation, caller=access.caller, say=text)
    except CancelledError:
        conversation.cancel("now")
        raise
    return ClientRun(branch, started.run_id, started.seq - 1, conversation)


async def resume_run(access: McpScope, run: ClientRun) -> ClientRun:
    """Continue a run that was interrupted, unless somebody else has just done so."""
    conversation = _conversation(access, run.branch)
    try:
        started = await access.runs.start(conversation, caller=access.caller, resume=True)
    except HTTPError as error:
        if error.code not in _RESUMED_ELSEWHERE:
            raise
        return run
    return replace(run, after=started.seq - 1, conversation=conversation)


def _conversation(access: McpScope, branch: Branch) -> ConversationSession:
    if access.model is None:
        raise ValidationError("This server has no model; add an answer with add_message.")
    tools = [tool for tool in access.tools if not branch.fenced or branch.may_use(tool.name)]
    contexts = [MemoryContext(access.client.memory)]
    request = Request.of(branch, model=access.model, tools=tools, contexts=contexts)
    memory = MemoryOptions(recalled=True, other_sessions=False)
    return ConversationSession(replace(request, notes=run_notes({}, memory)))


async def run_status(run: ClientRun) -> RunStatus:
    """Return the status of a run; raise NotFoundError if there is none on the branch."""
    return await to_thread(_status, run)


def _status(run: ClientRun) -> RunStatus:
    runs = RunRepository(run.branch)
    runs.refresh()
    last = record = runs.last()
    if last is None or last.id != run.id:  # a task is mostly the last run
        record = next((record for record in runs.runs() if record.id == run.id), None)
    if record is None:
        raise NotFoundError(f"There is no run {run.id} on branch {run.branch.name!r}.")
    state: RunState = "interrupted"
    waiting: dict[str, Message] = {}
    result = None
    if record.state == "ended" or record is not last:
        state, result = "ended", _result(runs, run.id)
    elif has_active_run(runs):
        state = "working"
    elif waiting := _waiting(runs):
        state = "waiting"
    elif _is_cancelled(runs):
        state, result = "ended", Return(stop_reason="cancelled")
    times = clock.to_iso(record.created), clock.to_iso(record.updated)
    return RunStatus(state, *times, waiting, result)


def _result(runs: RunRepository, run: UUID) -> Return:
    """Return the result of a run that has ended; one that another run replaced is cancelled."""
    ends = [event.result for event in replay(runs, run) if isinstance(event, RunEnded)]
    if ends and ends[-1].stop_reason != "suspended":
        return ends[-1]
    return Return(stop_reason="cancelled")


def _waiting(runs: RunRepository) -> dict[str, Message]:
    calls = pending_approvals(runs.branch)
    starts = runs.starts([call.id for call in calls])  # a call may be asked about after each start
    return {f"{call.id}.{starts.get(call.id, 0)}": call for call in calls}


def _is_cancelled(runs: RunRepository) -> bool:
    unfinished = find_unfinished_run(runs)
    decisions = () if unfinished is None else unfinished.calls.decided.values()
    return any(decision.reason == _CANCELLED for decision in decisions)


async def follow_run(run: ClientRun, report: Report) -> RunStatus:
    """Wait until a run no longer works, and return its status; cancel it if this is cancelled."""
    try:
        async with Subscription(RunRepository(run.branch), run.after) as events:
            async for event in events:
                if event.run_id == run.id and (text := _progress(event)):
                    await report(text)
        return await run_status(run)
    except CancelledError:
        if run.conversation is not None:
            run.conversation.cancel("now")
        raise


def _progress(event: AnyEvent) -> str:
    match event:
        case TurnStarted():
            return f"Model call {event.turn}"
        case ToolStarted():
            return f"Tool {tool_name(event.message)!r} runs"
        case ApprovalRequired():
            return f"Tool {tool_name(event.message)!r} needs approval"
        case _:
            return ""


async def decide_calls(
    access: McpScope, run: ClientRun, decisions: Mapping[str, Decision]
) -> ClientRun:
    """Record decisions about waiting calls by their keys, and resume the run if none waits.

    Decisions about calls that do not wait are ignored.
    """
    status = await run_status(run)
    conversation = _conversation(access, run.branch)
    for key, call in status.waiting.items():
        decision = decisions.get(key)
        if decision is None:
            continue
        with suppress(NotFoundError):  # somebody else has just decided
            if decision.approve:
                await conversation.aapprove(call_id_of(call), resume=False)
            else:
                await conversation.adeny(call_id_of(call), decision.reason, resume=False)
    status = await run_status(run)
    return await resume_run(access, run) if status.state == "interrupted" else run


async def cancel_run(access: McpScope, run: ClientRun) -> None:
    """Cancel a run of this process, or one that waits; one of another process goes on."""
    status = await run_status(run)
    if status.state == "interrupted":  # to end it, as it would otherwise be resumed
        await resume_run(access, run)
    active = access.runs.on(run.branch)
    if active is not None and status.state != "ended":
        active.cancel("now")
    for call in status.waiting.values():
        with suppress(NotFoundError):
            conversation = _conversation(access, run.branch)
            await conversation.adeny(call_id_of(call), _CANCELLED, resume=False)


def outcome(run: ClientRun, status: RunStatus) -> dict[str, Any]:
    """Return the result of continue_session; raise RunError if the run failed.

    Raises ConflictError if the server is shutting down.
    """
    if status.state in ("interrupted", "working"):
        raise ConflictError(_SUSPENDED)
    value: dict[str, Any] = {"branch": run.branch.name, "answer": "", "stop_reason": "suspended"}
    if status.result is not None:
        result = status.result.raise_for_error()
        value["answer"] = cut(result.answer, MAX_ANSWER_CHARS)
        value["stop_reason"] = str(result.stop_reason)
    value["total"] = len(run.branch)
    if status.waiting:
        calls = [(tool_name(call), tool_arguments(call)) for call in status.waiting.values()]
        value["waiting"] = [{"tool": name, "arguments": given} for name, given in calls]
        value["note"] = _WAITING
    return value


def tool_name(call: Message) -> str:
    """Return the name of the tool that a message calls."""
    assert isinstance(call.content, ActionRequestContent)
    return str(call.content.function)


def tool_arguments(call: Message) -> dict[str, Any]:
    """Return the arguments of a tool call."""
    assert isinstance(call.content, ActionRequestContent)
    arguments = call.content.arguments
    return arguments if isinstance(arguments, dict) else {}
