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


async def drain(run: Run, requests: tuple[Message, ...]) -> None:
    """Work off pending requests, together where the options allow it, as far as the budget goes."""
    run.progress.passes += 1
    run.progress.waiting = False
    while requests:
        requests = await _drain(run, requests)


async def _drain(run: Run, requests: tuple[Message, ...]) -> tuple[Message, ...]:
    """Work off requests; gives those that someone else has started meanwhile."""
    await run.calls.complete(run.runs, requests)
    ready = [one for one in requests if not _waits(run, one)]
    run.progress.waiting |= len(ready) < len(requests)
    at_once, refused = _at_once(run, len(ready)), set[UUID]()
    for start in range(0, len(ready), at_once):
        if start and run.overspent():
            break
        refused |= await _call_together(run, ready[start : start + at_once])
    return tuple(one for one in ready if one.id in refused)


def _at_once(run: Run, wanted: int) -> int:
    """Return the number of calls to make together."""
    if not run.options.allow_parallel_tools or not wanted:
        return 1
    budget = run.options.budget
    if budget is None or budget.tool_calls is None:
        return wanted
    return max(1, budget.tool_calls - run.progress.tool_calls)


@dataclass(slots=True)
class _Group:
    """Calls that are made at once, and their results that are not told yet."""

    run: Run
    requests: list[Message]
    untold: deque[Message]
    """The requests, in the order in which their results are told."""
    results: dict[UUID, Message] = field(default_factory=dict[UUID, Message])
    ran: set[UUID] = field(default_factory=set[UUID])
    """The requests whose tools were called."""
    refused: set[UUID] = field(default_factory=set[UUID])
    """The requests that someone else has started meanwhile."""

    def take(self, request: Message, result: Message) -> None:
        """Have a result; if others have to be told first, it is noted, lest a crash lose it."""
        self.results[request.id] = result
        if self.untold[0] is not request:
            outcome = result.content.to_dict()
            del outcome["request_id"]
            told = {"message_id": result.id, "request_id": request.id, "outcome": outcome}
            self.run.tell(partial(ToolResultBuffered, **told))

    def tell_next(self) -> None:
        """Tell the result of the first request that has not been told, unless it has none."""
        request = self.untold.popleft()
        if request.id in self.refused:
            return
        _answer(self.run, request, self.results.pop(request.id))

    def refuse(self, request: Message) -> None:
        """Leave a call that someone else has started; what is known of it has to be read again."""
        run = self.run
        self.refused.add(request.id)
        run.journal.refused.discard(request.id)
        run.calls.forget(request.id)
        run.progress.tool_calls -= 1

    def cancel_rest(self, begun: list[Tool | Message]) -> None:
        """Give a result to calls that were recorded as started and then not made."""
        for request, tool in zip(self.requests, begun, strict=True):
            made = request.id in self.ran or request.id in self.refused
            if isinstance(tool, Tool) and not made:
                self.results[request.id] = _result(request, {"error": CANCELLED_EARLY})

    def tell_rest(self) -> None:
        """Tell the results there are. One who goes on with the run knows those that were noted."""
        while self.untold:
            if self.untold[0].id in self.results:
                self.tell_next()
            elif self.run.suspending:
                return
            else:
                self.untold.popleft()


async def _call_together(run: Run, requests: list[Message]) -> set[UUID]:
    """Call tools at once; each result is told as soon as those before it have been.

    Gives the requests that someone else has started meanwhile.
    """
    group = _Group(run, requests, deque(requests))
    begun = [_begin(run, request) for request in requests]
    tasks = [
        create_task(_call(group, request, tool))
        for request, tool in zip(requests, begun, strict=True)
    ]
    try:
        for task in tasks:
            await task
            group.tell_next()
    except BaseException as error:
        await _stop(tasks)
        if isinstance(error, CancelledError) and not run.suspending:
            group.cancel_rest(begun)
        group.tell_rest()
        raise
    return group.refused


