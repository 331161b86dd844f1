"""Execution of tool calls.

Each request gets exactly one result on the branch, in the order of the requests. What cannot be run
(an unknown tool, arguments that do not parse, a call cut off) is answered with what was wrong, so
that the model may try again. That a tool is about to be called is durable before it is called.

A call that an earlier run started and that has no result was interrupted; its tool's `replay` says
what follows. An approval counts for one start only, so a call that needs one is never started more
often than it was approved. Whether the start was on this branch or on another one that holds the
same request makes no difference; a result that stands there is taken over.

A call that is cancelled after its start was recorded has its result too, and the next run does not
make it again. Calls that were not started stay pending.
"""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, gather
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from sennit import failpoints
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.services.tools.backend import ToolContext
from sennit.services.tools.tool import Tool
from sennit.stores.records.sessions import CallStart
from sennit.turns.events import ApprovalRequired, ToolCompleted, ToolResultBuffered, ToolStarted
from sennit.turns.run import Run

CANCELLED = "Cancelled: this was stopped while it ran; whether it took effect is unknown."
CANCELLED_EARLY = "Cancelled: this was stopped before it ran."
STARTED_ELSEWHERE = (
    "Not run: this was started before, on another branch or in another store; "
    "whether it took effect is unknown."
)
INTERRUPTED = "Interrupted: the program ended while this ran; whether it took effect is unknown."


async def run_pending_calls(run: Run, requests: tuple[Message, ...]) -> None:
    """Work off pending requests, together where the options allow it, as far as the budget goes."""
    run.progress.passes += 1
    run.progress.waiting = False
    while requests:
        requests = await _run_ready_calls(run, requests)


async def _run_ready_calls(run: Run, requests: tuple[Message, ...]) -> tuple[Message, ...]:
    """Work off requests; gives those that someone else has started meanwhile."""
    await run.calls.complete(run.runs, requests)
    ready = [request for request in requests if not _ask_approval_if_needed(run, request)]
    run.progress.waiting |= len(ready) < len(requests)
    batch_size, refused = _batch_size(run, len(ready)), set[UUID]()
    for start in range(0, len(ready), batch_size):
        if start and run.is_over_budget():
            break
        refused |= await _call_batch(run, ready[start : start + batch_size])
    return tuple(request for request in ready if request.id in refused)


def _batch_size(run: Run, ready: int) -> int:
    """Return the number of calls to make together."""
    if not run.options.allow_parallel_tools or not ready:
        return 1
    budget = run.options.budget
    if budget is None or budget.tool_calls is None:
        return ready
    return max(1, budget.tool_calls - run.progress.tool_calls)


@dataclass(slots=True)
class _Group:
    """Calls that are made at once, and their results that are not told yet."""

    run: Run
    requests: list[Message]
    unreported: deque[Message]
    """The requests, in the order in which their results are told."""
    results: dict[UUID, Message] = field(default_factory=dict[UUID, Message])
    called: set[UUID] = field(default_factory=set[UUID])
    """The requests whose tools were called."""
    refused: set[UUID] = field(default_factory=set[UUID])
    """The requests that someone else has started meanwhile."""

    def add_result(self, request: Message, result: Message) -> None:
        """Have a result; if others have to be told first, it is noted, lest a crash lose it."""
        self.results[request.id] = result
        if self.unreported[0] is not request:
            outcome = result.content.to_dict()
            del outcome["request_id"]
            event_fields = {"message_id": result.id, "request_id": request.id, "outcome": outcome}
            self.run.emit(partial(ToolResultBuffered, **event_fields))

    def report_next(self) -> None:
        """Tell the result of the first request that has not been told, unless it has none."""
        request = self.unreported.popleft()
        if request.id in self.refused:
            return
        _complete_call(self.run, request, self.results.pop(request.id))

    def refuse(self, request: Message) -> None:
        """Leave a call that someone else has started; what is known of it has to be read again."""
        run = self.run
        self.refused.add(request.id)
        run.journal.refused.discard(request.id)
        run.calls.forget_starts(request.id)
        run.progress.tool_calls -= 1

    def cancel_rest(self, started: list[Tool | Message]) -> None:
        """Give a result to calls that were recorded as started and then not made."""
        for request, tool in zip(self.requests, started, strict=True):
            handled = request.id in self.called or request.id in self.refused
            if isinstance(tool, Tool) and not handled:
                self.results[request.id] = _result(request, {"error": CANCELLED_EARLY})

    def report_rest(self) -> None:
        """Tell the results there are. One who goes on with the run knows those that were noted."""
        while self.unreported:
            if self.unreported[0].id in self.results:
                self.report_next()
            elif self.run.suspending:
                return
            else:
                self.unreported.popleft()


