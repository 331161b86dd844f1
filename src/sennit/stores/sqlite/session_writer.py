"""Writing of one session in SQLite, inside one transaction.

The store opens connections and transactions; what happens inside one, for one session of one owner,
happens here. A writer remembers where branches end from one transaction to the next; the store
throws it away as soon as anyone else may have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit.errors import ExistsError
from sennit.ids import id_from_bytes
from sennit.stores.base import (
    branch_taken,
    changed_meanwhile,
    check_fit,
    check_source,
    circular,
    misplaced,
    name_taken,
    no_branch,
    no_message,
    no_segment,
    other_content,
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
    usual,
)
from sennit.stores.segment_graph import source_of
from sennit.stores.sql_json import grants_of, text_of
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.batch_insert import InsertBuffer, roll_again
from sennit.stores.sqlite.commits import CommitTable
from sennit.stores.sqlite.detached import DetachedTable
from sennit.stores.sqlite.labels import LabelTable
from sennit.stores.sqlite.runs import JournalWriter
from sennit.stores.sqlite.search import forget_words
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
    """Makes changes to one session inside one transaction.

    New messages and entries gather in the rows of the transaction. To write those down raises
    sqlite3.IntegrityError if an id is there already; being careful looks at each message first,
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
        """An `empty` session has just been added, so nothing has to be looked for in it."""
        connection = rows.connection
        self.key = (owner, session)
        self._rows = rows
        self._run = connection.execute
        self._owner, self._session, self._numbers = owner, session, numbers
        self._new: dict[int, int] = {}  # messages this write has added, and their numbers
        self._appended: dict[int, list[int]] = {}  # what it has put on which branch
        self._heads: list[BranchHead] = []
        self._tails: dict[int, _Tail] = {}  # where branches end
        self._empty = empty  # whether there is certainly no branch yet
        self._journals = JournalWriter(rows, owner, session)
        self._commits = CommitTable(connection, owner, session, empty=empty)
        self._labels = LabelTable(connection, owner, session)
        self._detached = DetachedTable(connection, owner, session)
        self._loose: set[int] = set()  # messages this write has added that stand nowhere yet

    def apply(self, changes: Sequence[Change], *, careful: bool) -> list[BranchHead]:
        """Make the changes of one write; gives the head before each Append."""
        if not careful and (found := usual(changes)):
            return [self._say(*found)]
        self._new, self._appended, self._heads = {}, {}, []
        self._loose.clear()
        self._detached.begin()
        for change in changes:
            if isinstance(change, AddMessages):
                for message in change.messages:
                    self._add_message(message, careful)
            elif isinstance(change, Append):
                self._append(change)
            elif isinstance(change, TakeLease):
                self._take(change)
            elif isinstance(change, PutRun):
                self._journals.put_run(change)
            elif isinstance(change, AddEvents):
                if change.starts:
                    self._rows.write_down()  # the messages that ask for them
                self._journals.add_events(change, self._new)
            elif isinstance(change, (AddCommit, PutCommit, AddUses)):
                self._rows.write_down()
                self._commits.apply(change)
            elif isinstance(change, PutLabels):
                self._labels.put(change, self._number)
            elif isinstance(change, PutStarts):
                self._journals.put_starts(change, self._number)
            elif isinstance(change, DescribeSession):
                told = text_of(change.metadata)
                self._run(sql.DESCRIBE_SESSION, (told, self._owner, self._session))
            else:
                self._rows.write_down()
                self._tails.clear()  # they are about to change
                self._change(change)
        self._detached.settle()
        if self._loose:
            self._rows.write_down()
            self._detached.detach(self._loose, None)
        return self._heads

    def _say(self, message: MessageRecord, branch: UUID) -> BranchHead:
        """Put a new message at the end of a branch."""
        tail = self._tail(branch)
        number, length, rows = next(self._numbers), tail.length, self._rows
        uid, created, body = message.id.bytes, message.created, message.body
        checksum = message_checksum(uid, created, body)
        rows.messages.append((number, self._owner, self._session, uid, created, body, checksum))
        tail.checksum = entry_checksum(tail.checksum, uid)
        rows.entries.append((self._owner, tail.segment, length, number, tail.checksum))
        tail.length = length + 1
        return BranchHead(branch, tail.name, length, tail.version)

    def _change(
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
                self._detached.settle()  # unused segments need not be mended
                self._erase(change.messages)
        self._rows.write_down()

    def _take(self, change: TakeLease) -> None:
        """Take the lease of a branch; raises ConflictError if it is held."""
        tail = self._tail(change.branch)
        head = BranchHead(change.branch, tail.name, tail.length, tail.version)
        taken = self._journals.take(change, self._commits.last())
        self._heads.append(head.with_taken(taken))

    def forget_lease(self, branch: UUID) -> None:
        """Look again who holds a branch before something is noted there."""
        self._journals.forget_lease(branch)

    def _add_message(self, message: MessageRecord, careful: bool) -> None:
        if careful and self._is_there(message):
            return
        number = next(self._numbers)
        uid, created, body = message.id.bytes, message.created, message.body
        checksum = message_checksum(uid, created, body)
        self._rows.messages.append(
            (number, self._owner, self._session, uid, created, body, checksum)
        )
        self._new[message.id.int] = number
        self._loose.add(number)

    def _is_there(self, message: MessageRecord) -> bool:
        found = self._find(message.id)
        if found is None:
            return False
        _, created, body = found
        if (created, body) != (message.created, message.body):
            raise other_content(message.id)
        return True

    def _find(self, message: UUID) -> Any:
        self._rows.write_down()
        key = (self._owner, self._session, message.bytes)
        return self._run(sql.FIND_MESSAGE, key).fetchone()

    def _number(self, uid: UUID) -> int:
        """The number of a stored message; raises NotFoundError."""
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
        length = at = tail.length
        if len(numbers) > 1 and len(set(numbers)) < len(numbers):
            raise ExistsError(f"Branch {change.branch} would contain a message twice.")
        # What this very write has added stands on no branch, unless it was appended to it since.
        fresh = all(uid.int in self._new for uid in change.entries)
        before = self._appended.get(change.branch.int, [])
        if not fresh or not set(before).isdisjoint(numbers):
            self._rows.write_down()
            at = self._repeated(change, numbers, tail.segment, length)
        self._heads.append(BranchHead(change.branch, tail.name, at, tail.version))
        if at == length and numbers:
            if not fresh:
                self._detached.attach(numbers)
            self._put(tail, change.entries, numbers)
            self._appended[change.branch.int] = before + numbers

    def _tail(self, branch: UUID) -> _Tail:
        """Return the tail of a branch, including appends of this transaction."""
        found = self._tails.get(branch.int)
        if found is None:
            key = (self._owner, self._session, branch.bytes)
            row = self._run(sql.FIND_BRANCH, key).fetchone()
            if row is None:
                raise no_branch(branch)
            segment, name, length, version, checksum, _ = row
            found = _Tail(segment, id_from_bytes(name), length, version, checksum)
            self._tails[branch.int] = found
        return found

    def _repeated(self, change: Append, numbers: list[int], segment: int, length: int) -> int:
        """Return the position of an append made before, or `length` if it is new."""
        places = [self._place(segment, length, number) for number in numbers]
        if all(place is None for place in places):
            return length
        if None in places:
            raise ExistsError(f"Branch {change.branch} already contains some of these messages.")
        return min(place for place in places if place is not None)

    def _place(self, segment: int, length: int, message: int) -> int | None:
        """Return the position of a message in a segment; negative below it."""
        found = self._run(sql.FIND_ENTRY, (self._owner, segment, length, message)).fetchone()
        if found is not None:
            return found[0]
        _, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
        passed = {segment}
        while base is not None:
            if base in passed:
                raise circular(base)
            passed.add(base)
            above = start
            no, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, base)).fetchone()
            key = (self._owner, no, above - start, message)
            if self._run(sql.FIND_ENTRY, key).fetchone() is not None:
                return -1
        return None

    def _put(self, tail: _Tail, uids: Sequence[UUID], numbers: Sequence[int]) -> None:
        """Add entries at the end of a segment."""
        self._loose.difference_update(numbers)
        rolled = entry_checksums(tail.checksum, (uid.bytes for uid in uids))
        for number, checksum in zip(numbers, rolled, strict=True):
            self._rows.entries.append((self._owner, tail.segment, tail.length, number, checksum))
            tail.length, tail.checksum = tail.length + 1, checksum

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        key = (self._owner, self._session)
        alike = (*key, branch.id.bytes, branch.name)
        like = [] if self._empty else self._run(sql.BRANCHES_LIKE, alike).fetchall()
        if like:
            same = (branch.id.bytes, branch.name, self._segment(segment.id))
            if like == [same]:
                return
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._tail(source).version)
        system = self._system(branch.system)
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

    def _segment(self, uid: UUID) -> int | None:
        row = self._run(sql.FIND_SEGMENT, (self._owner, self._session, uid.bytes)).fetchone()
        return row[0] if row else None

    def _add_segment(self, segment: SegmentRecord) -> _Tail:
        """Add a new segment; gives where a new branch ends that ends with it."""
        base = self._base(segment)
        values = (self._owner, self._session, segment.id.bytes, base, segment.offset)
        number = self._run(sql.ADD_SEGMENT, values).fetchone()[0]
        if any(uid.int not in self._new for uid in segment.entries):
            self._detached.shows(number)
        tail = _Tail(number, segment.id, 0, 0, START)
        self._put(tail, segment.entries, [self._number(uid) for uid in segment.entries])
        return tail

    def _base(self, segment: SegmentRecord) -> int | None:
        """The number of what a new segment builds on, if it fits there."""
        self._rows.write_down()  # it may build on one that has just been added
        if not self._empty and self._segment(segment.id) is not None:
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
        """Add segments for the branch that ends with `tail`; gives the number of the last."""
        taken = [self._segment(one.taken) for one in segments if one.taken is not None]
        uses = self._detached.watch([tail, *(no for no in taken if no is not None)])
        spare = alone(uses, tail)
        self._detached.watch(base for no in spare if (base := uses[no].base) is not None)
        for one in segments:
            takes = one.taken is not None
            tail = self._take_over(one, spare) if takes else self._add_segment(one).segment
        return tail

    def _take_over(self, segment: SegmentRecord, spare: set[int]) -> int:
        """Add a segment with the entries of another: that one itself, if nobody else needs it."""
        base = self._base(segment)
        number = self._segment(segment.taken) if segment.taken else None
        if number is None:
            raise no_segment(segment.taken or segment.id)
        if number in spare:
            values = (segment.id.bytes, base, segment.offset)
            self._run(sql.MOVE_SEGMENT, (*values, self._owner, number))
        else:
            values = (self._owner, self._session, segment.id.bytes, base, segment.offset)
            old, number = number, self._run(sql.ADD_SEGMENT, values).fetchone()[0]
            self._run(sql.COPY_ENTRIES, (number, self._owner, old))
            self._detached.shows(number)
        return number

    def _system(self, uid: UUID | None) -> int | None:
        if uid is None:
            return None
        number = self._number(uid)
        self._loose.discard(number)
        return number

    def _change_branch(self, change: ChangeBranch) -> None:
        branch, new = change.branch, change.segments
        key = (self._owner, self._session, branch.id.bytes)
        row = self._run(sql.FIND_BRANCH, key).fetchone()
        if row is None:
            raise no_branch(branch.id)
        segment, name, length, version, _, had = row
        if new and new[-1].id.bytes == name:
            return  # made before, and its acknowledgement lost
        if version != branch.version or (new and length != branch.length):
            raise changed_meanwhile(branch)
        if new:
            segment = self._add_chain(new, segment)
        system = self._system(branch.system)
        self._detached.replaced(had, system)
        self._run(
            sql.CHANGE_BRANCH,
            (
                system,
                segment,
                *grants_of(branch),
                *key,
            ),
        )

    def _rename_branch(self, change: RenameBranch) -> None:
        key, uid = (self._owner, self._session), change.branch.bytes
        like = [row[0] for row in self._run(sql.BRANCHES_LIKE, (*key, uid, change.name))]
        if uid not in like:
            raise no_branch(change.branch)
        if len(like) > 1:
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
        """Take messages out of every history, every branch, the journals and the index."""
        gaps: dict[int, int] = {}
        numbers: list[int] = []
        for uid in uids:
            key = (self._owner, self._session, uid.bytes)
            row = self._run(sql.FIND_MESSAGE, key).fetchone()
            if row is not None:
                numbers.append(row[0])
                for segment, place in self._erased(*row):
                    gaps[segment] = min(place, gaps.get(segment, place))
        for segment, place in gaps.items():
            roll_again(self._rows.connection, self._owner, segment, place)
        self._journals.forget_messages(uids, numbers)

    def _erased(self, number: int, created: int, body: bytes) -> list[tuple[int, int]]:
        """Erase a message; gives the segments and places where it stood."""
        self._run(sql.FORGET_SYSTEM, (self._owner, self._session, number))
        places = self._run(sql.ENTRIES_OF_MESSAGE, (self._owner, number)).fetchall()
        for segment, place in places:
            self._close_gap(segment, place)
        if not self._detached.forget(number):
            forget_words(self._rows.connection, number, created, body)
        self._loose.discard(number)
        self._commits.forget_message(number)
        self._labels.forget_message(number)
        self._run(sql.DELETE_MESSAGE, (self._owner, number))
        self._run(LOWER_MARK)
        return places

    def _close_gap(self, segment: int, place: int) -> None:
        """Take out one entry and move what comes after it, here and in all that builds on it."""
        key = (self._owner, self._session)
        _, _, _, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
        self._run(sql.DELETE_ENTRY, (self._owner, segment, place))
        self._run(sql.LIFT_ENTRIES, (self._owner, segment, place))
        self._run(sql.LOWER_ENTRIES, (self._owner, segment))
        self._run(sql.TOUCH_BRANCHES, (*key, segment))
        named = {"owner": key[0], "session": key[1], "segment": segment, "place": start + place}
        for (number,) in self._run(sql.MOVE_STARTS, named).fetchall():
            self._run(sql.TOUCH_BRANCHES, (*key, number))

    def erase_removed(self, before: int, limit: int) -> list[UUID]:
        """Erase some messages that were removed from their last branch before a time."""
        gone = self._detached.removed(before, limit)
        self._erase(gone)
        return gone
