"""Interrupted answers: the text and tool calls that a killed program left, for /resume.

Everything is read from the journal of the branch. A call that was started has perhaps taken effect:
whoever could make it a second time is told so first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sennit.cli.text import call_text
from sennit.messages.content import ActionRequestContent
from sennit.messages.message import Message
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.recovery import unfinished
from sennit.turns.subscription import is_under_way
from sennit.turns.tools.call_state import ToolCallStates
from sennit.turns.tools.pending_calls import pending


@dataclass(frozen=True, slots=True)
class InterruptedCall:
    """A tool call of an interrupted answer that has no result on the branch."""

    call: str
    state: str
    """What is known of it, as a sentence without its subject."""
    on_resume: str
    """What /resume does about it, likewise."""
    uncertain: bool
    """Whether it may have taken effect."""


@dataclass(frozen=True, slots=True)
class InterruptedAnswer:
    """An answer that did not come to its end."""

    text: str
    """The words that were shown and are not on the branch."""
    calls: tuple[InterruptedCall, ...]
    elsewhere: bool
    """Whether another program may still be at it."""

    @property
    def reports(self) -> list[str]:
        """Sentences on what has happened."""
        if self.elsewhere:
            return [
                "Another process is answering on this branch; /resume takes over once it has ended."
            ]
        cut = "The answer was interrupted" if self.text else "The answer was interrupted here"
        return [f"{cut}: the program ended.", *(f"{one.call} {one.state}." for one in self.calls)]

    @property
    def choices(self) -> list[str]:
        """Sentences on what can be done now."""
        if self.elsewhere:
            return []
        if not self.calls:
            dropped = "discards this text and " if self.text else ""
            return [f"/resume {dropped}asks the model again; a new message keeps it as it is."]
        several = len(self.calls) > 1
        resumed = [
            f"/resume {one.on_resume}{f': {one.call}' if several else ''}." for one in self.calls
        ]
        if any(one.uncertain for one in self.calls):
            resumed.append("/retry asks the model again on a fork, which may repeat the call.")
        return resumed


def interrupted(branch: Branch, tools: Iterable[Tool]) -> InterruptedAnswer | None:
    """Return what is left of the last answer of a branch, if it did not come to its end."""
    runs = RunRepository(branch)
    left = unfinished(runs)
    if left is None:
        return None
    if is_under_way(runs):
        return InterruptedAnswer("", (), elsewhere=True)
    requests = pending(branch)
    left.calls.complete_now(runs, requests)
    known = {tool.name: tool for tool in tools}
    text = "".join("".join(draft.text) for draft in left.drafts.values())
    return InterruptedAnswer(text, tuple(_call(one, known, left.calls) for one in requests), False)


def started(branch: Branch, messages: Iterable[Message]) -> list[str]:
    """Return the tool calls among some messages that were started, so may have taken effect."""
    requests = [one for one in messages if isinstance(one.content, ActionRequestContent)]
    starts = RunRepository(branch).starts([one.id for one in requests])
    return [call_text(called(one)) for one in requests if one.id in starts]


def started_before(branch: Branch, call: Message) -> bool:
    """Tell if a call, or another of the same tool with the same arguments, was started before.

    Also those on branches from which this one was forked count.
    """
    wanted = called(call)
    same = (wanted.function, wanted.arguments)
    above = (branch.session.get_branch(one.branch_id, None) for one in branch.lineage())
    requests = {
        message.id: message
        for one in (branch, *above)
        for message in ([] if one is None else one.messages)
        if isinstance(content := message.content, ActionRequestContent)
        and (content.function, content.arguments) == same
    }
    return bool(started(branch, requests.values()))


def called(message: Message) -> ActionRequestContent:
    """Return the call that a message asks for."""
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content


def _call(request: Message, tools: Mapping[str, Tool], calls: ToolCallStates) -> InterruptedCall:
    tool, decision = tools.get(called(request).function or ""), calls.decided.get(request.id)
    again = calls.may_have_run(request.id)
    uncertain = again and request.id not in calls.returned
    if request.id in calls.returned:
        state, resumed = "has run, and its result is known", "continues with the result"
    elif again:
        state = "was running when the program ended: it may or may not have taken effect"
        resumed = _again(tool, allowed=decision is not None and decision.approved)
    elif tool is None:
        state, resumed = "has not run", "tells the model that this chat has no such tool"
    elif decision is not None:
        state = "was approved and has not run" if decision.approved else "was denied"
        resumed = "runs the call now" if decision.approved else "tells the model so"
    else:
        state = "has not run"
        resumed = "asks you about the call" if tool.needs_approval else "runs the call now"
    return InterruptedCall(call_text(called(request)), state, resumed, uncertain)


def _again(tool: Tool | None, *, allowed: bool) -> str:
    """Say what /resume does about a call that was started."""
    if tool is None or tool.replay == "never":
        return "does not repeat the call; the model is told that it was interrupted"
    if not allowed and (tool.replay == "ask" or tool.needs_approval):
        return "asks you whether to repeat the call"
    return "repeats the call"