async def _call_batch(run: Run, requests: list[Message]) -> set[UUID]:
    """Call tools at once; each result is told as soon as those before it have been.

    Gives the requests that someone else has started meanwhile.
    """
    group = _Group(run, requests, deque(requests))
    started = [_start_call(run, request) for request in requests]
    tasks = [
        create_task(_call(group, request, tool))
        for request, tool in zip(requests, started, strict=True)
    ]
    try:
        for task in tasks:
            await task
            group.report_next()
    except BaseException as error:
        await _cancel_all(tasks)
        if isinstance(error, CancelledError) and not run.suspending:
            group.cancel_rest(started)
        group.report_rest()
        raise
    return group.refused


def _start_call(run: Run, request: Message) -> Tool | Message:
    """The tool that is called, which is told; or the result, if there is nothing to call."""
    if request.id in run.calls.results:
        return run.calls.results[request.id]
    returned = run.calls.returned.get(request.id)
    if returned is not None:
        return _result(request, returned.outcome, returned.message_id)
    tool = _tool_or_refusal(run, request)
    if isinstance(tool, str):
        return _result(request, {"error": tool})
    # One that somebody allowed is only started if nobody else has done so since.
    is_repeatable = tool.replay == "safe" and request.id not in run.calls.decided
    expected_starts = None if is_repeatable else run.calls.starts[request.id]
    run.emit(ToolStarted, message=request, start=CallStart(request.id, expected_starts))
    run.progress.tool_calls += 1
    return tool


async def _cancel_all(tasks: list[Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await gather(*tasks, return_exceptions=True)


def _ask_approval_if_needed(run: Run, request: Message) -> bool:
    """Return whether a person has to allow this request first; if so, that is told."""
    tool, calls = run.request.tools.get(_request_content(request).function or ""), run.calls
    if tool is None or "problem" in request.metadata:
        return False
    if request.id in calls.decided or calls.has_result(request.id):
        return False
    if calls.may_have_run(request.id):
        needed = tool.replay == "ask" or (tool.replay == "safe" and tool.needs_approval)
    else:
        needed = tool.needs_approval
    if needed:
        run.emit(ApprovalRequired, message=request, starts=calls.starts[request.id])
    return needed


async def _call(group: _Group, request: Message, tool: Tool | Message) -> None:
    if isinstance(tool, Message):
        group.results[request.id] = tool
        return
    await group.run.flush()
    if request.id in group.run.journal.refused:
        group.refuse(request)
        return
    group.called.add(request.id)
    arguments = _request_content(request).arguments
    try:
        outcome = await tool.run(arguments or {}, _context(group.run, request))
        failpoints.reach(f"tool.after: {tool.name}")
    except CancelledError:
        if not group.run.suspending:  # then whoever goes on does as the tool's `replay` says
            group.results[request.id] = _result(request, {"error": CANCELLED})
        raise
    failed = outcome.error is not None
    result_fields = {"error": outcome.error} if failed else {"result": outcome.value}
    group.add_result(request, _result(request, result_fields))


def _context(run: Run, request: Message) -> ToolContext:
    return ToolContext(
        call_id=_request_content(request).call_id or str(request.id),
        idempotency_key=str(request.id),
        session_id=run.request.session.id,
        branch=run.request.branch.name,
    )


def _tool_or_refusal(run: Run, request: Message) -> Tool | str:
    """The tool a request asks for, or why it cannot be called."""
    problem = request.metadata.get("problem")
    if problem:
        return f"Not run: {problem}. Ask again with the whole call."
    name = _request_content(request).function or ""
    tool = run.request.tools.get(name)
    was_started = run.calls.may_have_run(request.id)
    earlier_start = INTERRUPTED if request.id in run.calls.started else STARTED_ELSEWHERE
    if was_started and (tool is None or tool.replay == "never"):
        return earlier_start
    if tool is None:
        return f"Not run: there is no tool {name!r}; there are {sorted(run.request.tools)}."
    decision = run.calls.decided.get(request.id)
    if decision is not None and not decision.approved:
        denied = f"{earlier_start} Not run again: denied." if was_started else "Not run: denied."
        return f"{denied} {decision.reason}".rstrip()
    return tool


def _result(request: Message, outcome: Mapping[str, Any], id: UUID | None = None) -> Message:
    content = _request_content(request)
    response = ActionResponseContent(request_id=content.call_id or str(request.id), **outcome)
    return Message(response, id=id, sender=content.function or None)


def _complete_call(run: Run, request: Message, result: Message) -> None:
    run.emit(ToolCompleted, new=result)
    run.progress.pending.remove(request)
    run.progress.answered = False


def _request_content(message: Message) -> ActionRequestContent:
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content
