"""Detached messages of one session in PostgreSQL.

Their words are dropped from the index at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.stores.detached import DetachedMessages, SegmentUse, use_of
from sennit.stores.postgres import detached_statements as sql
from sennit.stores.postgres.adapter import PostgresConnection
from sennit.stores.postgres.search_rows import add_words
from sennit.stores.postgres.statements import DELETE_ENTRIES, DELETE_SEGMENTS, DELETE_WORDS
from sennit.stores.segment_graph import Range

if TYPE_CHECKING:
    import psycopg

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class DetachedTable(DetachedMessages):
    """The detached messages of one session."""

    def __init__(self, connection: _Connection, owner: int, session: int) -> None:
        super().__init__()
        self._connection, self._run = connection, connection.execute
        self._owner, self._key = owner, (owner, session)
        self._key_values: dict[str, Any] = {"owner": owner, "session": session}

    def any(self) -> bool:
        row = self._run(sql.HAS_ANY, self._key).fetchone()
        return row is not None and bool(row[0])

    def _uses(self, segments: Iterable[int]) -> dict[int, SegmentUse]:
        numbers = list(segments)
        rows = self._run(sql.USES, {**self._key_values, "segments": numbers}) if numbers else ()
        return {number: use_of(*row) for number, *row in rows}

    def _messages_in(self, ranges: Sequence[Range]) -> set[int]:
        if not ranges:
            return set()
        segments, firsts, ends = map(list, zip(*ranges, strict=True))
        values = {"owner": self._owner, "segments": segments, "firsts": firsts, "ends": ends}
        return {message for (message,) in self._run(sql.MESSAGES_IN, values)}

    def _delete(self, segments: Sequence[int]) -> None:
        self._run(DELETE_ENTRIES, (self._owner, segments))
        self._run(DELETE_SEGMENTS, (*self._key, segments))

    def detach(self, messages: Iterable[int], since: int | None) -> None:
        if numbers := list(messages):
            values = {**self._key_values, "messages": numbers, "since": since}
            new = [number for (number,) in self._run(sql.ADD, values).fetchall()]
            self._run(DELETE_WORDS, (*self._key, new))

    def attach(self, messages: Iterable[int]) -> None:
        numbers = list(messages)
        if not numbers or not self.any():
            return
        reattached = [number for (number,) in self._run(sql.DROP, (*self._key, numbers)).fetchall()]
        if reattached:
            rows = self._connection.execute(sql.TO_INDEX, (*self._key, reattached), binary=True)
            add_words(PostgresConnection(self._connection), self._owner, rows.fetchall())
            self._run(sql.INDEX_MORE, self._key)

    def removed(self, before: int) -> list[UUID]:
        """Return the messages removed before a time."""
        return [uid for (uid,) in self._run(sql.REMOVED_IN, (*self._key, before))]

    def _segments(self) -> dict[int, tuple[int | None, int]]:
        return {no: (base, start) for no, base, start in self._run(sql.SEGMENTS, self._key)}

    def _branches(self) -> list[tuple[str, int, UUID | None]]:
        rows = self._run(sql.BRANCHES, self._key)
        return [(name, segment, system) for name, segment, system in rows]

    def _places(self, messages: Sequence[UUID]) -> list[tuple[UUID, int, int]]:
        rows = self._run(sql.PLACES, {**self._key_values, "ids": list(messages)})
        return [(uid, segment, position) for uid, segment, position in rows]
