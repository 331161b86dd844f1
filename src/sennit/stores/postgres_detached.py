"""Messages on no branch in PostgreSQL, of one session, inside one transaction that holds its lock.

See `sqlite_detached`, whose rules these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.stores.histories import MAIN, Layout, Range
from sennit.stores.postgres_words import add_words
from sennit.stores.records import Owner, RemovedMessage
from sennit.stores.sql import postgres_detached as sql
from sennit.stores.sql.postgres import DELETE_WORDS

if TYPE_CHECKING:
    import psycopg

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class DetachedTable:
    """The messages of one session that stand on no branch."""

    def __init__(self, connection: _Connection, owner: int, session: int) -> None:
        self._connection, self._run = connection, connection.execute
        self._owner, self._key = owner, (owner, session)
        self._named: dict[str, Any] = {"owner": owner, "session": session}

    def any(self) -> bool:
        """Tell whether there are any."""
        row = self._run(sql.HAS_ANY, self._key).fetchone()
        return row is not None and bool(row[0])

    def layout(self) -> Layout:
        """What branches show now."""
        rows = {no: (base, start) for no, base, start in self._run(sql.SEGMENTS, self._key)}
        branches = {
            uid: (segment, system) for uid, segment, system in self._run(sql.BRANCHES, self._key)
        }
        return Layout(rows, branches)

    def changed(self, branch: UUID, before: Layout) -> None:
        """Detach what a change has taken off one branch, and attach what it has put on it."""
        after = self.layout()
        gone = self._in(before.more_than(after))
        systems = before.systems - after.systems
        if gone or systems:
            ranges = after.everything if systems else after.beside(branch, before)
            gone |= systems
            self.detach(gone - after.systems - self._in(ranges, gone), clock.now_us())
        self.attach(self._in(after.more_than(before)) | (after.systems - before.systems))

    def _in(self, ranges: Sequence[Range], among: Iterable[int] | None = None) -> set[int]:
        if not ranges:
            return set()
        segments, firsts, ends = map(list, zip(*ranges, strict=True))
        values = {
            **self._named,
            "segments": segments,
            "firsts": firsts,
            "ends": ends,
            "messages": None if among is None else list(among),
        }
        return {message for (message,) in self._run(sql.MESSAGES_IN, values)}

    def detach(self, messages: Iterable[int], since: int | None) -> None:
        """Keep messages without finding them, unless they are in an archive."""
        if given := list(messages):
            values = {**self._named, "messages": given, "since": since}
            new = [number for (number,) in self._run(sql.ADD, values).fetchall()]
            self._run(DELETE_WORDS, (*self._key, new))

    def attach(self, messages: Iterable[int]) -> None:
        """Have messages found again, those of them that were detached."""
        given = list(messages)
        if not given or not self.any():
            return
        again = [number for (number,) in self._run(sql.DROP, (*self._key, given)).fetchall()]
        if again:
            rows = self._connection.execute(sql.TO_INDEX, (*self._key, again), binary=True)
            add_words(self._connection, self._owner, rows.fetchall())
            self._run(sql.INDEX_MORE, self._key)

    def removed(self, before: int) -> list[UUID]:
        """The messages removed before a time."""
        return [uid for (uid,) in self._run(sql.REMOVED_IN, (*self._key, before))]

    def branches_holding(self, messages: Sequence[UUID]) -> dict[UUID, str]:
        """The branch on which each message stands."""
        rows = self._run(sql.NAMES, self._key).fetchall()
        rows.sort(key=lambda row: row[0] != MAIN)
        places = self._run(sql.PLACES, {**self._named, "ids": list(messages)}).fetchall()
        standing = ((uid, segment, pos) for uid, segment, pos in places)
        found = self.layout().holding({uid: name for name, uid, _ in rows}, standing)
        for name, _, system in rows:
            if system is not None:
                found.setdefault(system, name)
        return {uid: found[uid] for uid in messages if uid in found}


def removed(
    connection: _Connection, owner: int | None, session: UUID | None, before: int, limit: int
) -> list[RemovedMessage]:
    """Messages removed before a time, of one owner or of all."""
    values = {"owner": owner, "session": session, "before": before, "limit": max(0, limit)}
    return [
        RemovedMessage(Owner(*whose), home, uid, since)
        for *whose, home, uid, since in connection.execute(sql.REMOVED, values)
    ]
