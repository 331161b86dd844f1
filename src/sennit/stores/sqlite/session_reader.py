"""Reading of one session in SQLite, inside one snapshot."""

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
        """Everything."""
        key = (self._owner, self._no)
        rows: list[Any] = sorted(self._run(sql.ALL_MESSAGES, key))
        # By columns, and with as few steps of Python for each message as can be: a session is long.
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * 5
        numbers, raw, times, bodies, checksums = columns
        made = ids_from_bytes(raw)
        checked = checked_bodies(raw, times, bodies, checksums)
        messages = list(map(MessageRecord, made, times, checked))
        ids: dict[int, UUID] = dict(zip(numbers, made, strict=True))
        raw_ids: dict[int, bytes] = dict(zip(numbers, raw, strict=True))
        found = self._run(sql.ALL_SEGMENTS, key).fetchall()
        names = {row[0]: id_from_bytes(row[1]) for row in found}
        segments: list[SegmentRecord] = []
        for no, _, base, start, listed, last, checksum in found:
            standing: list[int] = loads(listed)
            sound = segment_checksum(map(raw_ids.__getitem__, standing)) == (checksum or START)
            if not sound or len(standing) != last + 1:
                raise damaged_history(names[no])
            entries = tuple(map(ids.__getitem__, standing))
            segments.append(SegmentRecord(names[no], names.get(base), start, entries))
        branches = [
            _branch(row, ids.get(row[3]), names[row[4]]) for row in self._run(sql.ALL_BRANCHES, key)
        ]
        return Snapshot(self._session, messages, segments, branches)

    def beyond(self, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond these segments and lengths."""
        rows = self._run(sql.ALL_BRANCHES, (self._owner, self._no)).fetchall()
        messages: dict[int, MessageRecord] = {}
        segments = self._needed(rows, known, messages)
        for row in rows:
            if row[3] is not None and row[3] not in messages:
                messages[row[3]] = _message(self._row(sql.MESSAGE_BY_NO, row[3]))
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
        lengths = {row[4]: row[5] for row in branches}
        # All at once: a statement for each would take the GIL hundreds of times from others.
        there = {row[0]: row for row in self._run(sql.SEGMENTS, (self._owner, self._no))}
        waiting = list(lengths)
        while waiting:
            no = waiting.pop()
            if no in found:
                continue
            _, uid, base, start = there[no]
            made = id_from_bytes(uid)
            rows: list[Any] = []
            if lengths.get(no) != (size := known.get(made, 0)):
                rows = self._run(sql.ENTRIES_FROM, (self._owner, no, size)).fetchall()
                _check_rolled(made, rows)
            messages.update((row[0], _message(row)) for row in rows)
            below = None
            if base is not None:
                below = id_from_bytes(there[base][1])
                if made not in known or below not in known:
                    waiting.append(base)
            entries = tuple(messages[row[0]].id for row in rows)
            found[no] = SegmentRecord(made, below, start, entries)
        return found

    def _row(self, statement: str, number: int) -> Any:
        """The row of that number; raises KeyError."""
        row = self._run(statement, (self._owner, number)).fetchone()
        if row is None:
            raise KeyError(number)
        return row


def session_row(connection: sqlite3.Connection, owner: int, session: UUID) -> Any:
    """The row of a session; raises NotFoundError."""
    row = connection.execute(sql.FIND_SESSION, (owner, session.bytes)).fetchone()
    if row is None:
        raise no_session(session)
    return row


def session_from(row: Any) -> SessionRecord:
    """The record in a session's row."""
    return session_in(id_from_bytes(row[1]), row)


def _check_rolled(segment: UUID, rows: Sequence[Any]) -> None:
    """Raise StoreError unless entries follow one another and have the checksums they should."""
    first: int = rows[0][5] if rows else 0
    before: int | None = None if first else START
    for at, (_, uid, _, _, _, place, checksum) in enumerate(rows, first):
        if place != at or (before is not None and entry_checksum(before, uid) != checksum):
            raise damaged_history(segment)
        before = checksum


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
