"""Detached messages of one session in SQLite.

Their words stay in the index until the next search, which first drops them in its own transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from uuid import UUID

from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores.detached import DetachedMessages, SegmentUse, use_of
from sennit.stores.records.sessions import RemovedMessage
from sennit.stores.segment_graph import Range
from sennit.stores.sqlite import detached_statements as sql
from sennit.stores.sqlite.search_rows import add_words
from sennit.stores.sqlite.statements import DELETE_ENTRIES, DELETE_SEGMENT


class DetachedTable(DetachedMessages):
    """The detached messages of one session."""

    def __init__(self, connection: sqlite3.Connection, owner: int, session: int) -> None:
        super().__init__()
        self._connection, self._run = connection, connection.execute
        self._owner, self._key = owner, (owner, session)
        self._named = {"owner": owner, "session": session}

    def any(self) -> bool:
        return self._run(sql.HAS_ANY, self._key).fetchone() is not None

    def _uses(self, segments: Iterable[int]) -> dict[int, SegmentUse]:
        uses: dict[int, SegmentUse] = {}
        for number in segments:
            row = self._run(sql.USE, (self._owner, number)).fetchone()
            if row is not None:
                uses[number] = use_of(*row)
        return uses

    def _messages_in(self, ranges: Sequence[Range]) -> set[int]:
        messages: set[int] = set()
        for segment_range in ranges:
            messages.update(
                no for (no,) in self._run(sql.MESSAGES_IN, (self._owner, *segment_range))
            )
        return messages

    def _delete(self, segments: Sequence[int]) -> None:
        for number in segments:
            self._run(DELETE_ENTRIES, (self._owner, number))
            self._run(DELETE_SEGMENT, (self._owner, number))

    def detach(self, messages: Iterable[int], since: int | None) -> None:
        self._run(sql.ADD, {**self._named, "messages": _json(messages), "since": since})

    def attach(self, messages: Iterable[int]) -> None:
        numbers = list(messages)
        if not numbers or not self.any():
            return
        values = {**self._named, "messages": _json(numbers)}
        for number, has_words in self._run(sql.DROP, values).fetchall():
            if has_words:
                continue
            created, body = self._run(sql.BODY, (self._owner, number)).fetchone()
            add_words(self._connection, number, created, body)

    def forget(self, message: int) -> bool:
        """Drop an erased message's row; return whether its words had left the index."""
        values = {**self._named, "messages": _json([message])}
        row = self._run(sql.DROP, values).fetchone()
        return row is not None and not row[1]

    def removed(self, before: int, limit: int) -> list[UUID]:
        """Return up to `limit` messages removed before a time."""
        rows = self._run(sql.REMOVED_IN, (*self._key, before, limit))
        return [id_from_bytes(uid) for (uid,) in rows]

    def put_since(self, messages: Iterable[RemovedMessage]) -> None:
        """Copy the removal times of messages from another store."""
        rows = [(message.since, *self._key, message.message.bytes) for message in messages]
        self._connection.executemany(sql.SET_SINCE, rows)

    def _segments(self) -> dict[int, tuple[int | None, int]]:
        return {no: (base, start) for no, base, start in self._run(sql.SEGMENTS, self._key)}

    def _branches(self) -> list[tuple[str, int, UUID | None]]:
        return [
            (name, segment, None if system is None else id_from_bytes(system))
            for name, segment, system in self._run(sql.BRANCHES, self._key)
        ]

    def _places(self, messages: Sequence[UUID]) -> list[tuple[UUID, int, int]]:
        return [
            (uid, segment, pos)
            for uid in messages
            for segment, pos in self._run(sql.PLACES, (*self._key, uid.bytes))
        ]


def _json(values: Iterable[object]) -> str:
    return dumps(list(values)).decode()
