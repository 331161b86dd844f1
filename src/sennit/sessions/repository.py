"""The repository of a session in its store.

Sessions work with messages, branches and segments, stores with records. The repository converts
between them for one session of one owner; it enforces the rules of neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.errors import SennitError
from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.sessions.grants import Grants
from sennit.sessions.segments import Segment
from sennit.stores.base import no_session, segment_cycle
from sennit.stores.group_commit import GroupCommitter, Outcome, Wake
from sennit.stores.records.sessions import (
    BranchHead,
    BranchRecord,
    Change,
    ChangeBranch,
    MessageRecord,
    Owner,
    RemoveBranch,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    Write,
)

if TYPE_CHECKING:
    from asyncio import Future

    from sennit.sessions.branch import Branch
    from sennit.stores.base import Store
    from sennit.stores.loop_bridge import LoopBridge
    from sennit.stores.records.commits import ArchiveRecord


Fallback: TypeAlias = Callable[[SennitError], tuple[Change, ...] | None]


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
        self.store, self.group, self.owner, self.session = store, group, owner, session
        self.generation = 0
        """Increases with every local change, so that a refresh detects changes during its read."""
        self.erases_removed = False
        """Whether messages are erased when they are removed from their last branch."""
        self._new = new
        self._bridge: LoopBridge | None = None

    def write(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Write changes in one transaction; return the heads of the branches appended to."""
        self.generation += 1
        heads = self.store.write(self.owner, self.session, changes)
        self._erase_removed(changes)
        return heads

    def _erase_removed(self, changes: Sequence[Change]) -> None:
        if self.erases_removed and any(
            isinstance(change, (ChangeBranch, RemoveBranch)) for change in changes
        ):
            now = clock.now_us() + 1
            if self.store.erase_removed(self.owner, self.session, now):
                self.store.scrub()

    def submit(
        self,
        changes: tuple[Change, ...],
        apply: Callable[[list[BranchHead]], None],
        fallback: Fallback | None = None,
    ) -> Future[None]:
        """Write changes in a group commit; `apply` is called in commit order.

        If the store refuses them, `fallback` may return changes to write instead.
        """
        bridge, future = self._new_future()
        self._send(changes, apply, fallback, bridge, future, bridge.call_soon)
        return future

    def _send(
        self,
        changes: tuple[Change, ...],
        apply: Callable[[list[BranchHead]], None],
        fallback: Fallback | None,
        bridge: LoopBridge,
        future: Future[None],
        on_submit: Callable[[Wake], None] | None = None,
    ) -> None:
        def on_outcome(outcome: Outcome) -> Wake:
            error: Exception | None = None
            try:
                if not isinstance(outcome, SennitError):
                    self._new = None
                    apply(outcome)
                    self._erase_removed(changes)
                elif fallback is None or (fallback_changes := fallback(outcome)) is None:
                    error = outcome
                else:
                    self._send(fallback_changes, apply, None, bridge, future)
                    return bridge.wake
            except Exception as failure:  # goes to the awaiting caller, not to the commit thread
                error = failure
            bridge.put(future, error)
            return bridge.wake

        self.group.submit(
            Write(self.owner, self.session, changes, self._new), on_outcome, on_submit
        )

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

    def load(self) -> Snapshot:
        """Load the whole session."""
        if self._new is not None:
            return Snapshot(self._new, [], [], [])
        return self.store.load(self.owner, self.session)

    def last_write(self) -> int:
        """Return the time of the last write, unique to it; raises NotFoundError."""
        record = self.store.find_session(self.owner, self.session)
        if record is None:
            raise no_session(self.session)
        return record.updated

    def changes(self, lengths: Mapping[UUID, int]) -> Snapshot:
        """Load the session without the entries that segments of these lengths already have."""
        return self.store.changes(self.owner, self.session, lengths)

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits past a number."""
        if self._new is not None:
            return []
        return self.store.archived(self.owner, self.session, after)


def message_record(message: Message) -> MessageRecord:
    """Convert a message to its record."""
    return MessageRecord(message.id, message.created_us, dumps(message.to_record()))


def message_from_record(record: MessageRecord) -> Message:
    """Convert a record to its message."""
    return Message.from_stored(record.id, record.created, record.body)


def segment_record(segment: Segment) -> SegmentRecord:
    """Convert a segment to its record."""
    base = None if segment.base is None else segment.base.id
    entries = tuple(segment) if segment.copy_of is None else ()
    return SegmentRecord(segment.id, base, segment.offset, entries, segment.copy_of)


def change_of(record: BranchRecord, old: Segment, new: Segment) -> ChangeBranch:
    """Return the change that replaces the tail `old` of a branch by `new`."""
    if new is old:
        return ChangeBranch(record)
    old_ids = {segment.id.int for segment, _ in old.chain()}
    added = [segment_record(segment) for segment, _ in new.chain() if segment.id.int not in old_ids]
    return ChangeBranch(record, added[0], tuple(added[1:]))


def branch_record(
    branch: Branch, tail: Segment, system: UUID | None, grants: Grants
) -> BranchRecord:
    """Return the record of a branch with this state and the version last seen."""
    resources, capabilities = grants.columns
    return BranchRecord(
        id=branch.id,
        name=branch.name,
        created=branch.created_us,
        system=system,
        segment=tail.id,
        length=len(branch.tail),
        resources=resources,
        capabilities=capabilities,
        metadata=dict(branch.metadata),
        version=branch.version,
    )


def merge_segments(records: Iterable[SegmentRecord], segments: dict[UUID, Segment]) -> None:
    """Add the recorded segments to `segments`, extending those that it already has.

    Raises StoreError if a base is missing or circular.
    """
    pending = {record.id: record for record in records}
    while pending:
        chain = [pending.popitem()[1]]
        while (base := chain[-1].base) is not None and base in pending:
            chain.append(pending.pop(base))
        if base is not None and base not in segments:
            raise segment_cycle(base)
        for record in reversed(chain):
            _merge_segment(record, segments)


def _merge_segment(record: SegmentRecord, segments: dict[UUID, Segment]) -> None:
    segment = segments.get(record.id)
    if segment is not None:
        segment.grow(record.entries)
        return
    base = None if record.base is None else segments[record.base]
    if base is not None:
        base.shared = max(base.shared, record.offset - base.offset)
    segments[record.id] = Segment(record.entries, base, record.offset, stored=True, id=record.id)
