"""One session in SQLite: reading it in a snapshot, changing it in a transaction.

The store opens connections and transactions; what happens inside one, for one session of one owner,
happens here. A writer remembers where branches end from one transaction to the next; the store
throws it away as soon as anyone else may have written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.errors import ConflictError, ExistsError, NotFoundError, ValidationError
from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps, loads
from sennit.stores import words
from sennit.stores.base import no_branch, no_message, no_session
from sennit.stores.commits import AddCommit, AddUses, PutCommit
from sennit.stores.records import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    ChangeBranch,
    Head,
    MessageRecord,
    PutLabels,
    PutRun,
    RemoveBranch,
    RemoveMessages,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)
from sennit.stores.sql import sqlite as sql
from sennit.stores.sqlite_commits import CommitTable
from sennit.stores.sqlite_labels import LabelTable
from sennit.stores.sqlite_runs import JournalWriter


class SessionReader:
    """Reads one session inside one snapshot."""

    def __init__(self, connection: sqlite3.Connection, owner: int, row: Any) -> None:
        self._run = connection.execute
        self._owner, self._no = owner, row[0]
        self._session = session_from(row)

    def all(self) -> Snapshot:
        """Everything."""
        key = (self._owner, self._no)
        ids: dict[int, UUID] = {}
        messages: list[MessageRecord] = []
        for number, uid, created, body in sorted(self._run(sql.ALL_MESSAGES, key)):
            ids[number] = made = id_from_bytes(uid)
            messages.append(MessageRecord(made, created, body))
        entries: dict[int, list[UUID]] = {}
        for segment, message in self._run(sql.ALL_ENTRIES, key):
            entries.setdefault(segment, []).append(ids[message])
        rows = {row[0]: row for row in self._run(sql.ALL_SEGMENTS, key)}
        names = {number: id_from_bytes(row[1]) for number, row in rows.items()}
        segments = [
            SegmentRecord(names[no], names.get(base), start, tuple(entries.get(no, ())))
            for no, _, base, start in rows.values()
        ]
        branches = [
            _branch(row, ids.get(row[3]), names[row[4]]) for row in self._run(sql.ALL_BRANCHES, key)
        ]
        return Snapshot(self._session, messages, segments, branches)

    def beyond(self, known: Mapping[UUID, int]) -> Snapshot:
        """What is new beyond these segments and lengths."""
        rows = self._run(sql.ALL_BRANCHES, (self._owner, self._no)).fetchall()
        messages: dict[int, MessageRecord] = {}
        segments = self._needed(rows, known, messages)
        for row in rows:
            if row[3] is not None and row[3] not in messages:
                found = self._run(sql.MESSAGE_BY_NO, (self._owner, row[3])).fetchone()
                messages[row[3]] = _message(found)
        names = {no: record.id for no, record in segments.items()}
        new = [one for one in segments.values() if one.id not in known or one.entries]
        branches = [
            _branch(row, messages[row[3]].id if row[3] is not None else None, names[row[4]])
            for row in rows
        ]
        return Snapshot(self._session, [messages[no] for no in sorted(messages)], new, branches)

    def _needed(
        self, branches: list[Any], known: Mapping[UUID, int], messages: dict[int, MessageRecord]
    ) -> dict[int, SegmentRecord]:
        """The segments of these branches down to known ones, with what is new in them."""
        found: dict[int, SegmentRecord] = {}
        waiting = [row[4] for row in branches]
        while waiting:
            no = waiting.pop()
            if no in found:
                continue
            _, uid, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, no)).fetchone()
            made = id_from_bytes(uid)
            rows = self._run(sql.ENTRIES_FROM, (self._owner, no, known.get(made, 0))).fetchall()
            messages.update((row[0], _message(row)) for row in rows)
            below = None
            if base is not None:
                below = id_from_bytes(
                    self._run(sql.SEGMENT_BY_NO, (self._owner, base)).fetchone()[1]
                )
                if made not in known or below not in known:
                    waiting.append(base)
            entries = tuple(messages[row[0]].id for row in rows)
            found[no] = SegmentRecord(made, below, start, entries)
        return found


@dataclass(slots=True)
class _Tail:
    """Where a branch ends."""

    branch: UUID
    segment: int
    name: UUID
    length: int
    version: int


class SessionWriter:
    """Makes changes to one session inside one transaction.

    New messages and entries gather and are written together, at the latest when `settle` is called.
    That raises sqlite3.IntegrityError if an id is there already; being careful looks at each
    message first, which costs more.
    """

    def __init__(
        self, connection: sqlite3.Connection, owner: int, session: int, numbers: Iterator[int]
    ) -> None:
        self._run = connection.execute
        self._many = connection.executemany
        self._owner, self._session, self._numbers = owner, session, numbers
        self._new: dict[int, int] = {}  # messages this write has added, and their numbers
        self._appended: dict[int, list[int]] = {}  # what it has put on which branch
        self._heads: list[Head] = []
        self._tails: dict[int, _Tail] = {}  # where branches end
        self._grown: dict[int, _Tail] = {}  # those whose new length is not written down yet
        self._messages: list[tuple[object, ...]] = []  # rows that are not written down yet
        self._entries: list[tuple[int, int, int, int]] = []
        self._rewritten = False  # whether some segments may be needed no more
        self._journals = JournalWriter(connection, owner, session)
        self._commits = CommitTable(connection, owner, session)
        self._labels = LabelTable(connection, owner, session)

    def apply(self, changes: Sequence[Change], *, careful: bool) -> list[Head]:
        """Make the changes of one write; gives the head before each Append."""
        self._new, self._appended, self._heads, self._rewritten = {}, {}, [], False
        for change in changes:
            if isinstance(change, AddMessages):
                for message in change.messages:
                    self._add_message(message, careful)
            elif isinstance(change, Append):
                self._append(change)
            elif isinstance(change, PutRun):
                self._journals.put_run(change)
            elif isinstance(change, AddEvents):
                self._journals.add_events(change)
            elif isinstance(change, (AddCommit, PutCommit, AddUses)):
                self._write_down()
                self._commits.apply(change)
            elif isinstance(change, PutLabels):
                self._labels.put(change, self._number)
            else:
                self._write_down()
                self._tails.clear()  # they are about to change
                self._change(change)
        self._drop_unused_segments()
        return self._heads

    def _change(self, change: AddBranch | ChangeBranch | RemoveBranch | RemoveMessages) -> None:
        match change:
            case AddBranch():
                self._add_branch(change)
            case ChangeBranch():
                self._change_branch(change)
            case RemoveBranch():
                self._remove_branch(change.branch)
            case RemoveMessages():
                self._drop_unused_segments()  # so that they need not be mended
                for uid in change.messages:
                    self._erase(uid)
                self._journals.forget_messages(change.messages)
        self._write_down()

    def settle(self) -> None:
        """Write down all that is left of a transaction, and when it was."""
        self._write_down()
        self._run(sql.TOUCH_SESSION, (clock.now_us(), self._owner, self._session))

    def _write_down(self) -> None:
        if self._messages:
            self._many(sql.ADD_MESSAGE, self._messages)
            self._messages.clear()
        if self._entries:
            self._many(sql.ADD_ENTRY, self._entries)
            self._entries.clear()
        if self._grown:
            for tail in self._grown.values():
                key = (self._owner, self._session, tail.branch.bytes)
                self._run(sql.SET_LENGTH, (tail.length, *key))
            self._grown.clear()

    def _add_message(self, message: MessageRecord, careful: bool) -> None:
        if careful and self._is_there(message):
            return
        number = next(self._numbers)
        key = (self._owner, self._session, message.id.bytes)
        self._messages.append((number, *key, message.created, message.body))
        self._new[message.id.int] = number

    def _is_there(self, message: MessageRecord) -> bool:
        found = self._find(message.id)
        if found is None:
            return False
        _, created, body = found
        if (created, body) != (message.created, message.body):
            raise ExistsError(f"Message {message.id} is stored with another content.")
        return True

    def _find(self, message: UUID) -> Any:
        self._write_down()
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
            raise ExistsError(f"Branch {change.branch} would hold a message twice.")
        # What this very write has added stands on no branch, unless it was appended to it since.
        fresh = all(uid.int in self._new for uid in change.entries)
        before = self._appended.get(change.branch.int, [])
        if not fresh or not set(before).isdisjoint(numbers):
            self._write_down()
            at = self._repeated(change, numbers, tail.segment, length)
        self._heads.append(Head(change.branch, tail.name, at, tail.version))
        if at == length and numbers:
            self._put(tail.segment, length, numbers)
            tail.length += len(numbers)
            self._grown[change.branch.int] = tail
            self._appended[change.branch.int] = before + numbers

    def _tail(self, branch: UUID) -> _Tail:
        """Where a branch ends now, counting what this transaction has appended."""
        found = self._tails.get(branch.int)
        if found is None:
            key = (self._owner, self._session, branch.bytes)
            row = self._run(sql.FIND_BRANCH, key).fetchone()
            if row is None:
                raise no_branch(branch)
            segment, name, length, version = row
            found = _Tail(branch, segment, id_from_bytes(name), length, version)
            self._tails[branch.int] = found
        return found

    def _repeated(self, change: Append, numbers: list[int], segment: int, length: int) -> int:
        """Where an append begins that was made before, or `length` if it was not."""
        places = [self._place(segment, length, number) for number in numbers]
        if all(place is None for place in places):
            return length
        if None in places:
            raise ExistsError(f"Branch {change.branch} already holds some of these messages.")
        return min(place for place in places if place is not None)

    def _place(self, segment: int, length: int, message: int) -> int | None:
        """Where a message stands in a segment, counted there, or below it (then negative)."""
        found = self._run(sql.FIND_ENTRY, (self._owner, segment, length, message)).fetchone()
        if found is not None:
            return found[0]
        _, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
        while base is not None:
            above = start
            no, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, base)).fetchone()
            key = (self._owner, no, above - start, message)
            if self._run(sql.FIND_ENTRY, key).fetchone() is not None:
                return -1
        return None

    def _put(self, segment: int, first: int, numbers: list[int]) -> None:
        owner = self._owner
        self._entries += [(owner, segment, first + at, no) for at, no in enumerate(numbers)]

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        if branch.segment != segment.id or branch.length != len(segment.entries):
            raise ValidationError(f"Branch {branch.name!r} does not fit its segment {segment.id}.")
        key = (self._owner, self._session)
        like = self._run(sql.BRANCHES_LIKE, (*key, branch.id.bytes, branch.name)).fetchall()
        if like:
            same = (branch.id.bytes, branch.name, self._segment(segment.id))
            if like == [same]:
                return
            raise ExistsError(f"A branch named {branch.name!r} or with its id is already there.")
        system = self._system(branch.system)
        number = self._add_segment(segment)
        self._run(
            sql.ADD_BRANCH,
            (
                *key,
                branch.id.bytes,
                branch.name,
                branch.created,
                system,
                number,
                len(segment.entries),
                _listed(branch.resources),
                _listed(branch.capabilities),
                dumps(branch.metadata).decode(),
            ),
        )

    def _segment(self, uid: UUID) -> int | None:
        row = self._run(sql.FIND_SEGMENT, (self._owner, self._session, uid.bytes)).fetchone()
        return row[0] if row else None

    def _add_segment(self, segment: SegmentRecord) -> int:
        key = (self._owner, self._session)
        if self._segment(segment.id) is not None:
            raise ExistsError(f"Segment {segment.id} is there already.")
        base, below = None, 0
        if segment.base is not None:
            row = self._run(sql.SEGMENT_SIZE, (*key, segment.base.bytes)).fetchone()
            if row is None:
                raise NotFoundError(f"There is no segment {segment.base} to build on.")
            base, below = row
        if not 0 <= segment.offset <= below:
            raise ValidationError(
                f"Segment {segment.id} begins after {segment.offset} entries; below it are {below}."
            )
        values = (self._owner, self._session, segment.id.bytes, base, segment.offset)
        number = self._run(sql.ADD_SEGMENT, values).fetchone()[0]
        self._put(number, 0, [self._number(uid) for uid in segment.entries])
        return number

    def _system(self, uid: UUID | None) -> int | None:
        return None if uid is None else self._number(uid)

    def _change_branch(self, change: ChangeBranch) -> None:
        branch = change.branch
        key = (self._owner, self._session, branch.id.bytes)
        row = self._run(sql.FIND_BRANCH, key).fetchone()
        if row is None:
            raise no_branch(branch.id)
        segment, name, length, version = row
        if change.segment is not None and change.segment.id.bytes == name:
            return  # made before, and its acknowledgement lost
        if version != branch.version or (change.segment is not None and length != branch.length):
            raise ConflictError(f"Branch {branch.name!r} was changed by someone else; refresh it.")
        if change.segment is not None:
            segment, length = self._add_segment(change.segment), len(change.segment.entries)
        self._run(
            sql.CHANGE_BRANCH,
            (
                self._system(branch.system),
                segment,
                length,
                _listed(branch.resources),
                _listed(branch.capabilities),
                *key,
            ),
        )
        self._rewritten = self._rewritten or change.segment is not None

    def _remove_branch(self, uid: UUID) -> None:
        key = (self._owner, self._session, uid.bytes)
        if not self._run(sql.DELETE_BRANCH, key).rowcount:
            raise no_branch(uid)
        self._run(sql.DELETE_LEASE, key)
        self._journals.forget_branch(uid)
        self._rewritten = True

    def _drop_unused_segments(self) -> None:
        if not self._rewritten:
            return
        self._rewritten = False
        named = {"owner": self._owner, "session": self._session}
        for (number,) in self._run(sql.UNUSED_SEGMENTS, named).fetchall():
            self._run(sql.DELETE_ENTRIES, (self._owner, number))
            self._run(sql.DELETE_SEGMENT, (self._owner, number))

    def _erase(self, uid: UUID) -> None:
        """Take a message out of every history, every branch and the index."""
        key = (self._owner, self._session)
        row = self._run(sql.FIND_MESSAGE, (*key, uid.bytes)).fetchone()
        if row is None:
            return
        number, _, body = row
        self._run(sql.FORGET_SYSTEM, (*key, number))
        for segment, place in self._run(sql.ENTRIES_OF_MESSAGE, (*key, number)).fetchall():
            self._close_gap(segment, place)
        self._forget_words(number, body)
        self._commits.forget_message(number)
        self._labels.forget_message(number)
        self._run(sql.DELETE_MESSAGE, (self._owner, number))
        self._run(sql.LOWER_MARK)

    def _close_gap(self, segment: int, place: int) -> None:
        """Take out one entry and move what comes after it, here and in all that builds on it."""
        key = (self._owner, self._session)
        _, _, _, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
        self._run(sql.DELETE_ENTRY, (self._owner, segment, place))
        self._run(sql.LIFT_ENTRIES, (self._owner, segment, place))
        self._run(sql.LOWER_ENTRIES, (self._owner, segment))
        self._run(sql.SHRINK_BRANCH, (*key, segment))
        self._run(sql.TOUCH_BRANCHES, (*key, segment))
        named = {"owner": key[0], "session": key[1], "segment": segment, "place": start + place}
        for (number,) in self._run(sql.MOVE_STARTS, named).fetchall():
            self._run(sql.TOUCH_BRANCHES, (*key, number))

    def _forget_words(self, number: int, body: bytes) -> None:
        if number <= self._run(sql.MARK).fetchone()[0]:
            self._run(sql.DROP_WORDS, index_words(number, self._owner, body))

    def erase_all(self) -> None:
        """Erase the session with all that is in it."""
        key = (self._owner, self._session)
        for number, _, _, body in self._run(sql.ALL_MESSAGES, key).fetchall():
            self._forget_words(number, body)
        self._journals.forget_all()
        self._commits.forget_all()
        self._labels.forget_all()
        for statement in (sql.DELETE_LEASES, sql.DELETE_BRANCHES):
            self._run(statement, key)
        self._rewritten = True
        self._drop_unused_segments()
        self._run(sql.DELETE_MESSAGES, key)
        self._run(sql.DELETE_SESSION, key)
        self._run(sql.LOWER_MARK)


def session_row(connection: sqlite3.Connection, owner: int, session: UUID) -> Any:
    """The row of a session; raises NotFoundError."""
    row = connection.execute(sql.FIND_SESSION, (owner, session.bytes)).fetchone()
    if row is None:
        raise no_session(session)
    return row


def session_from(row: Any) -> SessionRecord:
    """The record in a session's row."""
    _, uid, key, user, created, updated, metadata = row
    return SessionRecord(id_from_bytes(uid), key, user, created, updated, loads(metadata))


def _message(row: Any) -> MessageRecord:
    _, uid, created, body = row
    return MessageRecord(id_from_bytes(uid), created, body)


def _branch(row: Any, system: UUID | None, segment: UUID) -> BranchRecord:
    uid, name, created, _, _, length, resources, capabilities, metadata, version = row
    return BranchRecord(
        id_from_bytes(uid),
        name,
        created,
        system,
        segment,
        length,
        frozenset(loads(resources)),
        frozenset(loads(capabilities)),
        loads(metadata),
        version,
    )


def _listed(names: frozenset[str]) -> str:
    return dumps(sorted(names)).decode()


def index_words(number: int, owner: int, body: bytes) -> tuple[int, str, str]:
    """A message's row in the full-text index."""
    return number, f"o{owner}", words.said(body)
