"""Runs, events and leases of a branch.

With a store, leases exclude concurrent runs across processes, and runs and events are durable. A
session without a store has them in memory.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sennit import clock
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.plan import AppendPlan, Plan
from sennit.sessions.repository import Repository
from sennit.sessions.rewrite import Rewrite, rewrite
from sennit.stores.records.sessions import (
    AddEvents,
    BranchHead,
    EventRecord,
    Lease,
    LeaseGrant,
    PutRun,
    RunRecord,
    TakeLease,
)

_R = TypeVar("_R")
_EVENTS_PER_PAGE = 1000
_FRESH_SECONDS_PER_TTL_US = 0.25e-6  # a first lease is trusted for a quarter of its TTL


class LeaseAcquisition(NamedTuple):
    """An acquired branch lease."""

    grant: LeaseGrant
    as_known: bool
    """Whether the branch in memory is up to date with the store."""


class RunRepository:
    """Runs on one branch."""

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self._session, self._id = branch.session, branch.id

    @property
    def _repository(self) -> Repository:
        return self._session._repository

    @property
    def place(self) -> Hashable:
        """A hashable key of the branch, unique across stores and owners."""
        # Ints hash faster than UUIDs.
        return self._repository.place, self._session.id.int, self._id.int

    @property
    def version(self) -> int:
        """The version of the branch in the store, which changes when its history does."""
        return self.branch._version

    @property
    def sent_prompt(self) -> Any:
        """The prompt that a run of this process last sent; None if there is none."""
        return self.branch._sent_prompt

    @sent_prompt.setter
    def sent_prompt(self, prompt: Any) -> None:
        self.branch._sent_prompt = prompt

    @property
    def is_stored(self) -> bool:
        """True if the session has a store."""
        return self._repository.place is not None

    async def take(self, holder: str, ttl: int) -> LeaseAcquisition:
        """Acquire the lease in a group commit, or use the one the branch was created with.

        Raises ConflictError if another holds it.
        """
        with self._session.lock:
            first, self.branch._first_lease = self.branch._first_lease, None
        if first is not None:
            holder = first.terms.holder
            if clock.monotonic() - first.acquired_at < first.terms.ttl * _FRESH_SECONDS_PER_TTL_US:
                return _acquisition(self.branch, first.head)
        return await self._repository.submit(_LeasePlan(self.branch, holder, ttl))

    def acquire(self, holder: str, ttl: int) -> Lease:
        """Acquire the lease for `ttl` microseconds; raises ConflictError if another holds it."""
        return self._repository.acquire(self._id, holder, ttl)

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Renew the lease; raises ConflictError if it was lost."""
        return self._repository.renew(lease, ttl)

    def release(self, lease: Lease) -> None:
        """Release the lease."""
        self._repository.release(lease)

    def is_leased(self) -> bool:
        """Return whether any process holds a lease on the branch."""
        return self._repository.is_leased(self._id)

    async def read(self, work: Callable[[], _R]) -> _R:
        """Return the result of work that may wait for a store."""
        return await self._repository.read(work)

    async def write(
        self, messages: Sequence[Message], changes: Sequence[PutRun | AddEvents]
    ) -> None:
        """Append messages and write runs and events in one transaction."""
        plan: Plan[None]
        if messages:
            plan = AppendPlan(self._session, None, messages, [self.branch], changes)
        else:
            plan = Plan(self._session, None, *changes)
        await self._repository.submit(plan)

    def rewrite(self, plan: Rewrite, changes: Sequence[PutRun | AddEvents]) -> None:
        """Rewrite the branch and write runs and events in one transaction."""
        rewrite(self.branch, plan, changes)

    def runs(self) -> list[RunRecord]:
        """Return the runs, newest first."""
        return self._repository.runs(self._id)

    def last(self) -> RunRecord | None:
        """Return the newest run, if any."""
        return self._repository.last_run(self._id)

    def events(self, after: int = 0, limit: int = _EVENTS_PER_PAGE) -> list[EventRecord]:
        """Return up to `limit` events past a sequence number."""
        return self._repository.events(self._id, after, limit)

    def last_seq(self) -> int:
        """Return the sequence number of the last event; 0 if there is none."""
        return self._repository.last_event(self._id)

    def starts(self, messages: Sequence[UUID]) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; zero counts are left out."""
        return self._repository.starts(messages)

    def all_events(self, after: int = 0) -> Iterator[EventRecord]:
        """Yield all events past a sequence number, page by page."""
        while page := self.events(after):
            yield from page
            after = page[-1].seq

    def message(self, uid: UUID) -> Message:
        """Return the message an event refers to; refreshes if it is not in memory."""
        if uid not in self._session.messages:
            self._session.refresh()
        return self._session.messages.get(uid)

    def refresh(self) -> None:
        """Load what other processes have written to the session."""
        self._session.refresh()


class _LeasePlan(Plan[LeaseAcquisition]):
    result: LeaseAcquisition

    def __init__(self, branch: Branch, holder: str, ttl: int) -> None:
        self._branch, self.session = branch, branch.session
        self.extras = (TakeLease(branch.id, holder, ttl),)

    def apply(self, heads: Sequence[BranchHead]) -> bool:
        self.result = _acquisition(self._branch, heads[0])  # in commit order, so comparable
        return False


def _acquisition(branch: Branch, head: BranchHead) -> LeaseAcquisition:
    session, grant = branch.session, head.taken
    assert grant is not None
    with session.lock:
        tail, number = branch._tail, session._archives.number
        local = (tail.id.int, len(tail), branch._version, number)
    stored = (head.segment.int, head.length, head.version, grant.commits)
    return LeaseAcquisition(grant, local == stored)
