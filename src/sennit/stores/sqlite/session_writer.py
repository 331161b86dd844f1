"""The writer of one session in SQLite, inside a transaction of the store.

It caches the tails of branches across transactions; the store discards it as soon as another
connection may have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit.errors import ExistsError
from sennit.ids import id_from_bytes
from sennit.stores.base import (
    branch_conflict,
    branch_taken,
    check_fit,
    check_source,
    misplaced,
    name_taken,
    no_branch,
    no_message,
    no_segment,
    other_content,
    segment_cycle,
)
from sennit.stores.checksums import START, entry_checksum, entry_checksums, message_checksum
from sennit.stores.detached import alone
from sennit.stores.records.commits import AddCommit, AddUses, PutCommit
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    Change,
    ChangeBranch,
    DescribeSession,
    MessageRecord,
    PutLabels,
    PutRun,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    SegmentRecord,
    TakeLease,
    single_append,
)
from sennit.stores.segment_graph import source_of
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql_json import grants_of, text_of
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.adapter import SQLiteConnection
from sennit.stores.sqlite.batch_insert import InsertBuffer, recompute_checksums
from sennit.stores.sqlite.detached import DetachedTable
from sennit.stores.sqlite.labels import LabelTable
from sennit.stores.sqlite.runs import JournalWriter
from sennit.stores.sqlite.search_rows import remove_words
from sennit.stores.sqlite.search_statements import LOWER_MARK


@dataclass(slots=True)
class _Tail:
    """The tail of a branch."""

    segment: int
    name: UUID
    length: int
    version: int
    checksum: int
    """The running checksum of the segment."""


class SessionWriter:
    """Applies changes to one session inside one transaction.

    New messages and entries are collected in the insert buffer, whose flush raises
    sqlite3.IntegrityError if an id exists. With `check_existing`, each message is looked up first,
    which costs more.
    """

    def __init__(
        self,
        rows: InsertBuffer,
        owner: int,
        session: int,
        numbers: Iterator[int],
        *,
        empty: bool = False,
    ) -> None:
        """Write to a session; an `empty` one was just added, so lookups in it are skipped."""
        connection = rows.connection
        self.key = (owner, session)
        self._rows = rows
        self._run = connection.execute
        self._owner, self._session, self._numbers = owner, session, numbers
        self._new: dict[int, int] = {}  # ids to numbers of messages that this write added
        self._appended: dict[int, list[int]] = {}  # messages that it appended, by branch
        self._heads: list[BranchHead] = []
        self._tails: dict[int, _Tail] = {}  # cache by branch
        self._empty = empty  # True only if the session has no branches
        self._journals = JournalWriter(rows, owner, session)
        self._commits = CommitTable(SQLiteConnection(connection), owner, session, empty=empty)
        self._labels = LabelTable(connection, owner, session)
        self._detached = DetachedTable(connection, owner, session)
        self._unplaced: set[int] = set()  # messages that this write added to no branch yet

    def apply(self, changes: Sequence[Change], *, check_existing: bool) -> list[BranchHead]:
        """Apply the changes of one write; return the head before each Append and TakeLease."""
        if not check_existing and (append := single_append(changes)):
            return [self._append_message(*append)]
        self._new, self._appended, self._heads = {}, {}, []
        self._unplaced.clear()
        self._detached.begin()
        for change in changes:
            if isinstance(change, AddMessages):
                for message in change.messages:
                    self._add_message(message, check_existing)
            elif isinstance(change, Append):
                self._append(change)
            elif isinstance(change, TakeLease):
                self._take_lease(change)
            elif isinstance(change, PutRun):
                self._journals.put_run(change)
            elif isinstance(change, AddEvents):
                if change.starts:
                    self._rows.flush()  # starts refer to request messages
                self._journals.add_events(change, self._new)
            elif isinstance(change, (AddCommit, PutCommit, AddUses)):
                self._rows.flush()
                self._commits.apply(change, self._detached)
            elif isinstance(change, PutLabels):
                self._labels.put(change, self._number)
            elif isinstance(change, PutStarts):
                self._journals.put_starts(change, self._number)
            elif isinstance(change, DescribeSession):
                metadata = text_of(change.metadata)
                self._run(sql.DESCRIBE_SESSION, (metadata, self._owner, self._session))
            else:
                self._rows.flush()
                self._tails.clear()  # about to change
                self._change_branches(change)
        self._detached.settle()
        if self._unplaced:
            self._rows.flush()
            self._detached.detach(self._unplaced, None)
        return self._heads

    def _append_message(self, message: MessageRecord, branch: UUID) -> BranchHead:
        """Append one new message to a branch."""
        tail = self._tail(branch)
        number, length, rows = next(self._numbers), tail.length, self._rows
        uid, created, body = message.id.bytes, message.created, message.body
        checksum = message_checksum(uid, created, body)
        rows.messages.append((number, self._owner, self._session, uid, created, body, checksum))
        tail.checksum = entry_checksum(tail.checksum, uid)
        rows.entries.append((self._owner, tail.segment, length, number, tail.checksum))
        tail.length = length + 1
        return BranchHead(branch, tail.name, length, tail.version)

    def _change_branches(
        self, change: AddBranch | ChangeBranch | RenameBranch | RemoveBranch | RemoveMessages
    ) -> None:
        match change:
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
        self._rows.flush()

    def _take_lease(self, change: TakeLease) -> None:
        """Acquire the lease of a branch; raises ConflictError if it is held."""
        tail = self._tail(change.branch)
        head = BranchHead(change.branch, tail.name, tail.length, tail.version)
        taken = self._journals.take(change, self._commits.last())
        self._heads.append(head.with_grant(taken))

    def forget_lease(self, branch: UUID) -> None:
        """Drop the cached lease of a branch."""
        self._journals.forget_lease(branch)

    def _add_message(self, message: MessageRecord, check_existing: bool) -> None:
        if check_existing and self._is_stored(message):
            return
        number = next(self._numbers)
        uid, created, body = message.id.bytes, message.created, message.body
        checksum = message_checksum(uid, created, body)
        self._rows.messages.append(
            (number, self._owner, self._session, uid, created, body, checksum)
        )
        self._new[message.id.int] = number
        self._unplaced.add(number)

    def _is_stored(self, message: MessageRecord) -> bool:
        row = self._find(message.id)
        if row is None:
            return False
        _, created, body = row
        if (created, body) != (message.created, message.body):
            raise other_content(message.id)
        return True

    def _find(self, message: UUID) -> Any:
        self._rows.flush()
        key = (self._owner, self._session, message.bytes)
        return self._run(sql.FIND_MESSAGE, key).fetchone()

    def _number(self, uid: UUID) -> int:
        """Return the number of a stored message; raises NotFoundError."""
        number = self._new.get(uid.int)
        if number is not None:
            return number
        row = self._find(uid)
        if row is None:
            raise no_message(uid)
        return row[0]

    def _append(self, change: Append) -> None:
        numbers = [self._number(uid) for uid in change.entries]
        tail = self._tail(change.branch)
        length = position = tail.length
        if len(numbers) > 1 and len(set(numbers)) < len(numbers):
            raise ExistsError(f"Branch {change.branch} would contain a message twice.")
        # A message that this write added is on no branch, unless this write has appended it.
        all_new = all(uid.int in self._new for uid in change.entries)
        earlier = self._appended.get(change.branch.int, [])
        if not all_new or not set(earlier).isdisjoint(numbers):
            self._rows.flush()
            position = self._find_repeated(change, numbers, tail.segment, length)
        self._heads.append(BranchHead(change.branch, tail.name, position, tail.version))
        if position == length and numbers:
            if not all_new:
                self._detached.attach(numbers)
            self._append_entries(tail, change.entries, numbers)
            self._appended[change.branch.int] = earlier + numbers

    def _tail(self, branch: UUID) -> _Tail:
        """Return the tail of a branch, including buffered appends; raises NotFoundError."""
        tail = self._tails.get(branch.int)
        if tail is None:
            key = (self._owner, self._session, branch.bytes)
            row = self._run(sql.FIND_BRANCH, key).fetchone()
            if row is None:
                raise no_branch(branch)
            segment, name, length, version, checksum, _ = row
            tail = _Tail(segment, id_from_bytes(name), length, version, checksum)
            self._tails[branch.int] = tail
        return tail

    def _find_repeated(self, change: Append, numbers: list[int], segment: int, length: int) -> int:
        """Return the position of a repeated append, or `length` if it is new."""
        positions = [self._find_position(segment, length, number) for number in numbers]
        if all(position is None for position in positions):
            return length
        if None in positions:
            raise ExistsError(f"Branch {change.branch} already contains some of these messages.")
        return min(position for position in positions if position is not None)

    def _find_position(self, segment: int, length: int, message: int) -> int | None:
        """Return the position of a message in a segment, -1 if it is below, or None."""
        row = self._run(sql.FIND_ENTRY, (self._owner, segment, length, message)).fetchone()
        if row is not None:
            return row[0]
        _, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
        visited = {segment}
        while base is not None:
            if base in visited:
                raise segment_cycle(base)
            visited.add(base)
            above = start
            number, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, base)).fetchone()
            key = (self._owner, number, above - start, message)
            if self._run(sql.FIND_ENTRY, key).fetchone() is not None:
                return -1
        return None

    def _append_entries(self, tail: _Tail, uids: Sequence[UUID], numbers: Sequence[int]) -> None:
        """Append entries to a segment."""
        self._unplaced.difference_update(numbers)
        rolled = entry_checksums(tail.checksum, (uid.bytes for uid in uids))
        for number, checksum in zip(numbers, rolled, strict=True):
            self._rows.entries.append((self._owner, tail.segment, tail.length, number, checksum))
            tail.length, tail.checksum = tail.length + 1, checksum

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        key = (self._owner, self._session)
        key_and_name = (*key, branch.id.bytes, branch.name)
        matches = [] if self._empty else self._run(sql.BRANCHES_LIKE, key_and_name).fetchall()
        if matches:
            expected = (branch.id.bytes, branch.name, self._segment_number(segment.id))
            if matches == [expected]:
                return
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._tail(source).version)
        system = self._system_number(branch.system)
        self._detached.replaced(None, system)
        tail = self._add_segment(segment)
        self._run(
            sql.ADD_BRANCH,
            (
                *key,
                branch.id.bytes,
                branch.name,
                branch.created,
                system,
                tail.segment,
                *grants_of(branch),
                text_of(branch.metadata),
            ),
        )
        self._empty = False
        self._tails[branch.id.int] = tail
        self._journals.begin(branch.id)

    def _segment_number(self, uid: UUID) -> int | None:
        row = self._run(sql.FIND_SEGMENT, (self._owner, self._session, uid.bytes)).fetchone()
        return row[0] if row else None

    def _add_segment(self, segment: SegmentRecord) -> _Tail:
        """Add a segment; return it as the tail of a new branch."""
        base = self._find_base(segment)
        values = (self._owner, self._session, segment.id.bytes, base, segment.offset)
        number = self._run(sql.ADD_SEGMENT, values).fetchone()[0]
        if any(uid.int not in self._new for uid in segment.entries):
            self._detached.shows(number)
        tail = _Tail(number, segment.id, 0, 0, START)
        self._append_entries(tail, segment.entries, [self._number(uid) for uid in segment.entries])
        return tail

    def _find_base(self, segment: SegmentRecord) -> int | None:
        """Return the number of a new segment's base; raises ValidationError if it does not fit."""
        self._rows.flush()  # the base may be new
        if not self._empty and self._segment_number(segment.id) is not None:
            raise ExistsError(f"Segment {segment.id} already exists.")
        base, start, below = None, 0, 0
        if segment.base is not None:
            key = (self._owner, self._session, segment.base.bytes)
            row = self._run(sql.SEGMENT_SIZE, key).fetchone()
            if row is None:
                raise no_segment(segment.base)
            base, start, below = row
            if self._detached.any():
                self._detached.watch([base])
        if not start <= segment.offset <= below:
            raise misplaced(segment, start, below)
        return base

    def _add_chain(self, segments: Sequence[SegmentRecord], tail: int) -> int:
        """Add segments for the branch that ends with `tail`; return the last one's number."""
        taken = [
            self._segment_number(segment.taken) for segment in segments if segment.taken is not None
        ]
        uses = self._detached.watch([tail, *(number for number in taken if number is not None)])
        spare = alone(uses, tail)
        self._detached.watch(base for number in spare if (base := uses[number].base) is not None)
        for segment in segments:
            takes = segment.taken is not None
            tail = self._take_over(segment, spare) if takes else self._add_segment(segment).segment
        return tail

    def _take_over(self, segment: SegmentRecord, spare: set[int]) -> int:
        """Move the segment whose entries are taken over, or copy it if others use it."""
        base = self._find_base(segment)
        number = self._segment_number(segment.taken) if segment.taken else None
        if number is None:
            raise no_segment(segment.taken or segment.id)
        if number in spare:
            values = (segment.id.bytes, base, segment.offset)
            self._run(sql.MOVE_SEGMENT, (*values, self._owner, number))
        else:
            values = (self._owner, self._session, segment.id.bytes, base, segment.offset)
            taken, number = number, self._run(sql.ADD_SEGMENT, values).fetchone()[0]
            self._run(sql.COPY_ENTRIES, (number, self._owner, taken))
            self._detached.shows(number)
        return number

    def _system_number(self, uid: UUID | None) -> int | None:
        if uid is None:
            return None
        number = self._number(uid)
        self._unplaced.discard(number)
        return number

    def _change_branch(self, change: ChangeBranch) -> None:
        branch, segments = change.branch, change.segments
        key = (self._owner, self._session, branch.id.bytes)
        row = self._run(sql.FIND_BRANCH, key).fetchone()
        if row is None:
            raise no_branch(branch.id)
        tail, tail_id, length, version, _, old_system = row
        if segments and segments[-1].id.bytes == tail_id:
            return  # a retry after a lost acknowledgement
        if version != branch.version or (segments and length != branch.length):
            raise branch_conflict(branch)
        if segments:
            tail = self._add_chain(segments, tail)
        system = self._system_number(branch.system)
        self._detached.replaced(old_system, system)
        self._run(
            sql.CHANGE_BRANCH,
            (
                system,
                tail,
                *grants_of(branch),
                *key,
            ),
        )

    def _rename_branch(self, change: RenameBranch) -> None:
        key, uid = (self._owner, self._session), change.branch.bytes
        matches = [row[0] for row in self._run(sql.BRANCHES_LIKE, (*key, uid, change.name))]
        if uid not in matches:
            raise no_branch(change.branch)
        if len(matches) > 1:
            raise name_taken(change.name)
        self._run(sql.RENAME_BRANCH, (change.name, *key, uid))

    def _remove_branch(self, uid: UUID) -> None:
        key = (self._owner, self._session, uid.bytes)
        row = self._run(sql.FIND_BRANCH, key).fetchone()
        if row is None:
            raise no_branch(uid)
        self._detached.watch([row[0]])
        self._detached.replaced(row[5], None)
        self._run(sql.DELETE_BRANCH, key)
        self._journals.forget_branch(uid)

    def _erase(self, uids: Sequence[UUID]) -> None:
        """Erase messages from segments, branches, journals and the index."""
        first_gaps: dict[int, int] = {}
        numbers: list[int] = []
        for uid in uids:
            key = (self._owner, self._session, uid.bytes)
            row = self._run(sql.FIND_MESSAGE, key).fetchone()
            if row is not None:
                numbers.append(row[0])
                for segment, position in self._erase_message(*row):
                    first_gaps[segment] = min(position, first_gaps.get(segment, position))
        for segment, position in first_gaps.items():
            recompute_checksums(self._rows.connection, self._owner, segment, position)
        self._journals.forget_messages(uids, numbers)

    def _erase_message(self, number: int, created: int, body: bytes) -> list[tuple[int, int]]:
        """Erase a message; return the segments and positions of its entries."""
        self._run(sql.FORGET_SYSTEM, (self._owner, self._session, number))
        positions = self._run(sql.ENTRIES_OF_MESSAGE, (self._owner, number)).fetchall()
        for segment, position in positions:
            self._close_gap(segment, position)
        if not self._detached.forget(number):
            remove_words(self._rows.connection, number, created, body)
        self._unplaced.discard(number)
        self._commits.forget_messages([number])
        self._labels.forget_message(number)
        self._run(sql.DELETE_MESSAGE, (self._owner, number))
        self._run(LOWER_MARK)
        return positions

    def _close_gap(self, segment: int, position: int) -> None:
        """Delete an entry, and renumber the entries after it and the segments above it."""
        key = (self._owner, self._session)
        _, _, _, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
        self._run(sql.DELETE_ENTRY, (self._owner, segment, position))
        self._run(sql.LIFT_ENTRIES, (self._owner, segment, position))
        self._run(sql.LOWER_ENTRIES, (self._owner, segment))
        self._run(sql.TOUCH_BRANCHES, (*key, segment))
        values = {"owner": key[0], "session": key[1], "segment": segment, "place": start + position}
        for (number,) in self._run(sql.MOVE_STARTS, values).fetchall():
            self._run(sql.TOUCH_BRANCHES, (*key, number))

    def erase_removed(self, before: int, limit: int) -> list[UUID]:
        """Erase up to `limit` messages that were removed before a time; return their ids."""
        removed = self._detached.removed(before, limit)
        self._erase(removed)
        return removed
