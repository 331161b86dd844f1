"""Calling the tools a model has asked for.

Each request gets exactly one result on the branch, in the order of the requests. What cannot be run
(an unknown tool, arguments that do not parse, a call cut off) is answered with what was wrong, so
that the model may try again. That a tool is about to be called is durable before it is called.
"""

from __future__ import annotations

from asyncio import gather
from typing import Any

from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.services.target import ToolContext
from sennit.services.tools import Outcome, Tool
from sennit.turns.events import ApprovalNeeded, ToolFinished, ToolStarted
from sennit.turns.run import Run


async def drain(run: Run, requests: tuple[Message, ...]) -> None:
    """Work off pending requests, together where the options allow it."""
    run.progress.passes += 1
    ready = [one for one in requests if not _waits(run, one)]
    if run.options.allow_parallel_tools:
        outcomes = await gather(*(_call(run, request) for request in ready))
        for request, outcome in zip(ready, outcomes, strict=True):
            _answer(run, request, outcome)
    else:
        for request in ready:
            _answer(run, request, await _call(run, request))
    run.progress.waiting = bool(run.progress.pending)


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


async def _call(run: Run, request: Message) -> Outcome:
    tool = _sound_tool(run, request)
    if isinstance(tool, str):
        return Outcome(error=tool, ran=False)
    content = _request(request)
    run.tell(ToolStarted, message=request)
    run.progress.tool_calls += 1
    await run.settle()
    context = ToolContext(
        call_id=content.call_id or str(request.id),
        idempotency_key=str(request.id),
        session_id=run.request.session.id,
        branch=run.request.branch.name,
    )
    arguments = {} if content.arguments is Unset else content.arguments
    return await tool.run(arguments, context)


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
