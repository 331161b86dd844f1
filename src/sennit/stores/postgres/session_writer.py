"""The writer of one session in PostgreSQL, inside a transaction of the store.

It caches nothing across transactions, and handles many rows per statement, because each statement
costs a round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.errors import ExistsError
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
)
from sennit.stores.checksums import DATABASE_START, database_checksums, message_checksum
from sennit.stores.detached import alone
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.adapter import PostgresConnection
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
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql_json import grants_of, text_of

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
_Size: TypeAlias = tuple[int, int, int]
"""The number of a segment, and its first and end position in its history."""


class SessionWriter:
    """Applies changes to one session inside one transaction that holds its lock."""

    def __init__(self, connection: Connection, owner: int, session: int) -> None:
        self._run = connection.execute
        self._owner = owner
        self._key = (owner, session)
        self._key_values: dict[str, Any] = {"owner": owner, "session": session}
        self._new: dict[UUID, int] = {}  # ids to numbers of messages that this write added
        self._unplaced: set[UUID] = set()  # those that are on no branch yet
        self._heads: list[BranchHead] = []
        self._journals = JournalWriter(connection, owner, session)
        self._commits = CommitTable(PostgresConnection(connection), owner, session)
        self._detached = DetachedTable(connection, owner, session)

    def apply(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Apply the changes; return the head before each Append and TakeLease."""
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
                    self._detached.settle()  # drops unused segments, which need no renumbering
                    self._erase(change.messages)
                    self._journals.forget_messages(change.messages)
                case PutRun():
                    self._journals.put_run(change)
                case AddEvents():
                    self._journals.add_events(change)
                case AddCommit() | PutCommit() | AddUses():
                    self._commits.apply(change, self._detached)
                case PutLabels():
                    self._put_labels(change)
                case PutStarts():
                    self._numbers([message for message, _ in change.starts])  # or NotFoundError
                    self._journals.put_starts(change)
                case DescribeSession():
                    self._run(sql.DESCRIBE_SESSION, (text_of(change.metadata), *self._key))
                case TakeLease():
                    self._take_lease(change)
        self._detached.settle()
        if self._unplaced:
            self._detached.detach([self._new[uid] for uid in self._unplaced], None)
        return self._heads

    def _add_messages(self, messages: Sequence[MessageRecord]) -> None:
        by_id: dict[UUID, MessageRecord] = {}
        for message in messages:
            if by_id.setdefault(message.id, message) != message:
                raise other_content(message.id)
        columns = {
            "ids": list(by_id),
            "created": [message.created for message in by_id.values()],
            "bodies": [message.body for message in by_id.values()],
            "checksums": [
                message_checksum(message.id.bytes, message.created, message.body)
                for message in by_id.values()
            ],
        }
        added = {uid: no for no, uid in self._run(sql.ADD_MESSAGES, self._key_values | columns)}
        self._new |= added
        self._unplaced.update(added)
        existing = [uid for uid in by_id if uid not in added]
        if existing:
            for _, uid, created, body in self._run(
                sql.FIND_MESSAGES, {**self._key_values, "ids": existing}
            ):
                if (created, body) != (by_id[uid].created, by_id[uid].body):
                    raise other_content(uid)

    def _put_labels(self, change: PutLabels) -> None:
        numbers = self._numbers([label.message for label in change.labels])
        for label, number in zip(change.labels, numbers, strict=True):
            key = (*self._key, number, label.judge)
            if label.score is None:
                self._run(sql.DELETE_LABEL, key)
            else:
                self._run(sql.PUT_LABEL, (*key, label.score, label.created))

    def _numbers(self, uids: Sequence[UUID]) -> list[int]:
        """Return the numbers of stored messages; raises NotFoundError."""
        unknown = [uid for uid in uids if uid not in self._new]
        numbers = self._new
        if unknown:
            rows = self._run(sql.NUMBERS, {**self._key_values, "ids": unknown})
            numbers = self._new | {uid: no for no, uid in rows}
        for uid in unknown:
            if uid not in numbers:
                raise no_message(uid)
        return [numbers[uid] for uid in uids]

    def _append(self, change: Append) -> None:
        numbers = self._numbers(change.entries)
        row = self._find_branch(change.branch)
        segment, tail, length, version, checksum = row[4:9]
        position = None
        if not self._unplaced.issuperset(change.entries):
            position = self._find_repeated(change, numbers, segment, length)
            if position is None and not self._new.keys() >= set(change.entries):
                self._detached.attach(numbers)
        self._heads.append(
            BranchHead(change.branch, tail, length if position is None else position, version)
        )
        if position is None and numbers:
            if len(set(numbers)) < len(numbers):
                raise ExistsError(f"Branch {row[1]!r} would contain a message twice.")
            checksum = self._append_entries(segment, length, change.entries, checksum)
            self._run(sql.GROW_BRANCH, (len(numbers), checksum, *self._key, change.branch))

    def _take_lease(self, change: TakeLease) -> None:
        head = BranchHead(change.branch, *self._find_branch(change.branch)[5:8])
        self._heads.append(head.with_grant(self._journals.take(change, self._commits.last())))

    def _find_branch(self, uid: UUID) -> tuple[Any, ...]:
        row = self._run(sql.FIND_BRANCH, (*self._key, uid)).fetchone()
        if row is None:
            raise no_branch(uid)
        return row

    def _find_repeated(
        self, change: Append, numbers: list[int], segment: int, length: int
    ) -> int | None:
        """Return the position of a repeated append, -1 if it is below; None if it is new."""
        values = {
            **self._key_values,
            "segment": segment,
            "length": length,
            "messages": numbers,
        }
        positions = {
            message: position if own else -1
            for message, position, own in self._run(sql.PLACES, values)
        }
        if not positions:
            return None
        if len(positions) < len(set(numbers)):
            raise ExistsError(f"Branch {change.branch} already contains some of these messages.")
        return min(positions.values())

    def _append_entries(
        self, segment: int, first: int, entries: Sequence[UUID], checksum: bytes
    ) -> bytes:
        """Append entries after the one with this running checksum; return the last one's."""
        if not entries:
            return checksum
        numbers = self._numbers(entries)
        checksums = list(database_checksums(checksum, first, (uid.bytes for uid in entries)))
        self._run(sql.ADD_ENTRIES, (self._owner, segment, first, numbers, checksums))
        self._unplaced.difference_update(entries)
        return checksums[-1]

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        matches = self._find_branches(branch.id, branch.name)
        if matches == [(branch.id, branch.name, segment.id)]:
            return  # a retry after a lost acknowledgement
        if matches:
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._find_branch(source)[7])
        system = self._system_number(branch.system)
        self._detached.replaced(None, system)
        number, checksum = self._add_segment(segment, self._find_base(segment, {}))
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

    def _find_branches(self, uid: UUID, name: str) -> list[tuple[Any, ...]]:
        """Return the branches with that id or name."""
        values = {**self._key_values, "id": uid, "name": name}
        return self._run(sql.BRANCHES_LIKE, values).fetchall()

    def _add_segment(self, segment: SegmentRecord, base: int | None) -> tuple[int, bytes]:
        """Add a segment; return its number and running checksum."""
        values = (*self._key, segment.id, base, segment.offset)
        number = fetch_one(self._run(sql.ADD_SEGMENT, values))[0]
        if not self._new.keys() >= set(segment.entries):
            self._detached.shows(number)
        return number, self._append_entries(number, 0, segment.entries, DATABASE_START)

    def _find_size(self, uid: UUID) -> _Size | None:
        """Return the number, first and end position of a segment, or None."""
        row = self._run(sql.SEGMENT_SIZE, {**self._key_values, "id": uid}).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def _find_base(self, segment: SegmentRecord, added: Mapping[UUID, _Size]) -> int | None:
        """Return the number of a new segment's base; raises ValidationError if it does not fit."""
        if segment.id in added or self._find_size(segment.id) is not None:
            raise ExistsError(f"Segment {segment.id} already exists.")
        base, start, end = None, 0, 0
        if segment.base is not None:
            size = added.get(segment.base) or self._find_size(segment.base)
            if size is None:
                raise no_segment(segment.base)
            base, start, end = size
            if segment.base not in added and self._detached.any():
                self._detached.watch([base])
        if not start <= segment.offset <= end:
            raise misplaced(segment, start, end)
        return base

    def _add_chain(self, segments: Sequence[SegmentRecord], tail: int) -> tuple[int, int]:
        """Add segments for the branch that ends with `tail`; return the last one's number and size.

        A segment whose entries are taken over is moved, or copied if others use it.
        """
        taken_ids = [segment.taken for segment in segments if segment.taken is not None]
        taken: dict[UUID, tuple[int, int]] = {}
        if taken_ids:
            rows = self._run(sql.SEGMENTS_TO_TAKE, {**self._key_values, "ids": taken_ids})
            taken = {uid: (no, size) for uid, no, size in rows}
        uses = self._detached.watch([tail, *(no for no, _ in taken.values())])
        spare = alone(uses, tail)
        self._detached.watch(base for no in spare if (base := uses[no].base) is not None)
        added: dict[UUID, _Size] = {}
        moved: list[tuple[int, UUID, int | None, int]] = []
        number, size = tail, 0
        for segment in segments:
            base = self._find_base(segment, added)
            if segment.taken is None:
                number, size = self._add_segment(segment, base)[0], len(segment.entries)
            elif segment.taken not in taken:
                raise no_segment(segment.taken)
            else:
                number, size = taken[segment.taken]
                if number in spare:
                    moved.append((number, segment.id, base, segment.offset))
                else:
                    number = self._copy_segment(segment, base, number)
            added[segment.id] = number, segment.offset, segment.offset + size
        if moved:
            self._run(sql.MOVE_SEGMENTS, (*map(list, zip(*moved, strict=True)), *self._key))
        return number, size

    def _copy_segment(self, segment: SegmentRecord, base: int | None, source: int) -> int:
        """Add a segment with a copy of another one's entries; return its number."""
        number, _ = self._add_segment(segment, base)
        self._run(sql.COPY_ENTRIES, (number, self._owner, source))
        self._detached.shows(number)
        return number

    def _system_number(self, uid: UUID | None) -> int | None:
        if uid is None:
            return None
        self._unplaced.discard(uid)
        return self._numbers([uid])[0]

    def _change_branch(self, change: ChangeBranch) -> None:
        branch, segments = change.branch, change.segments
        row = self._find_branch(branch.id)
        segment, tail, length, version, _ = row[4:9]
        if segments and segments[-1].id == tail:
            return  # a retry after a lost acknowledgement
        if version != branch.version or (segments and length != branch.length):
            raise branch_conflict(branch)
        if segments:
            (segment, length), tail = self._add_chain(segments, segment), segments[-1].id
        system = self._system_number(branch.system)
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
        if segments:
            self._run(sql.SET_TAIL_CHECKSUM, (*self._key, segment))

    def _rename_branch(self, change: RenameBranch) -> None:
        matches = [row[0] for row in self._find_branches(change.branch, change.name)]
        if change.branch not in matches:
            raise no_branch(change.branch)
        if len(matches) > 1:
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
        """Erase messages from segments, branches, commits and the index."""
        numbers = [no for no, _ in self._run(sql.NUMBERS, {**self._key_values, "ids": list(uids)})]
        if not numbers:
            return
        gaps: dict[int, list[int]] = {}
        for segment, position in self._run(sql.TAKE_ENTRIES, (self._owner, numbers)):
            gaps.setdefault(segment, []).append(position)
        for segment, positions in gaps.items():
            self._close_gaps(segment, positions)
        moved = self._move_starts(gaps) if gaps else []
        values = {
            **self._key_values,
            "segments": [*gaps, *moved],
            "messages": numbers,
        }
        self._run(sql.TOUCH_BRANCHES, values)
        self._commits.forget_messages(numbers)
        for statement in sql.FORGET_MESSAGES:
            self._run(statement, (*self._key, numbers))
        self._new = {uid: no for uid, no in self._new.items() if no not in numbers}
        self._unplaced.intersection_update(self._new)

    def erase_removed(self, before: int) -> list[UUID]:
        """Erase the messages that were removed before a time; return their ids."""
        removed = self._detached.removed(before)
        self._erase(removed)
        self._journals.forget_messages(removed)
        return removed

    def _close_gaps(self, segment: int, positions: list[int]) -> None:
        values = {
            "owner": self._owner,
            "segment": segment,
            "places": positions,
            "first": min(positions),
        }
        self._run(sql.LOWER_ENTRIES, values)
        self._run(sql.LIFT_ENTRIES, (self._owner, segment))
        self._run(sql.SHRINK_BRANCHES, (len(positions), *self._key, segment))
        self._run(sql.ROLL_AGAIN, {**self._key_values, "segment": segment, "first": min(positions)})
        self._run(sql.SET_TAIL_CHECKSUM, (*self._key, segment))

    def _move_starts(self, gaps: dict[int, list[int]]) -> list[int]:
        """Lower the start of segments above erased entries; return those segments."""
        rows = {row[0]: row for row in self._run(sql.ALL_SEGMENTS, self._key)}
        lost = lost_below(rows, gaps)
        moved = [no for no, count in lost.items() if count]
        if moved:
            starts = [rows[no][3] - lost[no] for no in moved]
            self._run(sql.MOVE_STARTS, (moved, starts, *self._key))
        return moved


def fetch_one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row
