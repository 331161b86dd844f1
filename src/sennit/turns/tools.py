"""Calling the tools a model has asked for.

Each request gets exactly one result on the branch, in the order of the requests. What cannot be run
(an unknown tool, arguments that do not parse, a call cut off) is answered with what was wrong, so
that the model may try again. That a tool is about to be called is durable before it is called.

A call that a cancel stops half-way has its result too: nobody knows what it did, and the next run
must not do it again. Calls that were never begun stay pending.
"""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, gather
from typing import Any
from uuid import UUID

from sennit import failpoints
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.services.target import ToolContext
from sennit.services.tools import Outcome, Tool
from sennit.turns.events import ApprovalNeeded, ToolFinished, ToolStarted
from sennit.turns.run import Run

CANCELLED = "Cancelled: this was stopped while it ran; whether it took effect is unknown."


async def drain(run: Run, requests: tuple[Message, ...]) -> None:
    """Work off pending requests, together where the options allow it."""
    run.progress.passes += 1
    ready = [one for one in requests if not _waits(run, one)]
    for some in [ready] if run.options.allow_parallel_tools else [[one] for one in ready]:
        await _call_together(run, some)
    run.progress.waiting = bool(run.progress.pending)


async def _call_together(run: Run, requests: list[Message]) -> None:
    """Call tools at once; each result is told as soon as those before it have been."""
    outcomes: dict[UUID, Outcome] = {}
    begun = [_begin(run, request) for request in requests]
    tasks = [
        create_task(_call(run, request, tool, outcomes))
        for request, tool in zip(requests, begun, strict=True)
    ]
    try:
        for request, task in zip(requests, tasks, strict=True):
            await task
            _answer(run, request, outcomes.pop(request.id))
    except BaseException:
        await _stop(tasks)
        for request in requests:
            if request.id in outcomes:
                _answer(run, request, outcomes[request.id])
        raise


def _begin(run: Run, request: Message) -> Tool | str:
    """The tool that is called, which is told, or why none is."""
    tool = _sound_tool(run, request)
    if not isinstance(tool, str):
        run.tell(ToolStarted, message=request)
        run.progress.tool_calls += 1
    return tool


async def _stop(tasks: list[Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await gather(*tasks, return_exceptions=True)


def _waits(run: Run, request: Message) -> bool:
    """Whether a person has to allow this request first; if so, that is told."""
    tool = run.request.tools.get(_request(request).function or "")
    if tool is None or "problem" in request.metadata or request.id in run.decided:
        return False
    again = request.id in run.started and tool.replay == "ask"
    if not (tool.needs_approval or again):
        return False
    run.tell(ApprovalNeeded, message=request)
    return True


async def _call(
    run: Run, request: Message, tool: Tool | str, outcomes: dict[UUID, Outcome]
) -> None:
    if isinstance(tool, str):
        outcomes[request.id] = Outcome(error=tool, ran=False)
        return
    await run.settle()
    content = _request(request)
    context = ToolContext(
        call_id=content.call_id or str(request.id),
        idempotency_key=str(request.id),
        session_id=run.request.session.id,
        branch=run.request.branch.name,
    )
    arguments = {} if content.arguments is Unset else content.arguments
    try:
        outcome = await tool.run(arguments, context)
        failpoints.reach(f"tool.after: {tool.name}")
        outcomes[request.id] = outcome
    except CancelledError:
        if not run.suspending:  # then whoever goes on with it does as the tool's `replay` says
            outcomes[request.id] = Outcome(error=CANCELLED)
        raise


def _sound_tool(run: Run, request: Message) -> Tool | str:
    """The tool a request asks for, or why it cannot be called."""
    problem = request.metadata.get("problem")
    if problem:
        return f"Not run: {problem}. Ask again with the whole call."
    name = _request(request).function or ""
    tool = run.request.tools.get(name)
    if tool is None:
        return f"Not run: there is no tool {name!r}; there are {sorted(run.request.tools)}."
    decision = run.decided.get(request.id)
    if decision is not None and not decision.approved:
        return f"Not run: denied. {decision.reason}".rstrip()
    if request.id in run.started and tool.replay == "never" and decision is None:
        return "Interrupted: the program ended while this ran; whether it took effect is unknown."
    return tool


def _answer(run: Run, request: Message, outcome: Outcome) -> None:
    content = _request(request)
    result: dict[str, Any] = (
        {"error": outcome.error} if outcome.error is not None else {"result": outcome.value}
    )
    response = ActionResponseContent(request_id=content.call_id or str(request.id), **result)
    run.tell(ToolFinished, new=Message(response, sender=content.function or None))
    run.progress.pending.remove(request)
    run.progress.answered = False


def _request(message: Message) -> ActionRequestContent:
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content
