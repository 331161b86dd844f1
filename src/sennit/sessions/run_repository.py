"""Runs and leases of a branch, in the store.

With a store, its leases keep runs apart across processes and what is noted is durable; a session
without one does the same in memory.
"""

# Like a session, this may reach past the guards of what a session has.
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

_PAGE = 1000
_SURE = 0.25e-6  # seconds for each microsecond of a lease in which it has surely not expired


class LeaseAcquisition:
    """A branch that is being taken."""

    __slots__ = ("as_known", "taken", "written")

    written: Future[None] | None
    """Done when it is taken; raises ConflictError if someone else has it. None: it is taken."""
    taken: LeaseGrant
    as_known: bool
    """Whether the branch is in the store as it is known here."""

    def __init__(self) -> None:
        self.written = None

    def note(self, head: BranchHead, runs: RunRepository) -> None:
        """Keep what taking it gave."""
        assert head.taken is not None
        self.taken = head.taken
        self.as_known = runs.stands_at(head, head.taken.commits)


def last_runs(session: SessionData) -> dict[UUID, RunRecord]:
    """Find the newest run of each branch of a session, by branch; the store is asked once."""
    keeper = session._keeper
    if keeper is None:
        with session.lock:
            return session._log.last_runs()
    return keeper.store.last_runs(keeper.owner, keeper.session)


class RunRepository:
    """Runs on one branch."""

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self._session = branch.session

    @property
    def _keeper(self) -> SessionRepository | None:
        return self._session._keeper

    @property
    def place(self) -> Hashable:
        """The key of the branch in this process: other owners and stores may have a copy of it."""
        keeper = self._keeper
        within = None if keeper is None else (keeper.store.identity, keeper.owner.key)
        return within, self._session.id.int, self.branch.id.int  # which hash faster than UUIDs

    @property
    def durable(self) -> bool:
        """True if there is a store behind it, and others may be running too."""
        return self._keeper is not None

    def take(self, holder: str, ttl: int) -> LeaseAcquisition:
        """Take the branch together with what others write, if it was not made with a lease."""
        assert self._keeper is not None
        taking = LeaseAcquisition()
        with self._session.lock:
            first, self.branch.first_lease = self.branch.first_lease, None
        if first is not None:
            holder = first.terms.holder
            if clock.monotonic() - first.since < first.terms.ttl * _SURE:
                taking.note(first.head, self)
                return taking

        def apply(
            heads: list[BranchHead],
        ) -> None:  # in the order of commits, so it can be compared
            taking.note(heads[0], self)

        change = TakeLease(self.branch.id, holder, ttl)
        taking.written = self._keeper.submit((change,), apply)
        return taking

    def stands_at(self, head: BranchHead, commits: int) -> bool:
        """Return whether the branch and the session's commits are known here as the store has
        them.
        """
        with self._session.lock:
            tail, number = self.branch.tail, self._session.archives.number
            known = (tail.id.int, len(tail), self.branch.version, number)
            return known == (head.segment.int, head.length, head.version, commits)

    def acquire(self, holder: str, ttl: int) -> Lease:
        """Take the branch for `ttl` microseconds; raises ConflictError if someone else has it."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                return self._session._log.acquire(self.branch.id, holder, ttl)
        return keeper.store.acquire(keeper.owner, keeper.session, self.branch.id, holder, ttl)

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Keep it longer; raises ConflictError if it was lost."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                return self._session._log.renew(lease, ttl)
        return keeper.store.renew(keeper.owner, keeper.session, lease, ttl)

    def release(self, lease: Lease) -> None:
        """Give it back."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                self._session._log.release(lease)
            return
        keeper.store.release(keeper.owner, keeper.session, lease)

    def is_leased(self) -> bool:
        """Return whether some process holds the branch in the store."""
        keeper = self._keeper
        return keeper is not None and keeper.store.is_leased(
            keeper.owner, keeper.session, self.branch.id
        )

    async def write(
        self, messages: Sequence[Message], changes: Sequence[PutRun | AddEvents]
    ) -> None:
        """Put messages on the branch and note what happened, in one step."""
        await self._session._aplace(messages, [self.branch], changes)

    def note(self, messages: Sequence[Message], changes: Sequence[PutRun | AddEvents]) -> None:
        """The same at once, for a session without a store."""
        with self._session.lock:
            self._session._log.check(changes)
            if messages:
                self._session.place(messages, [self.branch])
            for change in changes:
                self._session._log.apply(change)

    def rewrite(self, plan: Rewrite, changes: Sequence[PutRun | AddEvents]) -> None:
        """Rewrite the beginning of the branch and note what happened, in one step."""
        rewrite(self.branch, plan, changes)

    def runs(self) -> list[RunRecord]:
        """The runs, the newest first."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                return self._session._log.of_branch(self.branch.id)
        return keeper.store.runs(keeper.owner, keeper.session, self.branch.id)

    def last(self) -> RunRecord | None:
        """The newest run, if there was any."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                return self._session._log.last_of(self.branch.id)
        return keeper.store.last_run(keeper.owner, keeper.session, self.branch.id)

    def events(self, after: int = 0, limit: int = _PAGE) -> list[EventRecord]:
        """The events past a number, at most `limit` of them."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                return self._session._log.after(self.branch.id, after)[:limit]
        return keeper.store.events(keeper.owner, keeper.session, self.branch.id, after, limit)

    def last_seq(self) -> int:
        """The number of the last event; 0 if there is none."""
        keeper = self._keeper
        if keeper is None:
            with self._session.lock:
                return self._session._log.last_seq(self.branch.id)
        return keeper.store.last_event(keeper.owner, keeper.session, self.branch.id)

    def starts(self, messages: Sequence[UUID]) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; zero counts are left out."""
        return self._session._starts(messages)

    def all_events(self, after: int = 0) -> Iterator[EventRecord]:
        """All events past a number, read page by page."""
        while page := self.events(after):
            yield from page
            after = page[-1].seq

    def message(self, uid: UUID) -> Message:
        """A message that an event speaks of; someone else may have written it."""
        if uid not in self._session.messages:
            self._session.refresh()
        return self._session.messages.get(uid)

    def refresh(self) -> None:
        """Take in what others have written to the session."""
        self._session.refresh()
