"""Runs and their events in memory: what the store in memory keeps, and a session without a store.

Both follow the rules every store follows: only the holder of a branch's last lease writes, what is
repeated changes nothing, and what speaks of an erased message goes with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

from sennit.errors import ConflictError
from sennit.stores import leases
from sennit.stores.records import AddEvents, EventRecord, Lease, PutRun, RunRecord

_seq = attrgetter("seq")


@dataclass(slots=True)
class RunLog:
    """The runs, events and leases of one session."""

    runs: dict[UUID, RunRecord] = field(default_factory=dict[UUID, RunRecord])
    events: dict[UUID, list[EventRecord]] = field(default_factory=dict[UUID, list[EventRecord]])
    """By branch, in order."""
    leases: dict[UUID, Lease] = field(default_factory=dict[UUID, Lease])

    def acquire(self, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take a branch's lease; raises ConflictError if someone else has it."""
        lease = leases.taken(self.leases.get(branch), branch, holder, ttl)
        self.leases[branch] = lease
        return lease

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""
        renewed = leases.renewed(self.leases.get(lease.branch), lease, ttl)
        self.leases[lease.branch] = renewed
        return renewed

    def release(self, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""
        if leases.is_held(self.leases.get(lease.branch), lease):
            self.leases[lease.branch] = leases.ended(lease)

    def check(self, changes: Iterable[PutRun | AddEvents]) -> None:
        """Raise ConflictError unless all of these may be made."""
        for change in changes:
            branch = change.run.branch if isinstance(change, PutRun) else change.branch
            last = self.leases.get(branch)
            if last is None or last.token != change.token:
                raise lost_lease(branch)
            if isinstance(change, AddEvents):
                self._new(change)

    def apply(self, change: PutRun | AddEvents) -> None:
        """Make a change that was checked."""
        if isinstance(change, PutRun):
            self.runs[change.run.id] = change.run
        else:
            self.events.setdefault(change.branch, []).extend(self._new(change))

    def _new(self, change: AddEvents) -> list[EventRecord]:
        """The events that are not there yet; raises ConflictError for one that is another there."""
        there = {one.seq: one for one in self.after(change.branch, change.events[0].seq - 1)}
        for event in change.events:
            if event.seq in there and there[event.seq] != event:
                raise other_event(change.branch, event.seq)
        return [event for event in change.events if event.seq not in there]

    def after(self, branch: UUID, seq: int) -> list[EventRecord]:
        """The events of a branch past a number."""
        found = self.events.get(branch, [])
        return found[bisect_right(found, seq, key=_seq) :]

    def last_of(self, branch: UUID) -> RunRecord | None:
        """The newest run of a branch."""
        return next((run for run in reversed(self.runs.values()) if run.branch == branch), None)

    def of_branch(self, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first."""
        return [run for run in reversed(self.runs.values()) if run.branch == branch]

    def forget_message(self, message: UUID) -> None:
        """Erase what speaks of a message."""
        for branch, events in self.events.items():
            self.events[branch] = [event for event in events if event.message != message]

    def forget_branch(self, branch: UUID) -> None:
        """Erase what happened on a branch."""
        self.events.pop(branch, None)
        self.leases.pop(branch, None)
        self.runs = {uid: run for uid, run in self.runs.items() if run.branch != branch}


def lost_lease(branch: UUID) -> ConflictError:
    """The error for a writer whose lease another one has taken."""
    return ConflictError(
        f"The lease of branch {branch} was lost: another run has taken it. Nothing was written."
    )


def other_event(branch: UUID, seq: int) -> ConflictError:
    """The error for an event whose number another one has."""
    return ConflictError(f"Event {seq} of branch {branch} is there already, with another content.")
