"""Runs, events and leases in memory, also for sessions without a store.

Both follow the rules every store follows: only the holder of a branch's last lease writes, what is
repeated changes nothing, and what speaks of an erased message goes with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

import msgspec

from sennit.errors import ConflictError, NotFoundError
from sennit.stores import leases
from sennit.stores.records.sessions import (
    AddEvents,
    EventRecord,
    JournalRecord,
    Lease,
    PutRun,
    RunRecord,
)

_seq = attrgetter("seq")


@dataclass(slots=True)
class RunLog:
    """The runs, events and leases of one session."""

    runs: dict[UUID, dict[UUID, RunRecord]] = field(
        default_factory=dict[UUID, dict[UUID, RunRecord]]
    )
    """By branch, the oldest first."""
    events: dict[UUID, list[EventRecord]] = field(default_factory=dict[UUID, list[EventRecord]])
    """By branch, in order."""
    leases: dict[UUID, Lease] = field(default_factory=dict[UUID, Lease])
    starts: dict[UUID, int] = field(default_factory=dict[UUID, int])
    """How often tool calls were started, on whichever branch, by the messages that ask for them."""

    def acquire(self, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take a branch's lease; raises ConflictError if someone else has it."""
        lease = leases.taken(self.leases.get(branch), branch, holder, ttl, leases.ticks())
        self.leases[branch] = lease
        return lease

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""
        renewed = leases.renewed(self.leases.get(lease.branch), lease, ttl, leases.ticks())
        self.leases[lease.branch] = renewed
        return renewed

    def release(self, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""
        if leases.is_held(self.leases.get(lease.branch), lease):
            self.leases[lease.branch] = leases.ended(lease)

    def check(self, changes: Iterable[PutRun | AddEvents]) -> None:
        """Raise ConflictError or NotFoundError unless all of these may be made."""
        noted: set[tuple[UUID, UUID]] = set()
        for change in changes:
            branch = change.run.branch if isinstance(change, PutRun) else change.branch
            last = self.leases.get(branch)
            if last is None or last.token != change.token:
                raise lost_lease(branch)
            if isinstance(change, PutRun):
                noted.add((branch, change.run.id))
                continue
            new = self._new(change)
            for start in change.starts if new else ():
                if start.known not in (None, self.starts.get(start.message, 0)):
                    raise started_elsewhere(start.message)
            for event in new:
                known = event.run in self.runs.get(branch, {}) or (branch, event.run) in noted
                if not known:
                    raise no_run(event.run)

    def apply(self, change: PutRun | AddEvents) -> None:
        """Make a change that was checked."""
        if isinstance(change, PutRun):
            self.runs.setdefault(change.run.branch, {})[change.run.id] = change.run
            if change.release:
                self.release(self.leases[change.run.branch])
        elif new := self._new(change):
            self.events.setdefault(change.branch, []).extend(new)
            for start in change.starts:
                self.starts[start.message] = self.starts.get(start.message, 0) + 1

    def _new(self, change: AddEvents) -> list[EventRecord]:
        told, branch = change.events, change.branch

        def there() -> list[EventRecord]:
            return self.after(branch, min(event.seq for event in told) - 1)

        return new_events(change, self.last_seq(branch), there)

    def after(self, branch: UUID, seq: int) -> list[EventRecord]:
        """The events of a branch past a number."""
        found = self.events.get(branch, [])
        return found[bisect_right(found, seq, key=_seq) :]

    def last_seq(self, branch: UUID) -> int:
        """The number of a branch's last event; 0 if there is none."""
        found = self.events.get(branch)
        return found[-1].seq if found else 0

    def last_of(self, branch: UUID) -> RunRecord | None:
        """The newest run of a branch."""
        return next(reversed(self.runs.get(branch, {}).values()), None)

    def last_runs(self) -> dict[UUID, RunRecord]:
        """Find the newest run of each branch that has any."""
        found = {branch: self.last_of(branch) for branch in self.runs}
        return {branch: run for branch, run in found.items() if run is not None}

    def of_branch(self, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first."""
        return list(reversed(self.runs.get(branch, {}).values()))

    def journals(self) -> list[JournalRecord]:
        """All that is noted, by branch."""
        return [
            JournalRecord(branch, list(runs.values()), list(self.events.get(branch, ())))
            for branch, runs in self.runs.items()
        ]

    def forget_message(self, message: UUID) -> None:
        """Erase what speaks of a message."""
        self.starts.pop(message, None)
        for branch, events in self.events.items():
            self.events[branch] = [event for event in events if event.message != message]

    def forget_naming(self, named: bytes) -> None:
        """Erase what holds these bytes."""
        for branch, events in self.events.items():
            self.events[branch] = [event for event in events if named not in event.body]

    def rename(self, old: bytes, new: bytes) -> None:
        """Put other bytes in place of these."""
        for branch, events in self.events.items():
            self.events[branch] = [
                msgspec.structs.replace(event, body=event.body.replace(old, new))
                for event in events
            ]

    def forget_branch(self, branch: UUID) -> None:
        """Erase what happened on a branch."""
        for kept in (self.events, self.leases, self.runs):
            kept.pop(branch, None)


def new_events(
    change: AddEvents, last: int, there: Callable[[], Iterable[EventRecord]]
) -> list[EventRecord]:
    """Those of a change that come past the `last` event of the branch, in order.

    `there` gives what is stored from the first of them on. An earlier one has to be among that, or
    was erased and stays so. Raises ConflictError for one that is another there.
    """
    if all(event.seq == seq for seq, event in enumerate(change.events, last + 1)):
        return list(change.events)  # as nearly always
    if any(event.seq <= last for event in change.events):
        stored = {one.seq: one for one in there()}
        for event in change.events:
            if stored.get(event.seq, event) != event:
                raise other_event(change.branch, event.seq)
    new: dict[int, EventRecord] = {}
    for event in change.events:
        if event.seq > last and new.setdefault(event.seq, event) != event:
            raise other_event(change.branch, event.seq)
    return [new[seq] for seq in sorted(new)]


def lost_lease(branch: UUID) -> ConflictError:
    """The error for a writer whose lease another one has taken."""
    return ConflictError(
        f"The lease of branch {branch} was lost: another run has taken it. Nothing was written."
    )


def started_elsewhere(message: UUID) -> ConflictError:
    """The error for a tool call that was started more often than its writer knows."""
    return ConflictError(
        f"Another process has started the tool call of message {message}, on this branch or "
        f"another one. Nothing was written; read its starts and decide again.",
        call=message,
    )


def other_event(branch: UUID, seq: int) -> ConflictError:
    """The error for an event whose number another one has."""
    return ConflictError(f"Event {seq} of branch {branch} already exists with a different content.")


def no_run(run: UUID) -> NotFoundError:
    """The error for an event of a run that was never noted on its branch."""
    return NotFoundError(f"There is no run {run} on this branch; store it first with PutRun.")
