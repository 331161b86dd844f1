"""Interrupted answers: the text and tool calls that a killed process left, to resume.

Everything is read from the journal of the branch. A started call may have taken effect, so the user
is warned before it could run a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from msgspec.structs import replace

from sennit.cli.text import call_text
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import PutRun
from sennit.turns.branch_lease import hold_lease, new_holder
from sennit.turns.recovery import find_unfinished_run
from sennit.turns.subscription import has_active_run
from sennit.turns.tools.call_state import ToolCallStates
from sennit.turns.tools.pending_calls import call_id_of, pending_calls


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """A tool call of an interrupted answer that has no result on the branch."""

    call: str
    state: str
    """The state of the call, as a predicate that follows its text."""
    on_resume: str
    """The effect of /resume on the call, as a predicate."""
    uncertain: bool
    """Whether it may have taken effect."""


@dataclass(frozen=True, slots=True)
class InterruptedAnswer:
    """The last answer of a branch, whose run did not end."""

    text: str
    """The streamed text that is not on the branch."""
    calls: tuple[InterruptedCall, ...]
    elsewhere: bool
    """Whether another process may still be running it."""

    @property
    def reports(self) -> list[str]:
        """Sentences that describe the interruption."""
        if self.elsewhere:
            return [
                "Another process is answering on this branch; /resume takes over once it has ended."
            ]
        cut = "The answer was interrupted" if self.text else "The answer was interrupted here"
        return [
            f"{cut}: the program ended.",
            *(f"{call.call} {call.state}." for call in self.calls),
        ]

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The user's options, each with its effect; none while another process answers."""
        if self.elsewhere:
            return []
        return [
            *(("resume", effect) for effect in self._effects_of_resume),
            ("discard", "removes the answer and gives you your message back to edit"),
            ("later", f"leaves it as it is{self._later_hint}"),
        ]

    @property
    def _effects_of_resume(self) -> list[str]:
        if not self.calls:
            return [f"{'discards this text and ' if self.text else ''}asks the model again"]
        several = len(self.calls) > 1
        return [f"{call.on_resume}{f': {call.call}' if several else ''}" for call in self.calls]

    @property
    def _later_hint(self) -> str:
        if any(call.uncertain for call in self.calls):
            return "; /retry asks the model again on a fork, which may repeat the call"
        return "; a new message keeps it" if self.text and not self.calls else ""


def interrupted_answer(branch: Branch, tools: Iterable[Tool]) -> InterruptedAnswer | None:
    """Return the last answer of a branch if its run did not end, else None."""
    runs = RunRepository(branch)
    run = find_unfinished_run(runs)
    if run is None:
        return None
    if has_active_run(runs):
        return InterruptedAnswer("", (), elsewhere=True)
    requests = pending_calls(branch)
    run.calls.complete_now(runs, requests)
    by_name = {tool.name: tool for tool in tools}
    text = "".join("".join(draft.text) for draft in run.drafts.values())
    calls = tuple(_interrupted_call(request, by_name, run.calls) for request in requests)
    return InterruptedAnswer(text, calls, elsewhere=False)


async def end_interrupted_run(branch: Branch) -> None:
    """Mark the last run of a branch as ended, if it is not; its unfinished text is dropped."""
    runs = RunRepository(branch)
    async with hold_lease(runs, new_holder(brief=True)) as branch_lease:
        if (run := branch_lease.unfinished_run) is not None:
            ended = PutRun(replace(run.record, state="ended"), branch_lease.lease.token)
            await runs.write((), (ended,))


def started_calls(branch: Branch, messages: Iterable[Message]) -> list[str]:
    """Return the texts of the tool calls among `messages` that were started."""
    requests = [
        message for message in messages if isinstance(message.content, ActionRequestContent)
    ]
    starts = RunRepository(branch).starts([request.id for request in requests])
    return [call_text(tool_call(request)) for request in requests if request.id in starts]


def was_started_before(branch: Branch, call: Message) -> bool:
    """Return whether this call, or one of the same tool with the same arguments, was started.

    Calls on the branches from which this one was forked count too. A call that has returned on this
    branch does not: the model has seen its result and wants a second one.
    """
    wanted = tool_call(call)
    same = (wanted.function, wanted.arguments)
    ancestors = (branch.session.get_branch(fork.branch_id, None) for fork in branch.lineage())
    requests = {
        message.id: message
        for source in (branch, *ancestors)
        for message in ([] if source is None else source.messages)
        if isinstance(content := message.content, ActionRequestContent)
        and (content.function, content.arguments) == same
    }
    returned = _returned_calls(branch.messages)
    unsettled = [message for uid, message in requests.items() if uid not in returned]
    return bool(started_calls(branch, unsettled))


def _returned_calls(messages: Iterable[Message]) -> set[UUID]:
    """Return the requests with a result that is no error; ids of calls may recur."""
    latest: dict[str, UUID] = {}
    returned: set[UUID] = set()
    for message in messages:
        content = message.content
        if isinstance(content, ActionRequestContent):
            latest[call_id_of(message)] = latest[str(message.id)] = message.id
        elif isinstance(content, ActionResponseContent) and not content.error:
            request = latest.get(content.request_id or "")
            returned |= set() if request is None else {request}
    return returned


def tool_call(message: Message) -> ActionRequestContent:
    """Return the tool call in a message."""
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content


def _interrupted_call(
    request: Message, tools: Mapping[str, Tool], calls: ToolCallStates
) -> InterruptedCall:
    tool, decision = tools.get(tool_call(request).function or ""), calls.decided.get(request.id)
    may_have_run = calls.may_have_run(request.id)
    uncertain = may_have_run and request.id not in calls.returned
    if request.id in calls.returned:
        state, on_resume = "has run, and its result is known", "continues with the result"
    elif may_have_run:
        state = "was running when the program ended: it may or may not have taken effect"
        on_resume = _resume_effect(tool, allowed=decision is not None and decision.approved)
    elif tool is None:
        state, on_resume = "has not run", "tells the model that this chat has no such tool"
    elif decision is not None:
        state = "was approved and has not run" if decision.approved else "was denied"
        on_resume = "runs the call now" if decision.approved else "tells the model so"
    else:
        state = "has not run"
        on_resume = "asks you about the call" if tool.needs_approval else "runs the call now"
    return InterruptedCall(call_text(tool_call(request)), state, on_resume, uncertain)


def _resume_effect(tool: Tool | None, *, allowed: bool) -> str:
    """Return the effect of /resume on a call that was started, as a predicate."""
    if tool is None or tool.replay == "never":
        return "does not repeat the call; the model is told that it was interrupted"
    if not allowed and (tool.replay == "ask" or tool.needs_approval):
        return "asks you whether to repeat the call"
    return "repeats the call"
