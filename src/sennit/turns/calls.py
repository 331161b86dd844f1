"""Tool calls as the journal of their branch records them.

A run that finds a call without a result has to know whether an earlier run started it, and which
approvals still count. One approval allows one start: a decision, and the question it answers, are
void as soon as the call is started. The run that left the call behind need not be the last one, so
the journal is read back to where the model asked for the call, on a fork also that of the branch it
was forked from. A removed branch takes its journal with it; what was asked for there counts as
started.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.runs import BranchRuns
from sennit.turns.events import (
    AnyEvent,
    ApprovalGiven,
    ApprovalNeeded,
    ToolCalled,
    ToolReturned,
    ToolStarted,
    from_record,
)


@dataclass(slots=True)
class Calls:
    """The state of tool calls, by the id of the request."""

    called: set[UUID] = field(default_factory=set[UUID])
    """Calls whose whole record was read, from the moment the model asked for them."""
    started: set[UUID] = field(default_factory=set[UUID])
    """Calls that were started at least once."""
    started_above: set[UUID] = field(default_factory=set[UUID])
    """Calls that were, or may have been, started on a branch from which this one was forked."""
    returned: dict[UUID, ToolReturned] = field(default_factory=dict[UUID, ToolReturned])
    """Results that are known and may not be on the branch yet."""
    asked: set[UUID] = field(default_factory=set[UUID])
    """Calls a person was asked about since their last start."""
    decided: dict[UUID, ApprovalGiven] = field(default_factory=dict[UUID, ApprovalGiven])
    """Decisions made since the last start of the call."""

    def take(self, event: AnyEvent) -> None:
        """Take in the next event of the journal."""
        match event:
            case ToolCalled():
                self.called.add(event.message.id)
            case ToolStarted():
                request = event.message.id
                self.started.add(request)
                self.asked.discard(request)
                self.decided.pop(request, None)
            case ToolReturned():
                self.returned[event.request_id] = event
            case ApprovalNeeded():
                self.asked.add(event.message.id)
            case ApprovalGiven():
                self.decided[event.message.id] = event
            case _:
                pass

    def undecided(self, request: UUID) -> bool:
        """Whether a decision about a call would count.

        After an interrupted start a person has to be asked again first: an approval sent twice
        must not allow a second start.
        """
        if request in self.decided or request in self.returned:
            return False
        return request in self.asked or not self.may_have_run(request)

    def may_have_run(self, request: UUID) -> bool:
        """Whether a call was started before, here or on a branch from which this one was forked."""
        return request in self.started or request in self.started_above

    async def complete(self, runs: BranchRuns, requests: Iterable[Message]) -> None:
        """Read the journal of earlier runs for those of the requests that are not known yet."""
        if unknown := self._unknown(requests):
            found = await to_thread(_read, runs, unknown) if runs.durable else _read(runs, unknown)
            self._add(found, unknown)

    def complete_now(self, runs: BranchRuns, requests: Iterable[Message]) -> None:
        """Do the same as `complete`, without an event loop."""
        if unknown := self._unknown(requests):
            self._add(_read(runs, unknown), unknown)

    def _unknown(self, requests: Iterable[Message]) -> set[UUID]:
        return {one.id for one in requests} - self.called

    def _add(self, found: Calls, unknown: set[UUID]) -> None:
        self.called |= unknown
        self.started |= found.started
        self.started_above |= found.started_above
        self.returned |= found.returned
        self.asked |= found.asked
        self.decided |= found.decided


def _read(runs: BranchRuns, wanted: set[UUID]) -> Calls:
    """The calls as the journal of the branch records them, read from as late as possible."""
    starts = [loads(one.body).get("after", 0) for one in runs.runs()]
    count = 2
    while True:
        after = starts[count - 1] if count < len(starts) else 0
        found = _read_after(runs, wanted, after)
        missing = wanted - found.called
        if not missing:
            return found
        if after == 0:
            found.started_above = _started_above(runs.branch, missing)
            return found
        count *= 4


def _started_above(branch: Branch, wanted: set[UUID]) -> set[UUID]:
    origin = branch.forked_from
    if origin is None:
        return set()
    parent = branch.session.get_branch(origin.branch_id, None)
    if parent is None:  # its journal is gone, and nobody can know
        own = set(branch[origin.message_count :])
        return wanted - own
    found = _read(BranchRuns(parent), wanted)
    return found.started | found.started_above


def _read_after(runs: BranchRuns, wanted: set[UUID], after: int) -> Calls:
    found = Calls()
    for record in runs.all_events(after):
        if record.message in wanted or loads(record.body)[0] == ToolReturned.kind:
            found.take(from_record(record, runs.message))
    return found
