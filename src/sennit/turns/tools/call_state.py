"""The state of tool calls, read from the journal.

A run that finds a call without a result has to know whether an earlier run started it, and which
approvals still count. One approval allows one start: a decision, and the request for it, are void
as soon as the call starts. The run that left the call need not be the last one, so the journal is
read back to where the model made the call.

A call is one side effect, even if its request is on several branches. So the store counts its
starts on all branches together, and a branch without the result of a call that another branch has
started takes over that result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from uuid import UUID

import msgspec

from sennit.ids import new_id
from sennit.messages.codec import loads
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.events import (
    AnyEvent,
    ApprovalDecided,
    ApprovalRequired,
    ToolCalled,
    ToolResultBuffered,
    ToolStarted,
    from_record,
    is_stored_as,
)
from sennit.turns.result import SPECIAL_TURN_KEY


class ToolCallStates(msgspec.Struct):
    """The state of tool calls, by the id of the request."""

    called: set[UUID] = set()
    """Calls whose whole record was read, from the model's request on."""
    started: set[UUID] = set()
    """Calls that were started at least once on this branch."""
    starts: dict[UUID, int] = {}
    """The number of starts of each call, on any branch."""
    results: dict[UUID, Message] = {}
    """Results that are on another branch."""
    returned: dict[UUID, ToolResultBuffered] = {}
    """Results that are recorded, but may not be on the branch yet."""
    asked: dict[UUID, int] = {}
    """Calls that approval was asked for since their last start, with the number of starts then."""
    decided: dict[UUID, ApprovalDecided] = {}
    """Decisions since the last start of the call."""

    def apply(self, event: AnyEvent) -> None:
        """Apply the next event of the journal."""
        match event:
            case ToolCalled():
                self.called.add(event.message.id)
            case ToolStarted():
                request = event.message.id
                self.started.add(request)
                self.asked.pop(request, None)
                self.decided.pop(request, None)
            case ToolResultBuffered():
                self.returned[event.request_id] = event
            case ApprovalRequired():
                self.asked[event.message.id] = event.starts
            case ApprovalDecided():
                self.decided[event.message.id] = event
            case _:
                pass

    def undecided(self, request: UUID) -> bool:
        """Return whether a decision about a call would count.

        After an interrupted start approval has to be asked for again: an approval sent twice must
        not allow a second start.
        """
        if request in self.decided or self.has_result(request):
            return False
        return request in self.asked or not self.may_have_run(request)

    def may_have_run(self, request: UUID) -> bool:
        """Return whether a call was started before, on this branch or another one."""
        return self.starts.get(request, 0) > 0

    def has_result(self, request: UUID) -> bool:
        """Return whether the result of a call is recorded, even if it is not on the branch yet."""
        return request in self.returned or request in self.results

    def add_new(self, request: UUID) -> None:
        """Add a call that the model has just made, which cannot have been started."""
        self.called.add(request)
        self.starts[request] = 0

    def forget_starts(self, request: UUID) -> None:
        """Forget the starts of a call; `complete` reads them again."""
        del self.starts[request]

    async def complete(self, runs: RunRepository, requests: Iterable[Message]) -> None:
        """Read the recorded state of the requests that are not known yet."""
        unknown = [request for request in requests if request.id not in self.starts]
        if unknown:
            await runs.read(partial(self.complete_now, runs, unknown))

    def complete_now(self, runs: RunRepository, requests: Iterable[Message]) -> None:
        """Do the same as `complete` without an event loop."""
        unknown = {request.id: request for request in requests if request.id not in self.starts}
        if unread := unknown.keys() - self.called:
            self._merge(_read_states(runs, unread))
            self.called |= unread
        counts = runs.starts(list(unknown))
        if any(uid not in self.returned for uid in counts):
            runs.refresh()  # for results on other branches
        for uid, request in unknown.items():
            starts = self.starts[uid] = counts.get(uid, 0)
            if uid in self.decided and self.decided[uid].starts < starts:
                del self.decided[uid]
            if self.asked.get(uid, starts) < starts:
                del self.asked[uid]
            if starts and uid not in self.returned:
                self._find_result_elsewhere(runs.branch, request)

    def _find_result_elsewhere(self, branch: Branch, request: Message) -> None:
        """Take over the result of a started call from another branch, if it is there."""
        other_branches = (other for other in branch.session.branches if other is not branch)
        holding = [other for other in other_branches if request.id in other]
        for other in holding:
            if (result := _result_on(other, request)) is not None:
                self.results[request.id] = result
                return
        for other in holding:
            buffered = _read_states(RunRepository(other), {request.id}).returned.get(request.id)
            if buffered is not None:  # with a new id, as the other branch uses that one
                self.returned[request.id] = replace(buffered, message_id=new_id())
                return

    def _merge(self, states: ToolCallStates) -> None:
        self.started |= states.started
        self.returned |= states.returned
        self.asked |= states.asked
        self.decided |= states.decided


def _result_on(branch: Branch, request: Message) -> Message | None:
    """Return the result of a call, which is after its request and before a new instruction."""
    content = request.content
    assert isinstance(content, ActionRequestContent)
    call_ids = {content.call_id or str(request.id), str(request.id)}
    start, size = branch.index(request.id) + 1, 4
    while start < len(branch):
        for message in branch.session.messages.pick(branch[start : start + size]):
            result = message.content
            is_result = isinstance(result, ActionResponseContent) and result.request_id in call_ids
            if is_result and SPECIAL_TURN_KEY not in message.metadata:
                return message
            if starts_new_turn(message):
                return None
        start, size = start + size, size * 2
    return None


def starts_new_turn(message: Message) -> bool:
    """Return whether a message is a new instruction, after which older calls are abandoned.

    An instruction of a special turn does not count.
    """
    content = message.content
    return content.from_user and not content.empty and SPECIAL_TURN_KEY not in message.metadata


def _read_states(runs: RunRepository, wanted: set[UUID]) -> ToolCallStates:
    """Return the calls as recorded in the journal of the branch, reading as little as possible."""
    starts = [loads(run.body).get("after", 0) for run in runs.runs()]
    count = 2
    while True:
        after = starts[count - 1] if count < len(starts) else 0
        states = _read_states_after(runs, wanted, after)
        missing = wanted - states.called
        if not missing or after == 0:
            return states
        count *= 4


def _read_states_after(runs: RunRepository, wanted: set[UUID], after: int) -> ToolCallStates:
    states = ToolCallStates()
    for record in runs.all_events(after):
        if record.message in wanted or is_stored_as(record, ToolResultBuffered):
            states.apply(from_record(record, runs.message))
    return states
