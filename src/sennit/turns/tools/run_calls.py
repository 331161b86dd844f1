"""Execution of tool calls.

Each request gets exactly one result on the branch, in the order of the requests. A request that
cannot be run (an unknown tool, invalid arguments, a call that was cut off) gets an error as its
result, so that the model can try again. The start of a call is durable before the tool is called.

A call that was started and has no result was interrupted; the `replay` option of its tool decides
what follows. An approval counts for one start only, so a call that needs approval is never started
more often than it was approved. It makes no difference whether the start was on this branch or on
another one with the same request; the result of that branch is taken over.

A call that is cancelled after its start was recorded gets a result too, and the next run does not
repeat it. Calls that were not started stay pending.
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
from sennit.errors import listed
from sennit.messages.blob_reference import OUTPUT_KEY
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.media import part_record
from sennit.messages.message import Message
from sennit.services.tools.backend import ToolContext
from sennit.services.tools.tool import Tool, ToolOutcome
from sennit.sessions.blobs import store_attachments
from sennit.stores.records.sessions import CallStart
from sennit.turns.events import ApprovalRequired, ToolCompleted, ToolResultBuffered, ToolStarted
from sennit.turns.run import Run
from sennit.turns.tools.large_output import READ_OUTPUT, stored_result

CANCELLED = "Cancelled: this was stopped while it ran; whether it took effect is unknown."
CANCELLED_EARLY = "Cancelled: this was stopped before it ran."
STARTED_ELSEWHERE = (
    "Not run: this was started before, on another branch or in another store; "
    "whether it took effect is unknown."
)
INTERRUPTED = "Interrupted: the program ended while this ran; whether it took effect is unknown."


async def run_pending_calls(run: Run, requests: tuple[Message, ...]) -> None:
    """Run pending calls, in parallel where the options allow it, as far as the budget goes."""
    run.progress.passes += 1
    run.progress.waiting = False
    while requests:
        requests = await _run_ready_calls(run, requests)


async def _run_ready_calls(run: Run, requests: tuple[Message, ...]) -> tuple[Message, ...]:
    """Run calls; return those that another run has started in the meantime."""
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
    """Return the number of calls to run in parallel."""
    if not run.options.allow_parallel_tools or not ready:
        return 1
    budget = run.options.budget
    if budget is None or budget.tool_calls is None:
        return ready
    return max(1, budget.tool_calls - run.progress.tool_calls)


@dataclass(slots=True)
class _Group:
    """Calls that run in parallel, and their unpublished results."""

    run: Run
    requests: list[Message]
    unreported: deque[Message]
    """The requests whose results are not published yet, in order."""
    results: dict[UUID, Message] = field(default_factory=dict[UUID, Message])
    called: set[UUID] = field(default_factory=set[UUID])
    """The requests whose tools were called."""
    refused: set[UUID] = field(default_factory=set[UUID])
    """The requests that another run has started in the meantime."""

    def add_result(self, request: Message, result: Message) -> None:
        """Add a result; if earlier ones are missing, record it so that a crash does not lose it."""
        self.results[request.id] = result
        if self.unreported[0] is not request:
            outcome = result.content.to_dict()
            del outcome["request_id"]
            if OUTPUT_KEY in result.metadata:
                outcome[OUTPUT_KEY] = result.metadata[OUTPUT_KEY]
            event_fields = {"message_id": result.id, "request_id": request.id, "outcome": outcome}
            self.run.emit(partial(ToolResultBuffered, **event_fields))

    def report_next(self) -> None:
        """Publish the result of the first unpublished request, if it has one."""
        request = self.unreported.popleft()
        if request.id in self.refused:
            return
        _complete_call(self.run, request, self.results.pop(request.id))

    def refuse(self, request: Message) -> None:
        """Leave a call to the run that has started it; its state is read again later."""
        run = self.run
        self.refused.add(request.id)
        run.journal.refused.discard(request.id)
        run.calls.forget_starts(request.id)
        run.progress.tool_calls -= 1

    def cancel_rest(self, started: list[Tool | Message]) -> None:
        """Add results for calls that were recorded as started and then not made."""
        for request, tool in zip(self.requests, started, strict=True):
            handled = request.id in self.called or request.id in self.refused
            if isinstance(tool, Tool) and not handled:
                self.results[request.id] = _result(request, {"error": CANCELLED_EARLY})

    def report_rest(self) -> None:
        """Publish the available results; a run that is resumed finds the recorded ones."""
        while self.unreported:
            if self.unreported[0].id in self.results:
                self.report_next()
            elif self.run.suspending:
                return
            else:
                self.unreported.popleft()


async def _call_batch(run: Run, requests: list[Message]) -> set[UUID]:
    """Run tools in parallel; publish each result as soon as the earlier ones are published.

    Return the requests that another run has started in the meantime.
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
    """Return the tool to call, after recording its start; or the result, if there is nothing to
    call.
    """
    if request.id in run.calls.results:
        return run.calls.results[request.id]
    returned = run.calls.returned.get(request.id)
    if returned is not None:
        return _result(request, returned.outcome, returned.message_id)
    tool = _tool_or_refusal(run, request)
    if isinstance(tool, str):
        return _result(request, {"error": tool})
    # An approved call is started only if no other run has started it since.
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
    """Return whether a call needs approval first; if so, ask for it."""
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
        outcome = await tool.arun(arguments or {}, _context(group.run, request))
        failpoints.reach(f"tool.after: {tool.name}")
        result = _result(request, await _outcome_fields(group.run, tool, outcome))
        result = await store_attachments(group.run.request.session, result)
    except CancelledError:
        if not group.run.suspending:  # then `replay` decides when the run is resumed
            group.results[request.id] = _result(request, {"error": CANCELLED})
        raise
    group.add_result(request, result)


