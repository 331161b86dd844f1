"""The repository of a session without a store: its runs, leases and labels, in memory.

Messages and branches are in the session itself, so nothing is encoded or stored twice.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TypeVar
from uuid import UUID

from sennit.errors import NotFoundError, StoreError
from sennit.messages.blob_reference import named_blobs
from sennit.stores.records.blobs import blob_reference
from sennit.stores.records.sessions import (
    AddEvents,
    BranchHead,
    Change,
    EventRecord,
    LabelRecord,
    Lease,
    LeaseGrant,
    PutLabels,
    PutRun,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RunRecord,
    TakeLease,
)

if TYPE_CHECKING:
    from sennit.messages.message import Message
    from sennit.sessions.blobs import Blobs
    from sennit.sessions.plan import Plan
    from sennit.sessions.session import SessionCore
    from sennit.stores.in_memory.runs import RunLog
    from sennit.stores.records.commits import ArchiveRecord

_R = TypeVar("_R")


class DetachedRepository:
    """Has the interface of a SessionRepository; nothing in it blocks."""

    place: Hashable = None
    blobs: Blobs | None = None
    """Where messages that it gets from a stored session have their bytes; new ones keep them."""

    def __init__(self, session: SessionCore) -> None:
        self._session = session

    def stored(self) -> NoReturn:
        """Raise StoreError: there is no store."""
        raise StoreError(
            "A session without a store cannot be committed; open it with "
            "sennit.open(...).session(key), or pass Session(store=...)."
        )

    @cached_property
    def _log(self) -> RunLog:
        from sennit.stores.in_memory.runs import RunLog  # most sessions in memory have no runs

        return RunLog()

    @cached_property
    def _labels(self) -> dict[tuple[UUID, str], LabelRecord]:
        return {}

    def write(self, plan: Plan[_R]) -> _R:
        """Carry out a plan, under the lock of the session."""
        if self.blobs is None and plan.attachments():
            _refuse_blobs(plan.messages)
        plan.prepare()
        plan.apply(self._apply(plan.extras) if plan.extras else ())
        return plan.result

    async def submit(self, plan: Plan[_R]) -> _R:
        """Carry out a plan."""
        with self._session.lock:
            return self.write(plan)

    async def read(self, work: Callable[[], _R]) -> _R:
        """Return the result of work that reads the session."""
        return work()

    def record(self, *changes: Change) -> None:
        """Apply changes that concern no message or branch in memory."""
        with self._session.lock:
            self._apply(changes)

    def _apply(self, changes: Sequence[Change]) -> list[BranchHead]:
        if len(changes) > 1:  # all of them, or none
            self._log.check(change for change in changes if isinstance(change, PutRun | AddEvents))
        heads: list[BranchHead] = []
        for change in changes:
            match change:
                case PutRun() | AddEvents():
                    self._log.apply(change)
                case TakeLease():
                    heads.append(self._take(change))
                case PutStarts(starts):
                    self._log.starts.update(starts)
                case PutLabels(labels):
                    self._put_labels(labels)
                case RemoveBranch(branch):
                    self._log.forget_branch(branch)
                case RemoveMessages(messages):
                    self._forget(set(messages))
                case _:
                    pass
        return heads

    def _take(self, change: TakeLease) -> BranchHead:
        branch = self._session.get_branch(change.branch)
        lease = self._log.acquire(branch.id, change.holder, change.ttl)
        seq, last = self._log.last_seq(branch.id), self._log.last_of(branch.id)
        grant = LeaseGrant(lease, seq, last, self._session._archives.number)
        return BranchHead(branch.id, branch._tail.id, len(branch._tail), branch._version, grant)

    def _put_labels(self, labels: Sequence[LabelRecord]) -> None:
        self._session.messages.pick(label.message for label in labels)
        for label in labels:
            self._labels.pop((label.message, label.judge), None)
            if label.score is not None:
                self._labels[(label.message, label.judge)] = label

    def _forget(self, messages: set[UUID]) -> None:
        for message in messages:
            self._log.forget_message(message)
        for key in [key for key in self._labels if key[0] in messages]:
            del self._labels[key]

    def refresh(self, session: SessionCore) -> None:
        """Do nothing: no other process can write."""

    def archived(self, after: int) -> list[ArchiveRecord]:  # noqa: ARG002
        """Return the archives of commits, of which there are none."""
        return []

    def scrub(self) -> None:
        """Erase deleted text from files, of which there are none."""

    def labels(self) -> list[LabelRecord]:
        """Return all labels, oldest first."""
        with self._session.lock:
            return list(self._labels.values())

    def starts(self, messages: Sequence[UUID] | None = None) -> dict[UUID, int]:
        """Return how often each tool call was started, without those never started."""
        with self._session.lock:
            counts = self._log.starts
            wanted = counts if messages is None else messages
            return {uid: counts[uid] for uid in wanted if uid in counts}

    def acquire(self, branch: UUID, holder: str, ttl: int) -> Lease:
        """Acquire the lease of a branch; raises ConflictError if another holds it."""
        with self._session.lock:
            return self._log.acquire(branch, holder, ttl)

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """Renew a lease; raises ConflictError if it was lost."""
        with self._session.lock:
            return self._log.renew(lease, ttl)

    def release(self, lease: Lease) -> None:
        """Release a lease."""
        with self._session.lock:
            self._log.release(lease)

    def is_leased(self, branch: UUID) -> bool:  # noqa: ARG002
        """Return whether another process may hold the lease of a branch; there is none."""
        return False

    def runs(self, branch: UUID) -> list[RunRecord]:
        """Return the runs of a branch, newest first."""
        with self._session.lock:
            return self._log.of_branch(branch)

    def last_run(self, branch: UUID) -> RunRecord | None:
        """Return the newest run of a branch, if any."""
        with self._session.lock:
            return self._log.last_of(branch)

    def last_runs(self) -> dict[UUID, RunRecord]:
        """Return the newest run of each branch."""
        with self._session.lock:
            return self._log.last_runs()

    def events(self, branch: UUID, after: int, limit: int) -> list[EventRecord]:
        """Return up to `limit` events of a branch past a sequence number."""
        with self._session.lock:
            return self._log.after(branch, after)[:limit]

    def last_event(self, branch: UUID) -> int:
        """Return the sequence number of the last event of a branch; 0 if there is none."""
        with self._session.lock:
            return self._log.last_seq(branch)


def _refuse_blobs(messages: Sequence[Message]) -> None:
    """Raise NotFoundError if a message names a blob, which only a store can have."""
    for hash in named_blobs(messages):
        raise NotFoundError(
            f"A session without a store has no blob {blob_reference(hash)!r}; pass the bytes "
            f"instead, as session.read_blob() of the other session returns them."
        )
