"""The reader of one session in PostgreSQL, inside one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sennit.messages.codec import loads
from sennit.stores.base import damaged_history
from sennit.stores.checksums import (
    DATABASE_START,
    checked_body,
    database_checksum,
    database_checksums,
)
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.session_writer import Connection
from sennit.stores.records.sessions import (
    BranchRecord,
    LabelRecord,
    MessageRecord,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)
from sennit.stores.segment_graph import needed
from sennit.stores.sql_json import names_in, session_in


class SessionReader:
    """Reads one session inside one snapshot."""

    def __init__(self, connection: Connection, owner: int, row: Any) -> None:
        self._connection = connection
        self._key = (owner, row[0])
        self._session = session_from(row)

    def _rows(self, statement: Any, values: Any) -> list[tuple[Any, ...]]:
        # Binary, because the text format sends a body as twice as many hexadecimal digits.
        return self._connection.execute(statement, values, binary=True).fetchall()

    def all(self) -> Snapshot:
        """Return the whole session."""
        ids: dict[int, UUID] = {}
        messages: list[MessageRecord] = []
        for number, *row in self._rows(sql.ALL_MESSAGES, self._key):
            ids[number] = row[0]
            messages.append(message_in(row))
        entries: dict[int, list[UUID]] = {}
        checksums: dict[int, bytes] = {}
        for segment, message, checksum in self._rows(sql.ALL_ENTRIES, self._key):
            entries.setdefault(segment, []).append(ids[message])
            checksums[segment] = checksum
        rows = self._rows(sql.SEGMENTS, self._key)
        names = {row[0]: row[1] for row in rows}
        for segment, checksum in checksums.items():
            uids = (uid.bytes for uid in entries[segment])
            *_, last = database_checksums(DATABASE_START, 0, uids)
            if last != checksum:
                raise damaged_history(names[segment])
        segments = [
            SegmentRecord(uid, names.get(base), start, tuple(entries.get(no, ())))
            for no, uid, base, start in rows
        ]
        branches = [
            _branch(row, ids.get(row[3])) for row in self._rows(sql.ALL_BRANCHES, self._key)
        ]
        return Snapshot(self._session, messages, segments, branches)

    def beyond(self, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond these segments and lengths."""
        branches = self._rows(sql.ALL_BRANCHES, self._key)
        rows = {row[0]: row for row in self._rows(sql.SEGMENTS, self._key)}
        wanted = needed(rows, {row[4] for row in branches}, known)
        messages: dict[int, MessageRecord] = {}
        entries: dict[int, list[UUID]] = {no: [] for no in wanted}
        owner, session = self._key
        values = {
            "owner": owner,
            "session": session,
            "segments": wanted,
            "places": [known.get(rows[no][1], 0) for no in wanted],
        }
        checksums: dict[int, bytes] = {}
        for segment, position, checksum, number, *row in self._rows(sql.ENTRIES_FROM, values):
            previous = DATABASE_START if position == 0 else checksums.get(segment)
            if (
                previous is not None
                and database_checksum(previous, position, row[0].bytes) != checksum
            ):
                raise damaged_history(rows[segment][1])
            checksums[segment] = checksum
            messages[number] = message_in(row)
            entries[segment].append(row[0])
        system_numbers = [
            row[3] for row in branches if row[3] is not None and row[3] not in messages
        ]
        if system_numbers:
            for number, *row in self._rows(sql.MESSAGES_BY_NO, (*self._key, system_numbers)):
                messages[number] = message_in(row)
        segments: list[SegmentRecord] = []
        for no in wanted:
            _, uid, base, start = rows[no]
            if uid not in known or entries[no]:
                base_id = None if base is None else rows[base][1]
                segments.append(SegmentRecord(uid, base_id, start, tuple(entries[no])))
        branch_records = [
            _branch(row, messages[row[3]].id if row[3] is not None else None) for row in branches
        ]
        return Snapshot(
            self._session,
            [messages[no] for no in sorted(messages)],
            segments,
            branch_records,
        )


def labels(connection: Connection, owner: int, session: int) -> list[LabelRecord]:
    """Return the labels of a session, oldest first."""
    rows = connection.execute(sql.LABELS, (owner, session)).fetchall()
    return [LabelRecord(*row) for row in rows]


def message_in(row: Any) -> MessageRecord:
    """Return the message in a row of its id, time, body and checksum."""
    uid, created, body, checksum = row
    return MessageRecord(uid, created, checked_body(uid.bytes, created, body, checksum))


def session_from(row: Any) -> SessionRecord:
    return session_in(row[1], row)


def _branch(row: Any, system: UUID | None) -> BranchRecord:
    uid, name, created, _, _, tail, length, version, resources, capabilities, metadata = row
    return BranchRecord(
        uid,
        name,
        created,
        system,
        tail,
        length,
        names_in(resources),
        names_in(capabilities),
        loads(metadata),
        version,
    )
