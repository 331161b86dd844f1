"""The reader of one session in SQLite, inside one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sennit.ids import id_from_bytes, ids_from_bytes
from sennit.messages.codec import loads
from sennit.stores.base import damaged_history, no_session
from sennit.stores.checksums import (
    START,
    checked_bodies,
    checked_body,
    entry_checksum,
    segment_checksum,
)
from sennit.stores.records.sessions import (
    BranchRecord,
    LabelRecord,
    MessageRecord,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)
from sennit.stores.sql_json import metadata_in, names_in, session_in
from sennit.stores.sqlite import statements as sql


class SessionReader:
    """Reads one session inside one snapshot."""

    def __init__(self, connection: sqlite3.Connection, owner: int, row: Any) -> None:
        self._run = connection.execute
        self._owner, self._no = owner, row[0]
        self._session = session_from(row)

    def all(self) -> Snapshot:
        """Return the whole session."""
        key = (self._owner, self._no)
        rows: list[Any] = sorted(self._run(sql.ALL_MESSAGES, key))
        # By column, with as little Python per message as possible: sessions are long.
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * 5
        numbers, raw_uids, times, bodies, checksums = columns
        uids = ids_from_bytes(raw_uids)
        checked = checked_bodies(raw_uids, times, bodies, checksums)
        messages = list(map(MessageRecord, uids, times, checked))
        ids: dict[int, UUID] = dict(zip(numbers, uids, strict=True))
        raw_ids: dict[int, bytes] = dict(zip(numbers, raw_uids, strict=True))
        segment_rows = self._run(sql.ALL_SEGMENTS, key).fetchall()
        names = {row[0]: id_from_bytes(row[1]) for row in segment_rows}
        segments: list[SegmentRecord] = []
        for number, _, base, start, entry_numbers_json, last_position, checksum in segment_rows:
            entry_numbers: list[int] = loads(entry_numbers_json)
            matches = segment_checksum(map(raw_ids.__getitem__, entry_numbers)) == (
                checksum or START
            )
            if not matches or len(entry_numbers) != last_position + 1:
                raise damaged_history(names[number])
            entries = tuple(map(ids.__getitem__, entry_numbers))
            segments.append(SegmentRecord(names[number], names.get(base), start, entries))
        branches = [
            _branch(row, ids.get(row[3]), names[row[4]]) for row in self._run(sql.ALL_BRANCHES, key)
        ]
        return Snapshot(self._session, messages, segments, branches)

    def beyond(self, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond these segments and lengths."""
        rows = self._run(sql.ALL_BRANCHES, (self._owner, self._no)).fetchall()
        messages: dict[int, MessageRecord] = {}
        segments = self._new_segments(rows, known, messages)
        for row in rows:
            if row[3] is not None and row[3] not in messages:
                messages[row[3]] = _message(self._find_row(sql.MESSAGE_BY_NO, row[3]))
        names = {number: record.id for number, record in segments.items()}
        new = [
            segment for segment in segments.values() if segment.id not in known or segment.entries
        ]
        branches = [
            _branch(row, messages[row[3]].id if row[3] is not None else None, names[row[4]])
            for row in rows
        ]
        return Snapshot(
            self._session, [messages[number] for number in sorted(messages)], new, branches
        )

    def _new_segments(
        self, branches: list[Any], known: Mapping[UUID, int], messages: dict[int, MessageRecord]
    ) -> dict[int, SegmentRecord]:
        """Return the segments of these branches down to known ones, with their new entries."""
        segments: dict[int, SegmentRecord] = {}
        lengths = {row[4]: row[5] for row in branches}
        # One query: one per segment would contend for the GIL hundreds of times.
        rows_by_number = {row[0]: row for row in self._run(sql.SEGMENTS, (self._owner, self._no))}
        pending = list(lengths)
        while pending:
            number = pending.pop()
            if number in segments:
                continue
            _, uid, base, start = rows_by_number[number]
            segment_id = id_from_bytes(uid)
            rows: list[Any] = []
            if lengths.get(number) != (size := known.get(segment_id, 0)):
                rows = self._run(sql.ENTRIES_FROM, (self._owner, number, size)).fetchall()
                _check_checksums(segment_id, rows)
            messages.update((row[0], _message(row)) for row in rows)
            base_id = None
            if base is not None:
                base_id = id_from_bytes(rows_by_number[base][1])
                if segment_id not in known or base_id not in known:
                    pending.append(base)
            entries = tuple(messages[row[0]].id for row in rows)
            segments[number] = SegmentRecord(segment_id, base_id, start, entries)
        return segments

    def _find_row(self, statement: str, number: int) -> Any:
        """Return the row with that number; raises KeyError."""
        row = self._run(statement, (self._owner, number)).fetchone()
        if row is None:
            raise KeyError(number)
        return row


def labels(connection: sqlite3.Connection, owner: int, session: int) -> list[LabelRecord]:
    """Return the labels of a session, oldest first."""
    return [
        LabelRecord(id_from_bytes(uid), *row)
        for uid, *row in connection.execute(sql.LABELS, (owner, session))
    ]


def session_row(connection: sqlite3.Connection, owner: int, session: UUID) -> Any:
    """Return the row of a session; raises NotFoundError."""
    row = connection.execute(sql.FIND_SESSION, (owner, session.bytes)).fetchone()
    if row is None:
        raise no_session(session)
    return row


def session_from(row: Any) -> SessionRecord:
    """Return the session of a row."""
    return session_in(id_from_bytes(row[1]), row)


def _check_checksums(segment: UUID, rows: Sequence[Any]) -> None:
    """Raise StoreError unless positions are consecutive and checksums match."""
    first: int = rows[0][5] if rows else 0
    previous: int | None = None if first else START
    for expected, (_, uid, _, _, _, position, checksum) in enumerate(rows, first):
        if position != expected or (
            previous is not None and entry_checksum(previous, uid) != checksum
        ):
            raise damaged_history(segment)
        previous = checksum


def _message(row: Any) -> MessageRecord:
    _, uid, created, body, checksum, *_ = row
    return MessageRecord(id_from_bytes(uid), created, checked_body(uid, created, body, checksum))


def _branch(row: Any, system: UUID | None, segment: UUID) -> BranchRecord:
    uid, name, created, _, _, length, resources, capabilities, metadata, version = row
    return BranchRecord(
        id_from_bytes(uid),
        name,
        created,
        system,
        segment,
        length,
        names_in(resources),
        names_in(capabilities),
        metadata_in(metadata),
        version,
    )
