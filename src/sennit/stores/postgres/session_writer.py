"""The writer of one session in PostgreSQL, inside a transaction that holds the session's lock.

It handles many rows per statement, because each statement costs a round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.stores.base import other_content
from sennit.stores.checksums import DATABASE_START, database_checksums, message_checksum
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.adapter import PostgresConnection
from sennit.stores.postgres.detached import DetachedTable
from sennit.stores.postgres.runs import JournalWriter
from sennit.stores.records.sessions import BranchRecord, MessageRecord
from sennit.stores.sql.blobs import BlobTable
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql.session_writer import SessionWriter, StoredSegment, Tail
from sennit.stores.sql_json import grants_of, text_of

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


class PostgresSessionWriter(SessionWriter):
    """Applies the changes of one write to one session."""

    sql = sql
    start = DATABASE_START

    def __init__(self, connection: Connection, owner: int, session: int) -> None:
        self._detached: DetachedTable = DetachedTable(connection, owner, session)
        adapter = PostgresConnection(connection)
        commits, blobs = CommitTable(adapter, owner, session), BlobTable(adapter, owner)
        journals = JournalWriter(connection, owner, session)
        super().__init__((owner, session), journals, commits, self._detached, blobs)
        self._connection = connection
        self._key_values: dict[str, Any] = {"owner": owner, "session": session}

    def _run(self, statement: Any, values: Any) -> Any:
        return self._connection.execute(statement, values)

    def _run_many(self, statement: Any, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.cursor().executemany(statement, rows)

    def _flush(self) -> None:
        """Do nothing: rows are inserted at once."""

    def _column(self, uid: UUID) -> UUID:
        return uid

    def _add_messages(self, messages: Sequence[MessageRecord]) -> dict[UUID, int]:
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
        if existing := [uid for uid in by_id if uid not in added]:
            values = {**self._key_values, "ids": existing}
            for _, uid, created, body in self._run(sql.FIND_MESSAGES, values):
                if (created, body) != (by_id[uid].created, by_id[uid].body):
                    raise other_content(uid)
        return added

    def _find_numbers(self, messages: Sequence[UUID]) -> dict[UUID, int]:
        rows = self._run(sql.NUMBERS, {**self._key_values, "ids": list(messages)})
        return {uid: number for number, uid in rows}

    def _find_tail(self, branch: UUID) -> Tail | None:
        row = self._run(sql.FIND_BRANCH, (*self.key, branch)).fetchone()
        return None if row is None else Tail(*row)

    def _find_positions(self, tail: Tail, messages: Sequence[int]) -> dict[int, int]:
        values = {
            **self._key_values,
            "segment": tail.segment,
            "length": tail.length,
            "messages": messages,
        }
        return {
            message: position if own else -1
            for message, position, own in self._run(sql.PLACES, values)
        }

    def _find_segment(self, uid: UUID) -> StoredSegment | None:
        row = self._run(sql.SEGMENT_SIZE, {**self._key_values, "id": uid}).fetchone()
        return None if row is None else StoredSegment(*row)

    def _add_entries(
        self, segment: int, first: int, checksum: bytes, entries: Sequence[tuple[int, bytes]]
    ) -> bytes:
        checksums = list(database_checksums(checksum, first, (uid for _, uid in entries)))
        numbers = [number for number, _ in entries]
        self._run(sql.ADD_ENTRIES, (self._owner, segment, first, numbers, checksums))
        return checksums[-1]

    def _grow_branch(self, branch: UUID, tail: Tail) -> None:
        self._run(sql.GROW_BRANCH, (tail.length, tail.checksum, *self.key, branch))

    def _branches_like(self, uid: UUID, name: str) -> list[tuple[UUID, str, UUID]]:
        values = {**self._key_values, "id": uid, "name": name}
        return self._run(sql.BRANCHES_LIKE, values).fetchall()

    def _add_branch_row(self, branch: BranchRecord, system: int | None, tail: Tail) -> None:
        columns = (branch.id, branch.name, branch.created, system)
        end = (tail.segment, tail.id, tail.length, tail.checksum)
        settings = (*grants_of(branch), text_of(branch.metadata))
        self._run(sql.ADD_BRANCH, (*self.key, *columns, *end, *settings))

    def _change_branch_row(self, branch: BranchRecord, system: int | None, tail: Tail) -> None:
        columns = (system, tail.segment, tail.id, *grants_of(branch))
        self._run(sql.CHANGE_BRANCH, (*columns, *self.key, branch.id))
        self._run(sql.SET_TAILS, (*self.key, [tail.segment]))

    def _take_entries(self, messages: Sequence[int]) -> list[tuple[int, int]]:
        return self._run(sql.TAKE_ENTRIES, (self._owner, messages)).fetchall()

    def _entries_from(self, segment: int, first: int) -> tuple[bytes, list[tuple[int, bytes]]]:
        key = (self._owner, segment)
        before = self._run(sql.ENTRY_CHECKSUM, (*key, first - 1)).fetchone()
        rows = self._run(sql.ENTRY_IDS, (*self.key, *key, first))
        return before[0] if before else DATABASE_START, [
            (number, uid.bytes) for number, uid in rows
        ]

    def _touch_branches(self, segments: Sequence[int], messages: Sequence[int]) -> None:
        values = {**self._key_values, "segments": segments, "messages": messages}
        self._run(sql.TOUCH_BRANCHES, values)
        self._run(sql.SET_TAILS, (*self.key, segments))

    def _erase_rows(self, messages: Sequence[int]) -> None:
        numbers = list(messages)
        for statement in sql.FORGET_MESSAGES:
            self._run(statement, (*self.key, numbers))

    def erase_removed(self, before: int) -> list[UUID]:
        """Erase the messages that were removed before a time; return their ids."""
        removed = self._detached.removed(before)
        self._erase(removed)
        return removed


def fetch_one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row
