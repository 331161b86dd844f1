"""Runs, events and leases in memory, also for sessions without a store.

The rules of every store apply: only the holder of a branch's last lease writes, repeated writes
change nothing, and events about an erased message are erased with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

import msgspec

from sennit.stores import leases
from sennit.stores.records.sessions import (
    AddEvents,
    EventRecord,
    JournalRecord,
    Lease,
    PutRun,
    RunRecord,
)
from sennit.stores.run_rules import lost_lease, new_events, no_run, started_elsewhere

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
    """The number of starts of tool calls on any branch, by request message."""

    def acquire(self, branch: UUID, holder: str, ttl: int) -> Lease:
        """Acquire a branch's lease; raises ConflictError if another holder has it."""
        lease = leases.next_lease(
            self.leases.get(branch), branch, holder, ttl, leases.monotonic_us()
        )
        self.leases[branch] = lease
        return lease

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Extend a lease; raises ConflictError if it was lost."""
        renewed = leases.extend(self.leases.get(lease.branch), lease, ttl, leases.monotonic_us())
        self.leases[lease.branch] = renewed
        return renewed

    def release(self, lease: Lease) -> None:
        """Release a lease; do nothing if it was lost."""
        if leases.is_held(self.leases.get(lease.branch), lease):
            self.leases[lease.branch] = leases.released(lease)

    def check(self, changes: Iterable[PutRun | AddEvents]) -> None:
        """Raise ConflictError or NotFoundError unless all of these can be applied."""
        new_runs: set[tuple[UUID, UUID]] = set()
        for change in changes:
            self._check(change, new_runs)
            if isinstance(change, PutRun):
                new_runs.add((change.run.branch, change.run.id))

    def apply(self, change: PutRun | AddEvents) -> None:
        """Apply a change; raises as `check` does, and applies nothing then."""
        new = self._check(change)
        if isinstance(change, PutRun):
            self.runs.setdefault(change.run.branch, {})[change.run.id] = change.run
            if change.release:
                self.release(self.leases[change.run.branch])
        elif new:
            self.events.setdefault(change.branch, []).extend(new)
            for start in change.starts:
                self.starts[start.message] = self.starts.get(start.message, 0) + 1

    def _check(
        self, change: PutRun | AddEvents, new_runs: Collection[tuple[UUID, UUID]] = ()
    ) -> list[EventRecord]:
        """Return the new events of a change; `new_runs` are applied before it."""
        branch = change.run.branch if isinstance(change, PutRun) else change.branch
        last = self.leases.get(branch)
        if last is None or last.token != change.token:
            raise lost_lease()
        if isinstance(change, PutRun):
            return []
        new = self._new(change)
        for start in change.starts if new else ():
            if start.known not in (None, self.starts.get(start.message, 0)):
                raise started_elsewhere(start.message)
        runs = self.runs.get(branch, {})
        for event in new:
            if event.run not in runs and (branch, event.run) not in new_runs:
                raise no_run(event.run)
        return new

    def _new(self, change: AddEvents) -> list[EventRecord]:
        events, branch = change.events, change.branch

        def stored_events() -> list[EventRecord]:
            return self.after(branch, min(event.seq for event in events) - 1)

        return new_events(change, self.last_seq(branch), stored_events)

    def after(self, branch: UUID, seq: int) -> list[EventRecord]:
        """Return the events of a branch after event number `seq`."""
        events = self.events.get(branch, [])
        return events[bisect_right(events, seq, key=_seq) :]

    def last_seq(self, branch: UUID) -> int:
        """Return the number of a branch's last event, or 0."""
        events = self.events.get(branch)
        return events[-1].seq if events else 0

    def last_of(self, branch: UUID) -> RunRecord | None:
        """Return the newest run of a branch, or None."""
        return next(reversed(self.runs.get(branch, {}).values()), None)

    def last_runs(self) -> dict[UUID, RunRecord]:
        """Find the newest run of each branch that has any."""
        runs = {branch: self.last_of(branch) for branch in self.runs}
        return {branch: run for branch, run in runs.items() if run is not None}

    def of_branch(self, branch: UUID) -> list[RunRecord]:
        """Return the runs of a branch, newest first."""
        return list(reversed(self.runs.get(branch, {}).values()))

    def journals(self) -> list[JournalRecord]:
        """Return the runs and events of each branch."""
        return [
            JournalRecord(branch, list(runs.values()), list(self.events.get(branch, ())))
            for branch, runs in self.runs.items()
        ]

    def forget_message(self, message: UUID) -> None:
        """Erase the events and starts of a message."""
        self.starts.pop(message, None)
        for branch, events in self.events.items():
            self.events[branch] = [event for event in events if event.message != message]

    def forget_naming(self, string: bytes) -> None:
        """Erase the events whose body contains these bytes."""
        for branch, events in self.events.items():
            self.events[branch] = [event for event in events if string not in event.body]

    def rename(self, old: bytes, new: bytes) -> None:
        """Replace bytes in the bodies of events."""
        for branch, events in self.events.items():
            self.events[branch] = [
                msgspec.structs.replace(event, body=event.body.replace(old, new))
                for event in events
            ]

    def forget_branch(self, branch: UUID) -> None:
        """Erase the events, lease and runs of a branch."""
        for table in (self.events, self.leases, self.runs):
            table.pop(branch, None)
