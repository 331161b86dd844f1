"""The repository of a session in its store.

Sessions think in messages, branches and segments, stores in records. The keeper turns one into the
other, for one session of one owner, and knows nothing of either's rules.
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
from sennit.stores.base import circular, no_session
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


Otherwise: TypeAlias = Callable[[SennitError], tuple[Change, ...] | None]


class SessionRepository:
    """Keeps one session in a store."""

    def __init__(
        self,
        store: Store,
        group: GroupCommitter,
        owner: Owner,
        session: UUID,
        new: SessionRecord | None = None,
    ) -> None:
        """A `new` session is not in the store yet: the first thing that is submitted makes it."""
        self.store, self.group, self.owner, self.session = store, group, owner, session
        self.edition = 0
        """Changes whenever the session may have: whoever reads it from the store looks again."""
        self.erases = False
        """Whether messages are erased as soon as they are removed from their last branch."""
        self._new = new
        self._mailbox: LoopBridge | None = None

    def write(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Make changes durable, all or none."""
        self.edition += 1
        heads = self.store.write(self.owner, self.session, changes)
        self._erase_removed(changes)
        return heads

    def _erase_removed(self, changes: Sequence[Change]) -> None:
        if self.erases and any(isinstance(one, (ChangeBranch, RemoveBranch)) for one in changes):
            now = clock.now_us() + 1
            if self.store.erase_removed(self.owner, self.session, now):
                self.store.scrub()

    def submit(
        self,
        changes: tuple[Change, ...],
        apply: Callable[[list[BranchHead]], None],
        otherwise: Otherwise | None = None,
    ) -> Future[None]:
        """The same together with others, to be awaited; `apply` is called in order of commits.

        So is `otherwise` if it is refused; what that gives is tried instead.
        """
        mailbox, finished = self._promised()
        self._send(changes, apply, otherwise, mailbox, finished, mailbox.soon)
        return finished

    def _send(
        self,
        changes: tuple[Change, ...],
        apply: Callable[[list[BranchHead]], None],
        otherwise: Otherwise | None,
        mailbox: LoopBridge,
        finished: Future[None],
        soon: Callable[[Wake], None] | None = None,
    ) -> None:
        def done(outcome: Outcome) -> Wake:
            error: Exception | None = None
            try:
                if not isinstance(outcome, SennitError):
                    self._new = None
                    apply(outcome)
                    self._erase_removed(changes)
                elif otherwise is None or (instead := otherwise(outcome)) is None:
                    error = outcome
                else:
                    self._send(instead, apply, None, mailbox, finished)
                    return mailbox.ring
            except Exception as failed:  # is for who waits: others need this thread
                error = failed
            mailbox.put(finished, error)
            return mailbox.ring

        self.group.submit(Write(self.owner, self.session, changes, self._new), done, soon)

    def _promised(self) -> tuple[LoopBridge, Future[None]]:
        """Return the callback for an outcome, and the future that waits for it."""
        mailbox = self._mailbox
        finished = None if mailbox is None else mailbox.promise()
        if mailbox is None or finished is None:
            from sennit.stores.loop_bridge import LoopBridge  # asyncio takes long to import

            mailbox = self._mailbox = LoopBridge.of_running_loop()
            finished = mailbox.promise()
            assert finished is not None
        return mailbox, finished

    def load(self) -> Snapshot:
        """All there is."""
        if self._new is not None:
            return Snapshot(self._new, [], [], [])
        return self.store.load(self.owner, self.session)

    def last_write(self) -> int:
        """Return the time of the last write, which no other write has; raises NotFoundError."""
        found = self.store.find_session(self.owner, self.session)
        if found is None:
            raise no_session(self.session)
        return found.updated

    def changes(self, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond these segments and lengths."""
        return self.store.changes(self.owner, self.session, known)

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number."""
        if self._new is not None:
            return []
        return self.store.archived(self.owner, self.session, after)


def message_record(message: Message) -> MessageRecord:
    """A message as a store keeps it."""
    return MessageRecord(message.id, message.created_us, dumps(message.to_record()))


def message_from(record: MessageRecord) -> Message:
    """The message a store kept."""
    return Message.kept(record.id, record.created, record.body)


def segment_record(segment: Segment) -> SegmentRecord:
    """A segment as a store keeps it."""
    base = None if segment.base is None else segment.base.id
    entries = tuple(segment) if segment.taken is None else ()
    return SegmentRecord(segment.id, base, segment.offset, entries, segment.taken)


def change_of(record: BranchRecord, old: Segment, new: Segment) -> ChangeBranch:
    """Return the change that replaces the tail `old` of a branch by `new`."""
    if new is old:
        return ChangeBranch(record)
    kept = {one.id.int for one, _ in old.chain()}
    added = [segment_record(one) for one, _ in new.chain() if one.id.int not in kept]
    return ChangeBranch(record, added[0], tuple(added[1:]))


def branch_record(
    branch: Branch, tail: Segment, system: UUID | None, grants: Grants
) -> BranchRecord:
    """The record to store for a branch, with the version it was last seen in."""
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


def segments_from(records: Iterable[SegmentRecord], known: dict[UUID, Segment]) -> None:
    """Put the recorded segments among the known ones: new ones whole, known ones longer.

    Raises StoreError if some build on themselves.
    """
    waiting = {record.id: record for record in records}
    while waiting:
        chain = [waiting.popitem()[1]]
        while (base := chain[-1].base) is not None and base in waiting:
            chain.append(waiting.pop(base))
        if base is not None and base not in known:
            raise circular(base)
        for record in reversed(chain):
            _put(record, known)


def _put(record: SegmentRecord, known: dict[UUID, Segment]) -> None:
    found = known.get(record.id)
    if found is not None:
        found.grow(record.entries)
        return
    base = None if record.base is None else known[record.base]
    if base is not None:
        base.shared = max(base.shared, record.offset - base.offset)
    known[record.id] = Segment(record.entries, base, record.offset, kept=True, id=record.id)