def _begin(run: Run, request: Message) -> Tool | Message:
    """The tool that is called, which is told; or the result, if there is nothing to call."""
    if request.id in run.calls.results:
        return run.calls.results[request.id]
    returned = run.calls.returned.get(request.id)
    if returned is not None:
        return _result(request, returned.outcome, returned.message_id)
    tool = _sound_tool(run, request)
    if isinstance(tool, str):
        return _result(request, {"error": tool})
    # One that somebody allowed is only started if nobody else has done so since.
    anyway = tool.replay == "safe" and request.id not in run.calls.decided
    known = None if anyway else run.calls.starts[request.id]
    run.tell(ToolStarted, message=request, start=CallStart(request.id, known))
    run.progress.tool_calls += 1
    return tool


async def _stop(tasks: list[Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await gather(*tasks, return_exceptions=True)


def _waits(run: Run, request: Message) -> bool:
    """Return whether a person has to allow this request first; if so, that is told."""
    tool, calls = run.request.tools.get(_request(request).function or ""), run.calls
    if tool is None or "problem" in request.metadata:
        return False
    if request.id in calls.decided or calls.has_result(request.id):
        return False
    if calls.may_have_run(request.id):
        asks = tool.replay == "ask" or (tool.replay == "safe" and tool.needs_approval)
    else:
        asks = tool.needs_approval
    if asks:
        run.tell(ApprovalRequired, message=request, starts=calls.starts[request.id])
    return asks


async def _call(group: _Group, request: Message, tool: Tool | Message) -> None:
    if isinstance(tool, Message):
        group.results[request.id] = tool
        return
    await group.run.settle()
    if request.id in group.run.journal.refused:
        group.refuse(request)
        return
    group.ran.add(request.id)
    arguments = _request(request).arguments
    try:
        outcome = await tool.run(arguments or {}, _context(group.run, request))
        failpoints.reach(f"tool.after: {tool.name}")
    except CancelledError:
        if not group.run.suspending:  # then whoever goes on does as the tool's `replay` says
            group.results[request.id] = _result(request, {"error": CANCELLED})
        raise
    failed = outcome.error is not None
    told = {"error": outcome.error} if failed else {"result": outcome.value}
    group.take(request, _result(request, told))


def _context(run: Run, request: Message) -> ToolContext:
    return ToolContext(
        call_id=_request(request).call_id or str(request.id),
        idempotency_key=str(request.id),
        session_id=run.request.session.id,
        branch=run.request.branch.name,
    )


def _sound_tool(run: Run, request: Message) -> Tool | str:
    """The tool a request asks for, or why it cannot be called."""
    problem = request.metadata.get("problem")
    if problem:
        return f"Not run: {problem}. Ask again with the whole call."
    name = _request(request).function or ""
    tool = run.request.tools.get(name)
    again = run.calls.may_have_run(request.id)
    before = INTERRUPTED if request.id in run.calls.started else STARTED_ELSEWHERE
    if again and (tool is None or tool.replay == "never"):
        return before
    if tool is None:
        return f"Not run: there is no tool {name!r}; there are {sorted(run.request.tools)}."
    decision = run.calls.decided.get(request.id)
    if decision is not None and not decision.approved:
        denied = f"{before} Not run again: denied." if again else "Not run: denied."
        return f"{denied} {decision.reason}".rstrip()
    return tool


def _result(request: Message, outcome: Mapping[str, Any], id: UUID | None = None) -> Message:
    content = _request(request)
    told = ActionResponseContent(request_id=content.call_id or str(request.id), **outcome)
    return Message(told, id=id, sender=content.function or None)


def _answer(run: Run, request: Message, result: Message) -> None:
    run.tell(ToolCompleted, new=result)
    run.progress.pending.remove(request)
    run.progress.answered = False


def _request(message: Message) -> ActionRequestContent:
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content
