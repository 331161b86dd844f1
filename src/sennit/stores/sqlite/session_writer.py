"""The writer of one session in SQLite, inside a transaction of the store.

It caches the tails of branches across transactions; the store discards it as soon as another
connection may have written. Without this cache an append costs a third more processor time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores.base import other_content, segment_cycle
from sennit.stores.checksums import START, entry_checksum, message_checksum
from sennit.stores.records.sessions import BranchRecord, MessageRecord
from sennit.stores.sql.blobs import BlobTable
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql.session_writer import SessionWriter, StoredSegment, Tail
from sennit.stores.sql_json import grants_of, text_of
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.adapter import SQLiteConnection
from sennit.stores.sqlite.batch_insert import InsertBuffer
from sennit.stores.sqlite.detached import DetachedTable
from sennit.stores.sqlite.runs import JournalWriter
from sennit.stores.sqlite.search_rows import remove_words
from sennit.stores.sqlite.search_statements import LOWER_MARK


class SQLiteSessionWriter(SessionWriter):
    """Applies changes to one session inside one transaction.

    New messages and entries are collected in the insert buffer, whose flush raises
    sqlite3.IntegrityError if an id exists. With `check_existing`, each message is looked up first,
    which costs half as much again.
    """

    sql = sql
    start = START

    def __init__(
        self, rows: InsertBuffer, owner: int, session: int, numbers: Iterator[int]
    ) -> None:
        connection = rows.connection
        self._journals: JournalWriter = JournalWriter(rows, owner, session)
        self._detached: DetachedTable = DetachedTable(connection, owner, session)
        adapter = SQLiteConnection(connection)
        commits, blobs = CommitTable(adapter, owner, session), BlobTable(adapter, owner)
        super().__init__((owner, session), self._journals, commits, self._detached, blobs)
        self._rows, self._connection, self._next_numbers = rows, connection, numbers
        self.check_existing = False

    def _flush(self) -> None:
        self._rows.flush()

    def _run(self, statement: Any, values: Any) -> Any:
        self._rows.flush()
        return self._connection.execute(statement, values)

    def _run_many(self, statement: Any, rows: Sequence[Sequence[Any]]) -> None:
        self._rows.flush()
        self._connection.executemany(statement, rows)

    def _column(self, uid: UUID) -> bytes:
        return uid.bytes

    def forget_lease(self, branch: UUID) -> None:
        """Drop the cached lease of a branch."""
        self._journals.forget_lease(branch)

    def _add_messages(self, messages: Sequence[MessageRecord]) -> dict[UUID, int]:
        added: dict[UUID, int] = {}
        for message in messages:
            if self.check_existing and self._is_stored(message):
                continue
            number = added[message.id] = next(self._next_numbers)
            uid, created, body = message.id.bytes, message.created, message.body
            checksum = message_checksum(uid, created, body)
            self._rows.messages.append((number, *self.key, uid, created, body, checksum))
        return added

    def _is_stored(self, message: MessageRecord) -> bool:
        row = self._run(sql.FIND_MESSAGE, (*self.key, message.id.bytes)).fetchone()
        if row is None:
            return False
        if row[1:] != (message.created, message.body):
            raise other_content(message.id)
        return True

    def _find_numbers(self, messages: Sequence[UUID]) -> dict[UUID, int]:
        numbers: dict[UUID, int] = {}
        for uid in messages:
            row = self._run(sql.FIND_MESSAGE, (*self.key, uid.bytes)).fetchone()
            if row is not None:
                numbers[uid] = row[0]
        return numbers

    def _find_tail(self, branch: UUID) -> Tail | None:
        row = self._run(sql.FIND_BRANCH, (*self.key, branch.bytes)).fetchone()
        if row is None:
            return None
        segment, uid, *rest = row
        return Tail(segment, id_from_bytes(uid), *rest)

    def _find_positions(self, tail: Tail, messages: Sequence[int]) -> dict[int, int]:
        positions: dict[int, int] = {}
        visited: set[int] = set()
        segment: int | None = tail.segment
        length = tail.length
        while segment is not None:
            if segment in visited:
                raise segment_cycle(segment)
            visited.add(segment)
            for message in messages:
                key = (self._owner, segment, length, message)
                row = self._run(sql.FIND_ENTRY, key).fetchone()
                if row is not None:
                    positions.setdefault(message, row[0] if segment == tail.segment else -1)
            _, _, base, start = self._run(sql.SEGMENT_BY_NO, (self._owner, segment)).fetchone()
            if base is not None:
                _, _, _, base_start = self._run(sql.SEGMENT_BY_NO, (self._owner, base)).fetchone()
                length = start - base_start
            segment = base
        return positions

    def _find_segment(self, uid: UUID) -> StoredSegment | None:
        row = self._run(sql.SEGMENT_SIZE, (*self.key, uid.bytes)).fetchone()
        return None if row is None else StoredSegment(*row)

    def _add_entries(
        self, segment: int, first: int, checksum: int, entries: Sequence[tuple[int, bytes]]
    ) -> int:
        rows = self._rows.entries
        for position, (number, uid) in enumerate(entries, first):
            checksum = entry_checksum(checksum, uid)
            rows.append((self._owner, segment, position, number, checksum))
        return checksum

    def _grow_branch(self, branch: UUID, tail: Tail) -> None:
        """Do nothing: a branch is as long as its segment has entries."""

    def _branches_like(self, uid: UUID, name: str) -> list[tuple[UUID, str, UUID]]:
        rows = self._run(sql.BRANCHES_LIKE, (*self.key, uid.bytes, name))
        return [
            (id_from_bytes(branch), other, id_from_bytes(segment))
            for branch, other, segment in rows
        ]

    def _add_branch_row(self, branch: BranchRecord, system: int | None, tail: Tail) -> None:
        columns = (branch.id.bytes, branch.name, branch.created, system, tail.segment)
        settings = (*grants_of(branch), text_of(branch.metadata))
        self._run(sql.ADD_BRANCH, (*self.key, *columns, *settings))

    def _change_branch_row(self, branch: BranchRecord, system: int | None, tail: Tail) -> None:
        values = (system, tail.segment, *grants_of(branch), *self.key, branch.id.bytes)
        self._run(sql.CHANGE_BRANCH, values)

    def _take_entries(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        taken: list[tuple[int, int]] = []
        for number in messages:
            taken += self._run(sql.TAKE_ENTRIES, (self._owner, number)).fetchall()
        return taken

    def _entries_from(self, segment: int, first: int) -> tuple[int, list[tuple[int, bytes]]]:
        key = (self._owner, segment)
        before = self._run(sql.ENTRY_CHECKSUM, (*key, first - 1)).fetchone()
        rows = self._run(sql.ENTRY_IDS, (*key, first)).fetchall()
        return before[0] if before else START, rows

    def _touch_branches(self, segments: Sequence[int], messages: Sequence[int]) -> None:
        values = (dumps(segments).decode(), dumps(messages).decode())
        self._run(sql.TOUCH_BRANCHES, (*self.key, *values))
        self._run_many(sql.FORGET_SYSTEM, [(*self.key, number) for number in messages])

    def _erase_rows(self, messages: Sequence[int]) -> None:
        for number in messages:
            created, body = self._run(sql.MESSAGE_BODY, (self._owner, number)).fetchone()
            if not self._detached.forget(number):
                remove_words(self._connection, number, created, body)
            self._run(sql.DELETE_LABELS_OF, (*self.key, number))
            self._run(sql.DELETE_MESSAGE, (self._owner, number))
        self._run(LOWER_MARK, ())

    def erase_removed(self, before: int, limit: int) -> list[UUID]:
        """Erase up to `limit` messages that were removed before a time; return their ids."""
        removed = self._detached.removed(before, limit)
        self._erase(removed)
        return removed
