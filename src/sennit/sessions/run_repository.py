"""Runs, events and leases of a branch.

With a store, leases exclude concurrent runs across processes, and runs and events are durable. A
session without a store has them in memory.
"""

# Like a session, this bypasses the guards of branches and piles.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from sennit import clock
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.repository import SessionRepository
from sennit.sessions.rewrite import Rewrite, rewrite
from sennit.sessions.state import SessionData
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

if TYPE_CHECKING:
    from asyncio import Future

_EVENTS_PER_PAGE = 1000
_FRESH_SECONDS_PER_TTL_US = 0.25e-6  # a first lease is trusted for a quarter of its TTL


class LeaseAcquisition:
    """The acquisition of a branch lease."""

    __slots__ = ("as_known", "taken", "written")

    written: Future[None] | None
    """Done on acquisition, with ConflictError if another holds it; None if already acquired."""
    taken: LeaseGrant
    as_known: bool
    """Whether the branch in memory is up to date with the store."""

    def __init__(self) -> None:
        self.written = None

    def set_head(self, head: BranchHead, runs: RunRepository) -> None:
        """Record the granted lease and whether the branch is up to date."""
        assert head.taken is not None
        self.taken = head.taken
        self.as_known = runs.matches(head, head.taken.commits)


def last_runs(session: SessionData) -> dict[UUID, RunRecord]:
    """Return the newest run of each branch of a session, in one query."""
    repository = session._repository
    if repository is None:
        with session.lock:
            return session._run_log.last_runs()
    return repository.store.last_runs(repository.owner, repository.session)


class RunRepository:
    """Runs on one branch."""

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self._session = branch.session

    @property
    def _keeper(self) -> SessionRepository | None:
        return self._session._repository

    @property
    def place(self) -> Hashable:
        """A hashable key of the branch, unique across stores and owners."""
        repository = self._keeper
        within = None if repository is None else (repository.store.identity, repository.owner.key)
        return within, self._session.id.int, self.branch.id.int  # ints hash faster than UUIDs

    @property
    def durable(self) -> bool:
        """True if the session has a store, which other processes may use too."""
        return self._keeper is not None

    def take(self, holder: str, ttl: int) -> LeaseAcquisition:
        """Acquire the lease in a group commit, or use the one the branch was created with."""
        assert self._keeper is not None
        acquisition = LeaseAcquisition()
        with self._session.lock:
            first, self.branch.first_lease = self.branch.first_lease, None
        if first is not None:
            holder = first.terms.holder
            if clock.monotonic() - first.acquired_at < first.terms.ttl * _FRESH_SECONDS_PER_TTL_US:
                acquisition.set_head(first.head, self)
                return acquisition

        def apply(heads: list[BranchHead]) -> None:  # in commit order, so heads are comparable
            acquisition.set_head(heads[0], self)

        change = TakeLease(self.branch.id, holder, ttl)
        acquisition.written = self._keeper.submit((change,), apply)
        return acquisition

    def matches(self, head: BranchHead, commits: int) -> bool:
        """Return whether the branch and the commits in memory match the store."""
        with self._session.lock:
            tail, number = self.branch.tail, self._session.archives.number
            local_state = (tail.id.int, len(tail), self.branch.version, number)
            return local_state == (head.segment.int, head.length, head.version, commits)

    def acquire(self, holder: str, ttl: int) -> Lease:
        """Acquire the lease for `ttl` microseconds; raises ConflictError if another holds it."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                return self._session._run_log.acquire(self.branch.id, holder, ttl)
        return repository.store.acquire(
            repository.owner, repository.session, self.branch.id, holder, ttl
        )

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Renew the lease; raises ConflictError if it was lost."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                return self._session._run_log.renew(lease, ttl)
        return repository.store.renew(repository.owner, repository.session, lease, ttl)

    def release(self, lease: Lease) -> None:
        """Release the lease."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                self._session._run_log.release(lease)
            return
        repository.store.release(repository.owner, repository.session, lease)

    def is_leased(self) -> bool:
        """Return whether any process holds a lease on the branch."""
        repository = self._keeper
        return repository is not None and repository.store.is_leased(
            repository.owner, repository.session, self.branch.id
        )

    async def write(
        self, messages: Sequence[Message], changes: Sequence[PutRun | AddEvents]
    ) -> None:
        """Append messages and write runs and events in one transaction."""
        await self._session._aappend_messages(messages, [self.branch], changes)

    def note(self, messages: Sequence[Message], changes: Sequence[PutRun | AddEvents]) -> None:
        """Do the same synchronously, for a session without a store."""
        with self._session.lock:
            self._session._run_log.check(changes)
            if messages:
                self._session.append_messages(messages, [self.branch])
            for change in changes:
                self._session._run_log.apply(change)

    def rewrite(self, plan: Rewrite, changes: Sequence[PutRun | AddEvents]) -> None:
        """Rewrite the branch and write runs and events in one transaction."""
        rewrite(self.branch, plan, changes)

    def runs(self) -> list[RunRecord]:
        """Return the runs, newest first."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                return self._session._run_log.of_branch(self.branch.id)
        return repository.store.runs(repository.owner, repository.session, self.branch.id)

    def last(self) -> RunRecord | None:
        """Return the newest run, if any."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                return self._session._run_log.last_of(self.branch.id)
        return repository.store.last_run(repository.owner, repository.session, self.branch.id)

    def events(self, after: int = 0, limit: int = _EVENTS_PER_PAGE) -> list[EventRecord]:
        """Return up to `limit` events past a sequence number."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                return self._session._run_log.after(self.branch.id, after)[:limit]
        return repository.store.events(
            repository.owner, repository.session, self.branch.id, after, limit
        )

    def last_seq(self) -> int:
        """Return the sequence number of the last event; 0 if there is none."""
        repository = self._keeper
        if repository is None:
            with self._session.lock:
                return self._session._run_log.last_seq(self.branch.id)
        return repository.store.last_event(repository.owner, repository.session, self.branch.id)

    def starts(self, messages: Sequence[UUID]) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; zero counts are left out."""
        return self._session._starts(messages)

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