async def _outcome_fields(run: Run, tool: Tool, outcome: ToolOutcome) -> dict[str, Any]:
    """Return the fields of the result of a call; a large result is stored first."""
    fields: dict[str, Any] = {}
    if outcome.error is not None:
        fields["error"] = outcome.error
    elif outcome.value is not None or not outcome.files:
        limit = None if tool.name == READ_OUTPUT else run.options.max_output_chars
        fields = await stored_result(run.request.session, outcome.value, limit)
    if outcome.files:
        fields["files"] = [part_record(file) for file in outcome.files]
    return fields


def _context(run: Run, request: Message) -> ToolContext:
    return ToolContext(
        call_id=_request_content(request).call_id or str(request.id),
        idempotency_key=str(request.id),
        session_id=run.request.session.id,
        branch=run.request.branch.name,
    )


def _tool_or_refusal(run: Run, request: Message) -> Tool | str:
    """Return the tool of a request, or the reason why it cannot be called."""
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
        return f"Not run: there is no tool {name!r}; there are: {listed(run.request.tools)}."
    decision = run.calls.decided.get(request.id)
    if decision is not None and not decision.approved:
        denied = f"{earlier_start} Not run again: denied." if was_started else "Not run: denied."
        return f"{denied} {decision.reason}".rstrip()
    return tool


def _result(request: Message, outcome: Mapping[str, Any], id: UUID | None = None) -> Message:
    content, fields = _request_content(request), dict(outcome)
    stored = fields.pop(OUTPUT_KEY, None)
    response = ActionResponseContent(request_id=content.call_id or str(request.id), **fields)
    metadata = None if stored is None else {OUTPUT_KEY: stored}
    return Message(response, id=id, sender=content.function or None, metadata=metadata)


def _complete_call(run: Run, request: Message, result: Message) -> None:
    run.emit(ToolCompleted, new=result)
    run.progress.pending.remove(request)
    run.progress.answered = False


def _request_content(message: Message) -> ActionRequestContent:
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content
