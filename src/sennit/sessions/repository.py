"""The repository of a session in its store.

It carries out plans, and reads what is not in memory: runs, events, leases and labels. A session
without a store has a DetachedRepository instead.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from uuid import UUID

from sennit import clock
from sennit.errors import SennitError
from sennit.sessions.blobs import Blobs
from sennit.sessions.refresh import refresh
from sennit.stores.base import no_session
from sennit.stores.group_commit import GroupCommitter, Outcome, Wake
from sennit.stores.records.sessions import (
    Change,
    ChangeBranch,
    EventRecord,
    LabelRecord,
    Lease,
    Owner,
    RemoveBranch,
    RequireBlobs,
    RunRecord,
    SessionRecord,
    Snapshot,
    Write,
)

if TYPE_CHECKING:
    from asyncio import Future

    from sennit.sessions.detached import DetachedRepository
    from sennit.sessions.plan import Plan
    from sennit.sessions.session import SessionCore
    from sennit.stores.base import Store
    from sennit.stores.loop_bridge import LoopBridge
    from sennit.stores.records.commits import ArchiveRecord


Repository: TypeAlias = "SessionRepository | DetachedRepository"
_R = TypeVar("_R")
_MAX_ENCODED_ON_LOOP = 64  # messages; more are encoded in a worker thread


def repository_of(session: SessionCore) -> Repository:
    """Return the repository that a session is bound to."""
    return session._repository


class SessionRepository:
    """Reads and writes one session in a store."""

    def __init__(
        self,
        store: Store,
        group: GroupCommitter,
        owner: Owner,
        session: UUID,
        new: SessionRecord | None = None,
    ) -> None:
        """Bind a session to a store; the first `submit` creates a `new` one."""
        self.store: Final = store
        self.group: Final = group
        self.owner: Final = owner
        self.session: Final = session
        self.erases_removed = False
        """Whether messages are erased when they are removed from their last branch."""
        self.blobs: Final = Blobs(store, owner)
        """The bytes of attachments."""
        self._new = new
        self._bridge: LoopBridge | None = None

    @property
    def place(self) -> Hashable:
        """A key of the owner's data, unique across stores."""
        return self.store.identity, self.owner.key

    def write(self, plan: Plan[_R]) -> _R:
        """Carry out a plan in one transaction, under the lock of the session."""
        if plan.attachments():
            self._store_blobs(plan)
        plan.prepare()
        while True:
            changes = _changes(plan)
            try:
                heads = self.store.write(self.owner, self.session, changes) if changes else ()
                break
            except SennitError as error:
                if not plan.recover(error):
                    raise
        plan.finish(heads)
        self._erase_removed(changes)
        plan.session._was_written(plan)
        return plan.result

    def record(self, *changes: Change) -> None:
        """Write changes that concern no message or branch in memory."""
        self.store.write(self.owner, self.session, changes)

    def stored(self) -> SessionRepository:
        """Return this repository; raises StoreError for a session without a store."""
        return self

    def _store_blobs(self, plan: Plan[Any]) -> None:
        """Store the attachments of messages that are new to the session."""
        known = plan.session.messages
        new = [message for message in plan.messages if known.by_key(message.id.int) is None]
        plan.replace_messages(self.blobs.store(new))

    def _erase_removed(self, changes: Sequence[Change]) -> None:
        if self.erases_removed and any(
            isinstance(change, (ChangeBranch, RemoveBranch)) for change in changes
        ):
            now = clock.now_us() + 1
            if self.store.erase_removed(self.owner, self.session, now):
                self.store.scrub()

    async def submit(self, plan: Plan[_R]) -> _R:
        """Carry out a plan in a group commit; plans are applied in commit order."""
        if plan.attachments():
            await self.read(partial(self._store_blobs, plan))
        with plan.session.lock:
            plan.prepare()
        if len(plan.messages) > _MAX_ENCODED_ON_LOOP and not plan.extras:
            changes = await self.read(partial(_changes, plan))
        else:
            changes = _changes(plan)
        if changes:
            bridge, future = self._new_future()
            self._send(plan, changes, bridge, future, bridge.call_soon)
            await future
        plan.session._was_written(plan)
        return plan.result

    def _send(
        self,
        plan: Plan[_R],
        changes: Sequence[Change],
        bridge: LoopBridge,
        future: Future[None],
        on_submit: Callable[[Wake], None] | None = None,
    ) -> None:
        def on_outcome(outcome: Outcome) -> Wake:
            error: Exception | None = None
            try:
                if not isinstance(outcome, SennitError):
                    self._new = None
                    plan.finish(outcome)
                    self._erase_removed(changes)
                elif plan.recover(outcome):
                    self._send(plan, _changes(plan), bridge, future)
                    return bridge.wake
                else:
                    error = outcome
            except Exception as failure:  # goes to the awaiting caller, not to the commit thread
                error = failure
            bridge.put(future, error)
            return bridge.wake

        write = Write(self.owner, self.session, tuple(changes), self._new)
        self.group.submit(write, on_outcome, on_submit)

    def _new_future(self) -> tuple[LoopBridge, Future[None]]:
        """Return a future of the running loop, and the bridge that completes it."""
        bridge = self._bridge
        future = None if bridge is None else bridge.create_future()
        if bridge is None or future is None:
            from sennit.stores.loop_bridge import LoopBridge  # asyncio takes long to import

            bridge = self._bridge = LoopBridge.of_running_loop()
            future = bridge.create_future()
            assert future is not None
        return bridge, future

    def refresh(self, session: SessionCore) -> None:
        """Load into a session what other processes have written."""
        refresh(session, self)

    async def read(self, work: Callable[[], _R]) -> _R:
        """Return the result of work that may wait for the store, from a worker thread."""
        import asyncio  # slow to import; only async callers need it

        return await asyncio.to_thread(work)

    def load(self) -> Snapshot:
        """Return the whole session."""
        if self._new is not None:
            return Snapshot(self._new, [], [], [])
        return self.store.load(self.owner, self.session)

    def last_write(self) -> int:
        """Return the time of the last write, unique to it; raises NotFoundError."""
        record = self._new or self.store.find_session(self.owner, self.session)
        if record is None:
            raise no_session(self.session)
        return record.updated

    def changes(self, lengths: Mapping[UUID, int]) -> Snapshot:
        """Return the session without the entries that segments of these lengths already have."""
        return self.store.changes(self.owner, self.session, lengths)

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits past a number."""
        if self._new is not None:
            return []
        return self.store.archived(self.owner, self.session, after)

    def scrub(self) -> None:
        """Erase deleted text from the files of the store."""
        self.store.scrub()

    def labels(self) -> list[LabelRecord]:
        """Return all labels, oldest first."""
        return self.store.labels(self.owner, self.session)

    def starts(self, messages: Sequence[UUID] | None = None) -> dict[UUID, int]:
        """Return how often each tool call was started, without those never started."""
        return self.store.starts(self.owner, self.session, messages)

    def acquire(self, branch: UUID, holder: str, ttl: int) -> Lease:
        """Acquire the lease of a branch; raises ConflictError if another holds it."""
        return self.store.acquire(self.owner, self.session, branch, holder, ttl)

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Renew a lease; raises ConflictError if it was lost."""
        return self.store.renew(self.owner, self.session, lease, ttl)

    def release(self, lease: Lease) -> None:
        """Release a lease."""
        self.store.release(self.owner, self.session, lease)

    def is_leased(self, branch: UUID) -> bool:
        """Return whether any process holds a lease on a branch."""
        return self.store.is_leased(self.owner, self.session, branch)

    def runs(self, branch: UUID) -> list[RunRecord]:
        """Return the runs of a branch, newest first."""
        return self.store.runs(self.owner, self.session, branch)

    def last_run(self, branch: UUID) -> RunRecord | None:
        """Return the newest run of a branch, if any."""
        return self.store.last_run(self.owner, self.session, branch)

    def last_runs(self) -> dict[UUID, RunRecord]:
        """Return the newest run of each branch, in one query."""
        return self.store.last_runs(self.owner, self.session)

    def events(self, branch: UUID, after: int, limit: int) -> list[EventRecord]:
        """Return up to `limit` events of a branch past a sequence number."""
        return self.store.events(self.owner, self.session, branch, after, limit)

    def last_event(self, branch: UUID) -> int:
        """Return the sequence number of the last event of a branch; 0 if there is none."""
        return self.store.last_event(self.owner, self.session, branch)


def _changes(plan: Plan[Any]) -> Sequence[Change]:
    changes = plan.changes()
    return [RequireBlobs(plan.blobs), *changes] if plan.blobs else changes
