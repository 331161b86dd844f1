"""Writing of one session in PostgreSQL, inside one transaction.

The store opens connections and transactions; what happens inside one, for one session of one owner,
happens here. Nothing is kept between two. Work is done for many rows at once: each statement costs
a round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.errors import ExistsError
from sennit.stores.base import (
    branch_taken,
    changed_meanwhile,
    check_fit,
    check_source,
    misplaced,
    name_taken,
    no_branch,
    no_message,
    no_segment,
    other_content,
)
from sennit.stores.checksums import DATABASE_START, database_checksums, message_checksum
from sennit.stores.detached import alone
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.commits import CommitTable
from sennit.stores.postgres.detached import DetachedTable
from sennit.stores.postgres.runs import JournalWriter
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
)
from sennit.stores.segment_graph import lost_below, source_of
from sennit.stores.sql_json import grants_of, text_of

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
_Size: TypeAlias = tuple[int, int, int]
"""The number of a segment, and after how many entries of its history it begins and ends."""


class SessionWriter:
    """Makes changes to one session inside one transaction that holds its lock."""

    def __init__(self, connection: Connection, owner: int, session: int) -> None:
        self._run = connection.execute
        self._owner = owner
        self._key = (owner, session)
        self._named: dict[str, Any] = {"owner": owner, "session": session}
        self._new: dict[UUID, int] = {}  # messages this write has added, and their numbers
        self._loose: set[UUID] = set()  # those of them that stand nowhere yet
        self._heads: list[BranchHead] = []
        self._journals = JournalWriter(connection, owner, session)
        self._commits = CommitTable(connection, owner, session)
        self._detached = DetachedTable(connection, owner, session)

    def apply(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Make the changes; gives the head before each Append."""
        for change in changes:
            match change:
                case AddMessages():
                    self._add_messages(change.messages)
                case Append():
                    self._append(change)
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
                    self._journals.forget_messages(change.messages)
                case PutRun():
                    self._journals.put_run(change)
                case AddEvents():
                    self._journals.add_events(change)
                case AddCommit() | PutCommit() | AddUses():
                    self._commits.apply(change, self._numbers)
                case PutLabels():
                    self._put_labels(change)
                case PutStarts():
                    self._numbers([message for message, _ in change.starts])  # or NotFoundError
                    self._journals.put_starts(change)
                case DescribeSession():
                    self._run(sql.DESCRIBE_SESSION, (text_of(change.metadata), *self._key))
                case TakeLease():
                    self._take(change)
        self._detached.settle()
        if self._loose:
            self._detached.detach([self._new[uid] for uid in self._loose], None)
        return self._heads

    def _add_messages(self, messages: Sequence[MessageRecord]) -> None:
        given: dict[UUID, MessageRecord] = {}
        for message in messages:
            if given.setdefault(message.id, message) != message:
                raise other_content(message.id)
        columns = {
            "ids": list(given),
            "created": [message.created for message in given.values()],
            "bodies": [message.body for message in given.values()],
            "checksums": [
                message_checksum(message.id.bytes, message.created, message.body)
                for message in given.values()
            ],
        }
        added = {uid: no for no, uid in self._run(sql.ADD_MESSAGES, self._named | columns)}
        self._new |= added
        self._loose.update(added)
        there = [uid for uid in given if uid not in added]
        if there:
            for _, uid, created, body in self._run(
                sql.FIND_MESSAGES, {**self._named, "ids": there}
            ):
                if (created, body) != (given[uid].created, given[uid].body):
                    raise other_content(uid)

    def _put_labels(self, change: PutLabels) -> None:
        numbers = self._numbers([one.message for one in change.labels])
        for one, number in zip(change.labels, numbers, strict=True):
            key = (*self._key, number, one.judge)
            if one.score is None:
                self._run(sql.DELETE_LABEL, key)
            else:
                self._run(sql.PUT_LABEL, (*key, one.score, one.created))

    def _numbers(self, uids: Sequence[UUID]) -> list[int]:
        """The numbers of stored messages; raises NotFoundError."""
        unknown = [uid for uid in uids if uid not in self._new]
        found = self._new
        if unknown:
            rows = self._run(sql.NUMBERS, {**self._named, "ids": unknown})
            found = self._new | {uid: no for no, uid in rows}
        for uid in unknown:
            if uid not in found:
                raise no_message(uid)
        return [found[uid] for uid in uids]

    def _append(self, change: Append) -> None:
        numbers = self._numbers(change.entries)
        row = self._find_branch(change.branch)
        segment, tail, length, version, checksum = row[4:9]
        at = None
        if not self._loose.issuperset(change.entries):
            at = self._repeated(change, numbers, segment, length)
            if at is None and not self._new.keys() >= set(change.entries):
                self._detached.attach(numbers)
        self._heads.append(BranchHead(change.branch, tail, length if at is None else at, version))
        if at is None and numbers:
            if len(set(numbers)) < len(numbers):
                raise ExistsError(f"Branch {row[1]!r} would contain a message twice.")
            checksum = self._put(segment, length, change.entries, checksum)
            self._run(sql.GROW_BRANCH, (len(numbers), checksum, *self._key, change.branch))

    def _take(self, change: TakeLease) -> None:
        head = BranchHead(change.branch, *self._find_branch(change.branch)[5:8])
        self._heads.append(head.with_taken(self._journals.take(change, self._commits.last())))

    def _find_branch(self, uid: UUID) -> tuple[Any, ...]:
        row = self._run(sql.FIND_BRANCH, (*self._key, uid)).fetchone()
        if row is None:
            raise no_branch(uid)
        return row

    def _repeated(
        self, change: Append, numbers: list[int], segment: int, length: int
    ) -> int | None:
        """Return the position of an append made before, -1 if below; None if it is new."""
        named = {
            **self._named,
            "segment": segment,
            "length": length,
            "messages": numbers,
        }
        found = {message: pos if own else -1 for message, pos, own in self._run(sql.PLACES, named)}
        if not found:
            return None
        if len(found) < len(set(numbers)):
            raise ExistsError(f"Branch {change.branch} already contains some of these messages.")
        return min(found.values())

    def _put(self, segment: int, first: int, entries: Sequence[UUID], checksum: bytes) -> bytes:
        """Add entries after one with that running checksum; gives that of the last."""
        if not entries:
            return checksum
        numbers = self._numbers(entries)
        rolled = list(database_checksums(checksum, first, (uid.bytes for uid in entries)))
        self._run(sql.ADD_ENTRIES, (self._owner, segment, first, numbers, rolled))
        self._loose.difference_update(entries)
        return rolled[-1]

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        like = self._like(branch.id, branch.name)
        if like == [(branch.id, branch.name, segment.id)]:
            return  # made before, and its acknowledgement lost
        if like:
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._find_branch(source)[7])
        system = self._system(branch.system)
        self._detached.replaced(None, system)
        number, checksum = self._add_segment(segment, self._base(segment, {}))
        self._run(
            sql.ADD_BRANCH,
            (
                *self._key,
                branch.id,
                branch.name,
                branch.created,
                system,
                number,
                segment.id,
                branch.length,
                checksum,
                *grants_of(branch),
                text_of(branch.metadata),
            ),
        )

    def _like(self, uid: UUID, name: str) -> list[tuple[Any, ...]]:
        """The branches with that id or name."""
        named = {**self._named, "id": uid, "name": name}
        return self._run(sql.BRANCHES_LIKE, named).fetchall()

    def _add_segment(self, segment: SegmentRecord, base: int | None) -> tuple[int, bytes]:
        """Add a new segment; gives its number, and its running checksum."""
        values = (*self._key, segment.id, base, segment.offset)
        number = one(self._run(sql.ADD_SEGMENT, values))[0]
        if not self._new.keys() >= set(segment.entries):
            self._detached.shows(number)
        return number, self._put(number, 0, segment.entries, DATABASE_START)

    def _size(self, uid: UUID) -> _Size | None:
        """The number of a segment, after how many entries it begins and ends; None if none."""
        row = self._run(sql.SEGMENT_SIZE, {**self._named, "id": uid}).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def _base(self, segment: SegmentRecord, added: Mapping[UUID, _Size]) -> int | None:
        """The number of what a new segment builds on, if it fits there."""
        if segment.id in added or self._size(segment.id) is not None:
            raise ExistsError(f"Segment {segment.id} already exists.")
        base, start, below = None, 0, 0
        if segment.base is not None:
            found = added.get(segment.base) or self._size(segment.base)
            if found is None:
                raise no_segment(segment.base)
            base, start, below = found
            if segment.base not in added and self._detached.any():
                self._detached.watch([base])
        if not start <= segment.offset <= below:
            raise misplaced(segment, start, below)
        return base

    def _add_chain(self, segments: Sequence[SegmentRecord], tail: int) -> tuple[int, int]:
        """Add segments for the branch that ends with `tail`; gives the last one's number and size.

        One that takes over the entries of another becomes that one itself, if nobody else needs it.
        """
        wanted = [each.taken for each in segments if each.taken is not None]
        taken: dict[UUID, tuple[int, int]] = {}
        if wanted:
            rows = self._run(sql.SEGMENTS_TO_TAKE, {**self._named, "ids": wanted})
            taken = {uid: (no, size) for uid, no, size in rows}
        uses = self._detached.watch([tail, *(no for no, _ in taken.values())])
        spare = alone(uses, tail)
        self._detached.watch(base for no in spare if (base := uses[no].base) is not None)
        added: dict[UUID, _Size] = {}
        moved: list[tuple[int, UUID, int | None, int]] = []
        number, size = tail, 0
        for each in segments:
            base = self._base(each, added)
            if each.taken is None:
                number, size = self._add_segment(each, base)[0], len(each.entries)
            elif each.taken not in taken:
                raise no_segment(each.taken)
            else:
                number, size = taken[each.taken]
                if number in spare:
                    moved.append((number, each.id, base, each.offset))
                else:
                    number = self._copied(each, base, number)
            added[each.id] = number, each.offset, each.offset + size
        if moved:
            self._run(sql.MOVE_SEGMENTS, (*map(list, zip(*moved, strict=True)), *self._key))
        return number, size

    def _copied(self, segment: SegmentRecord, base: int | None, old: int) -> int:
        """A new segment with the entries of an old one."""
        number, _ = self._add_segment(segment, base)
        self._run(sql.COPY_ENTRIES, (number, self._owner, old))
        self._detached.shows(number)
        return number

    def _system(self, uid: UUID | None) -> int | None:
        if uid is None:
            return None
        self._loose.discard(uid)
        return self._numbers([uid])[0]

    def _change_branch(self, change: ChangeBranch) -> None:
        branch, new = change.branch, change.segments
        row = self._find_branch(branch.id)
        segment, tail, length, version, _ = row[4:9]
        if new and new[-1].id == tail:
            return  # made before, and its acknowledgement lost
        if version != branch.version or (new and length != branch.length):
            raise changed_meanwhile(branch)
        if new:
            (segment, length), tail = self._add_chain(new, segment), new[-1].id
        system = self._system(branch.system)
        self._detached.replaced(row[3], system)
        self._run(
            sql.CHANGE_BRANCH,
            (
                system,
                segment,
                tail,
                length,
                *grants_of(branch),
                *self._key,
                branch.id,
            ),
        )
        if new:
            self._run(sql.SET_TAIL_CHECKSUM, (*self._key, segment))

    def _rename_branch(self, change: RenameBranch) -> None:
        like = [row[0] for row in self._like(change.branch, change.name)]
        if change.branch not in like:
            raise no_branch(change.branch)
        if len(like) > 1:
            raise name_taken(change.name)
        self._run(sql.RENAME_BRANCH, (change.name, *self._key, change.branch))

    def _remove_branch(self, uid: UUID) -> None:
        key = (*self._key, uid)
        row = self._find_branch(uid)
        self._detached.watch([row[4]])
        self._detached.replaced(row[3], None)
        self._run(sql.DELETE_BRANCH, key)
        self._run(sql.DELETE_LEASE, key)
        self._journals.forget_branch(uid)

    def _erase(self, uids: Sequence[UUID]) -> None:
        """Take messages out of every history, every branch and the index."""
        numbers = [no for no, _ in self._run(sql.NUMBERS, {**self._named, "ids": list(uids)})]
        if not numbers:
            return
        gaps: dict[int, list[int]] = {}
        for segment, pos in self._run(sql.TAKE_ENTRIES, (self._owner, numbers)):
            gaps.setdefault(segment, []).append(pos)
        for segment, places in gaps.items():
            self._close_gaps(segment, places)
        moved = self._move_starts(gaps) if gaps else []
        named = {
            **self._named,
            "segments": [*gaps, *moved],
            "messages": numbers,
        }
        self._run(sql.TOUCH_BRANCHES, named)
        self._commits.forget_messages(numbers)
        for statement in sql.FORGET_MESSAGES:
            self._run(statement, (*self._key, numbers))
        self._new = {uid: no for uid, no in self._new.items() if no not in numbers}
        self._loose.intersection_update(self._new)

    def erase_removed(self, before: int) -> list[UUID]:
        """Erase the messages that were removed from their last branch before a time."""
        gone = self._detached.removed(before)
        self._erase(gone)
        self._journals.forget_messages(gone)
        return gone

    def _close_gaps(self, segment: int, places: list[int]) -> None:
        named = {
            "owner": self._owner,
            "segment": segment,
            "places": places,
            "first": min(places),
        }
        self._run(sql.LOWER_ENTRIES, named)
        self._run(sql.LIFT_ENTRIES, (self._owner, segment))
        self._run(sql.SHRINK_BRANCHES, (len(places), *self._key, segment))
        self._run(sql.ROLL_AGAIN, {**self._named, "segment": segment, "first": min(places)})
        self._run(sql.SET_TAIL_CHECKSUM, (*self._key, segment))

    def _move_starts(self, gaps: dict[int, list[int]]) -> list[int]:
        """Let segments begin after fewer entries, where some below them are gone; gives those."""
        rows = {row[0]: row for row in self._run(sql.ALL_SEGMENTS, self._key)}
        lost = lost_below(rows, gaps)
        moved = [no for no, count in lost.items() if count]
        if moved:
            starts = [rows[no][3] - lost[no] for no in moved]
            self._run(sql.MOVE_STARTS, (moved, starts, *self._key))
        return moved


def one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row
