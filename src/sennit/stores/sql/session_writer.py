"""The rules of writing to a session, the same for every SQL store.

A store implements the primitives on rows. Messages and segments are numbered by the store. Each
writer works inside one transaction, in which no other writer changes the session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol
from uuid import UUID

from sennit.errors import ExistsError
from sennit.stores.base import (
    branch_conflict,
    branch_taken,
    check_append,
    check_fit,
    check_source,
    misplaced,
    name_taken,
    no_branch,
    no_message,
    no_segment,
)
from sennit.stores.detached import DetachedMessages, alone
from sennit.stores.records.blobs import names_blobs
from sennit.stores.records.commits import AddCommit, AddUses, PutCommit
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    BranchRecord,
    Change,
    ChangeBranch,
    DescribeSession,
    LeaseGrant,
    MessageRecord,
    PutLabels,
    PutRun,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    RequireBlobs,
    SegmentRecord,
    TakeLease,
)
from sennit.stores.segment_graph import lost_below, source_of
from sennit.stores.sql.blobs import BlobTable
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql_json import text_of


@dataclass(slots=True)
class Tail:
    """A segment that a branch ends with, or will end with."""

    segment: int
    id: UUID
    length: int
    checksum: Any
    """The running checksum of the segment; None if it is not known."""
    name: str = ""
    """The name of the branch."""
    version: int = 0
    system: int | None = None


class StoredSegment(NamedTuple):
    """The number of a segment, and its first and end position in its history."""

    number: int
    start: int
    end: int


class Journals(Protocol):
    """The runs, events and leases of the session."""

    def take(self, change: TakeLease, commits: int) -> LeaseGrant: ...
    def put_run(self, change: PutRun) -> None: ...
    def add_events(self, change: AddEvents, new: Mapping[UUID, int]) -> None: ...
    def put_starts(self, change: PutStarts, numbers: Sequence[int]) -> None: ...
    def delete_branch(self, branch: UUID) -> None: ...
    def delete_messages(self, messages: Sequence[UUID], numbers: Sequence[int]) -> None: ...


class SessionWriter(ABC):
    """Applies changes to one session inside one transaction."""

    sql: ClassVar[Any]
    """The store's statements, by names that all stores share."""
    start: ClassVar[Any]
    """The running checksum of an empty segment."""

    def __init__(
        self,
        key: tuple[int, int],
        journals: Journals,
        commits: CommitTable,
        detached: DetachedMessages,
        blobs: BlobTable,
    ) -> None:
        """Write to a session, given by its owner's number and its own."""
        self.key = key
        self._owner, self._session = key
        self._blobs = blobs
        self._journals, self._commits, self._detached = journals, commits, detached
        self._new: dict[UUID, int] = {}  # ids to numbers of messages that this write added
        self._unplaced: set[int] = set()  # those that are on no branch yet
        self._tails: dict[UUID, Tail] = {}  # cache by branch
        self._heads: list[BranchHead] = []

    @abstractmethod
    def _run(self, statement: Any, values: Sequence[Any]) -> Any:
        """Run a statement after all buffered inserts; return its cursor."""

    @abstractmethod
    def _run_many(self, statement: Any, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""

    @abstractmethod
    def _flush(self) -> None:
        """Insert buffered rows."""

    @abstractmethod
    def _column(self, uid: UUID) -> Any:
        """Return an id as a column value."""

    @abstractmethod
    def _add_messages(self, messages: Sequence[MessageRecord]) -> dict[UUID, int]:
        """Add messages that do not exist; return their numbers.

        Raises ExistsError if one exists with another content.
        """

    @abstractmethod
    def _find_numbers(self, messages: Sequence[UUID]) -> dict[UUID, int]:
        """Return the numbers of those messages that exist."""

    @abstractmethod
    def _find_tail(self, branch: UUID) -> Tail | None:
        """Return the tail of a branch."""

    @abstractmethod
    def _find_positions(self, tail: Tail, messages: Sequence[int]) -> dict[int, int]:
        """Return the positions of messages in a segment, -1 if they are below it."""

    @abstractmethod
    def _find_segment(self, uid: UUID) -> StoredSegment | None:
        """Return a segment."""

    @abstractmethod
    def _add_entries(
        self, segment: int, first: int, checksum: Any, entries: Sequence[tuple[int, bytes]]
    ) -> Any:
        """Add entries, as numbers and ids of messages, from position `first`, of which `checksum`
        is the running checksum; return the last one's."""

    @abstractmethod
    def _grow_branch(self, branch: UUID, tail: Tail) -> None:
        """Store that a branch has grown."""

    @abstractmethod
    def _branches_like(self, uid: UUID, name: str) -> list[tuple[UUID, str, UUID]]:
        """Return id, name and segment id of branches with that id or name."""

    @abstractmethod
    def _add_branch_row(self, branch: BranchRecord, system: int | None, tail: Tail) -> None: ...

    @abstractmethod
    def _change_branch_row(self, branch: BranchRecord, system: int | None, tail: Tail) -> None: ...

    @abstractmethod
    def _take_entries(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        """Delete the entries of messages; return their segments and positions."""

    @abstractmethod
    def _entries_from(self, segment: int, first: int) -> tuple[Any, list[tuple[int, bytes]]]:
        """Return the running checksum before a position, and the entries from there on."""

    @abstractmethod
    def _touch_branches(self, segments: Sequence[int], messages: Sequence[int]) -> None:
        """Raise the version of branches that end with these segments or have these system messages.

        The system messages are taken away: they are about to be erased.
        """

    @abstractmethod
    def _erase_rows(self, messages: Sequence[int]) -> None:
        """Delete messages with their words and labels."""

    def apply(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Apply the changes of one write; return the head before each Append and TakeLease."""
        self._new, self._heads = {}, []
        self._unplaced.clear()
        self._detached.begin()
        for change in changes:
            self._apply(change)
        if self._unplaced or self._detached.is_changed():
            self._flush()
            self._detached.settle()
            self._detached.detach(self._unplaced, None)
        return self._heads

    def _apply(self, change: Change) -> None:
        match change:
            case AddMessages():
                added = self._add_messages(change.messages)
                self._new |= added
                self._unplaced.update(added.values())
                if names_blobs(change.messages):
                    self._blobs.refer(
                        self._session,
                        [(added[it.id], it) for it in change.messages if it.id in added],
                    )
            case Append():
                self._append(change)
            case AddEvents():
                self._journals.add_events(change, self._new)
            case PutRun():
                self._journals.put_run(change)
            case TakeLease():
                self._take_lease(change)
            case _:
                self._flush()
                self._apply_rare(change)

    def _apply_rare(self, change: Change) -> None:
        match change:
            case AddCommit() | PutCommit() | AddUses():
                self._commits.apply(change, self._detached)
            case PutLabels():
                self._put_labels(change)
            case PutStarts():
                numbers = self._numbers([message for message, _ in change.starts])
                self._journals.put_starts(change, numbers)
            case RequireBlobs():
                self._blobs.require(change.hashes)
            case DescribeSession():
                self._run(self.sql.DESCRIBE_SESSION, (text_of(change.metadata), *self.key))
            case AddBranch():
                self._add_branch(change)
            case ChangeBranch():
                self._change_branch(change)
            case RenameBranch():
                self._rename_branch(change)
            case RemoveBranch():
                self._remove_branch(change.branch)
            case RemoveMessages():
                self._detached.settle()  # drops unused segments, which need no renumbering
                self._erase(change.messages)
            case _:
                pass  # the frequent ones

    def _numbers(self, uids: Sequence[UUID]) -> list[int]:
        """Return the numbers of stored messages; raises NotFoundError."""
        numbers = list(map(self._new.get, uids))
        new = [number for number in numbers if number is not None]
        if len(new) == len(uids):
            return new
        found = self._find_numbers([uid for uid in uids if uid not in self._new])
        try:
            return [self._new.get(uid) or found[uid] for uid in uids]
        except KeyError as error:
            raise no_message(error.args[0]) from None

    def _put_labels(self, change: PutLabels) -> None:
        numbers = self._numbers([label.message for label in change.labels])
        for label, number in zip(change.labels, numbers, strict=True):
            key = (*self.key, number, label.judge)
            if label.score is None:
                self._run(self.sql.DELETE_LABEL, key)
            else:
                self._run(self.sql.PUT_LABEL, (*key, label.score, label.created))

    def _take_lease(self, change: TakeLease) -> None:
        tail = self._tail(change.branch)
        head = BranchHead(change.branch, tail.id, tail.length, tail.version)
        self._heads.append(head.with_grant(self._journals.take(change, self._commits.last())))

    def _tail(self, branch: UUID) -> Tail:
        """Return the tail of a branch; raises NotFoundError."""
        tail = self._tails.get(branch)
        if tail is None:
            tail = self._find_tail(branch)
            if tail is None:
                raise no_branch(branch)
            self._tails[branch] = tail
        return tail

    def _append(self, change: Append) -> None:
        numbers = self._numbers(change.entries)
        tail = self._tail(change.branch)
        position, is_new = tail.length, self._unplaced.issuperset(numbers)
        if not is_new:
            position = self._find_repeated(tail, numbers)
        self._heads.append(BranchHead(change.branch, tail.id, position, tail.version))
        if position == tail.length and numbers:
            check_append(tail.name, change, tail.id, position)
            if len(set(numbers)) < len(numbers):
                raise ExistsError(f"Branch {tail.name!r} would contain a message twice.")
            if not (is_new or self._new.keys() >= set(change.entries)):
                self._detached.attach(numbers)
            self._extend(tail, change.entries, numbers)
            self._grow_branch(change.branch, tail)

    def _find_repeated(self, tail: Tail, numbers: list[int]) -> int:
        """Return the position of a repeated append, or the length of the segment if it is new."""
        positions = self._find_positions(tail, numbers)
        if positions and len(positions) < len(set(numbers)):
            raise ExistsError(f"Branch {tail.name!r} already contains some of these messages.")
        return min(positions.values(), default=tail.length)

    def _extend(self, tail: Tail, uids: Sequence[UUID], numbers: Sequence[int]) -> None:
        """Append entries to a segment."""
        if not numbers:
            return
        entries = [(number, uid.bytes) for number, uid in zip(numbers, uids, strict=True)]
        tail.checksum = self._add_entries(tail.segment, tail.length, tail.checksum, entries)
        tail.length += len(numbers)
        self._unplaced.difference_update(numbers)

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        matches = self._branches_like(branch.id, branch.name)
        if matches == [(branch.id, branch.name, segment.id)]:
            return  # a retry after a lost acknowledgement
        if matches:
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._tail(source).version)
        system = self._system_number(branch.system)
        self._detached.replaced(None, system)
        tail = self._add_segment(segment)
        tail.name, tail.system = branch.name, system
        self._add_branch_row(branch, system, tail)
        self._tails[branch.id] = tail

    def _add_segment(self, segment: SegmentRecord) -> Tail:
        """Add a segment with its entries."""
        number = self._add_segment_row(segment, self._find_base(segment))
        numbers = self._numbers(segment.entries)
        if not self._new.keys() >= set(segment.entries):
            self._detached.shows(number)
        tail = Tail(number, segment.id, 0, self.start)
        self._extend(tail, segment.entries, numbers)
        return tail

    def _add_segment_row(self, segment: SegmentRecord, base: int | None) -> int:
        values = (*self.key, self._column(segment.id), base, segment.offset)
        return self._run(self.sql.ADD_SEGMENT, values).fetchone()[0]

    def _find_base(self, segment: SegmentRecord) -> int | None:
        """Return the number of a new segment's base; raises ValidationError if it does not fit."""
        if self._find_segment(segment.id) is not None:
            raise ExistsError(f"Segment {segment.id} already exists.")
        base, start, end = None, 0, 0
        if segment.base is not None:
            base, start, end = self._stored_segment(segment.base)
            if self._detached.any():
                self._detached.watch([base])
        if not start <= segment.offset <= end:
            raise misplaced(segment, start, end)
        return base

    def _stored_segment(self, uid: UUID) -> StoredSegment:
        segment = self._find_segment(uid)
        if segment is None:
            raise no_segment(uid)
        return segment

    def _add_chain(self, segments: Sequence[SegmentRecord], tail: Tail) -> Tail:
        """Add segments for a branch in place of its tail; return the new tail."""
        taken = [self._stored_segment(it.taken).number for it in segments if it.taken is not None]
        uses = self._detached.watch([tail.segment, *taken])
        spare = alone(uses, tail.segment)
        self._detached.watch(base for number in spare if (base := uses[number].base) is not None)
        for segment in segments:
            if segment.taken is None:
                tail = self._add_segment(segment)
            else:
                tail = self._take_over(segment, self._stored_segment(segment.taken), spare)
        return tail

    def _take_over(self, segment: SegmentRecord, taken: StoredSegment, spare: set[int]) -> Tail:
        """Move the segment whose entries are taken over, or copy it if others use it."""
        number, base = taken.number, self._find_base(segment)
        if number in spare:
            values = (self._column(segment.id), base, segment.offset, *self.key, number)
            self._run(self.sql.MOVE_SEGMENT, values)
        else:
            number = self._add_segment_row(segment, base)
            self._run(self.sql.COPY_ENTRIES, (number, self._owner, taken.number))
            self._detached.shows(number)
        return Tail(number, segment.id, taken.end - taken.start, None)

    def _system_number(self, uid: UUID | None) -> int | None:
        if uid is None:
            return None
        (number,) = self._numbers([uid])
        self._unplaced.discard(number)
        return number

    def _change_branch(self, change: ChangeBranch) -> None:
        branch, segments = change.branch, change.segments
        tail = old = self._tail(branch.id)
        if segments and segments[-1].id == tail.id:
            return  # a retry after a lost acknowledgement
        if tail.version != branch.version or (segments and tail.length != branch.length):
            raise branch_conflict(branch)
        self._tails.clear()  # a segment that is moved may be another branch's tail
        if segments:
            tail = self._add_chain(segments, tail)
        system = self._system_number(branch.system)
        self._detached.replaced(old.system, system)
        self._change_branch_row(branch, system, tail)

    def _rename_branch(self, change: RenameBranch) -> None:
        matches = [uid for uid, _, _ in self._branches_like(change.branch, change.name)]
        if change.branch not in matches:
            raise no_branch(change.branch)
        if len(matches) > 1:
            raise name_taken(change.name)
        self._tails.pop(change.branch, None)
        values = (change.name, *self.key, self._column(change.branch))
        self._run(self.sql.RENAME_BRANCH, values)

    def _remove_branch(self, uid: UUID) -> None:
        tail = self._tail(uid)
        self._detached.watch([tail.segment])
        self._detached.replaced(tail.system, None)
        self._run(self.sql.DELETE_BRANCH, (*self.key, self._column(uid)))
        self._journals.delete_branch(uid)
        self._tails.clear()

    def _erase(self, uids: Sequence[UUID]) -> None:
        """Erase messages from segments, branches, commits, journals and the index."""
        numbers = list(self._find_numbers(uids).values())
        if numbers:
            gaps: dict[int, list[int]] = {}
            for segment, position in self._take_entries(numbers):
                gaps.setdefault(segment, []).append(position)
            for segment, positions in gaps.items():
                self._close_gaps(segment, min(positions))
            moved = self._move_starts(gaps) if gaps else []
            self._touch_branches(list({*gaps, *moved}), numbers)
            self._commits.forget_messages(numbers)
            self._blobs.forget_messages(self._session, numbers)
            self._erase_rows(numbers)
            self._tails.clear()
            self._unplaced.difference_update(numbers)
            self._new = {uid: number for uid, number in self._new.items() if uid not in uids}
        self._journals.delete_messages(uids, numbers)

    def _close_gaps(self, segment: int, first: int) -> None:
        """Renumber the entries of a segment from its first gap on."""
        checksum, entries = self._entries_from(segment, first)
        self._run(self.sql.DELETE_ENTRIES_FROM, (self._owner, segment, first))
        if entries:
            self._add_entries(segment, first, checksum, entries)

    def _move_starts(self, gaps: Mapping[int, list[int]]) -> list[int]:
        """Lower the start of segments above erased entries; return those segments."""
        rows = {row[0]: row for row in self._run(self.sql.SEGMENTS, self.key).fetchall()}
        lost = lost_below(rows, gaps)
        moved = [number for number, count in lost.items() if count]
        starts = [(rows[number][3] - lost[number], *self.key, number) for number in moved]
        self._run_many(self.sql.SET_START, starts)
        return moved
