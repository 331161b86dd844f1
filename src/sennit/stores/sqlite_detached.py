"""Messages on no branch in SQLite, of one session, inside one transaction.

A message is attached while it stands on a branch, is a branch's system message, or is in an
archive. Detached messages are kept, with the time at which they were removed, but no search finds
them: before it looks, it drops their words from the index, in transactions of its own. Most
changes detach nothing, and cost nothing here. A change of a branch compares what branches show
before and after it; its cost grows with the segments of the session and with what was removed, not
with the session's length.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from uuid import UUID

from sennit import clock
from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores.histories import MAIN, Layout, Range
from sennit.stores.records import Owner, RemovedMessage
from sennit.stores.sql import sqlite_detached as sql
from sennit.stores.sqlite_words import add_words


class DetachedTable:
    """The messages of one session that stand on no branch."""

    def __init__(self, connection: sqlite3.Connection, owner: int, session: int) -> None:
        self._connection, self._run = connection, connection.execute
        self._owner, self._key = owner, (owner, session)
        self._named = {"owner": owner, "session": session}

    def any(self) -> bool:
        """Tell whether there are any."""
        return self._run(sql.HAS_ANY, self._key).fetchone() is not None

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
            ranges = after.everything if systems else after.beside(branch.bytes, before)
            gone |= systems
            self.detach(gone - after.systems - self._among(ranges, gone), clock.now_us())
        self.attach(self._in(after.more_than(before)) | (after.systems - before.systems))

    def _in(self, ranges: Sequence[Range]) -> set[int]:
        if not ranges:
            return set()
        values = {**self._named, "ranges": _json(ranges)}
        return {message for (message,) in self._run(sql.MESSAGES_IN, values)}

    def _among(self, ranges: Sequence[Range], messages: Iterable[int]) -> set[int]:
        values = {**self._named, "ranges": _json(ranges), "messages": _json(messages)}
        return {message for (message,) in self._run(sql.MESSAGES_AMONG, values)}

    def detach(self, messages: Iterable[int], since: int | None) -> None:
        """Keep messages without finding them, unless they are in an archive."""
        self._run(sql.ADD, {**self._named, "messages": _json(messages), "since": since})

    def attach(self, messages: Iterable[int]) -> None:
        """Have messages found again, those of them that were detached."""
        given = list(messages)
        if not given or not self.any():
            return
        values = {**self._named, "messages": _json(given)}
        for number, has_words in self._run(sql.DROP, values).fetchall():
            if has_words:
                continue
            created, body = self._run(sql.BODY, (self._owner, number)).fetchone()
            add_words(self._connection, number, created, body)

    def forget(self, message: int) -> bool:
        """Drop the row of a message that is erased; tell whether its words were dropped before."""
        values = {**self._named, "messages": _json([message])}
        row = self._run(sql.DROP, values).fetchone()
        return row is not None and not row[1]

    def removed(self, before: int, limit: int) -> list[UUID]:
        """Some messages removed before a time."""
        rows = self._run(sql.REMOVED_IN, (*self._key, before, limit))
        return [id_from_bytes(uid) for (uid,) in rows]

    def put_since(self, removed: Iterable[RemovedMessage]) -> None:
        """Take over from another store when messages were removed."""
        rows = [(one.since, *self._key, one.message.bytes) for one in removed]
        self._connection.executemany(sql.SET_SINCE, rows)

    def branches_holding(self, messages: Sequence[UUID]) -> dict[UUID, str]:
        """The branch on which each message stands."""
        rows = self._run(sql.NAMES, self._key).fetchall()
        rows.sort(key=lambda row: row[0] != MAIN)
        layout = self.layout()
        ids = _json(one.hex.upper() for one in messages)
        places = self._run(sql.PLACES, {**self._named, "ids": ids})
        standing = ((id_from_bytes(uid), segment, pos) for uid, segment, pos in places)
        found = layout.holding({uid: name for name, uid, _ in rows}, standing)
        for name, _, system in rows:
            if system is not None:
                found.setdefault(id_from_bytes(system), name)
        return {uid: found[uid] for uid in messages if uid in found}


def removed(
    connection: sqlite3.Connection,
    owner: int | None,
    session: UUID | None,
    before: int,
    limit: int,
) -> list[RemovedMessage]:
    """Messages removed before a time, of one owner or of all."""
    values = {
        "owner": owner,
        "session": None if session is None else session.bytes,
        "before": before,
        "limit": limit,
    }
    return [
        RemovedMessage(Owner(*whose), id_from_bytes(home), id_from_bytes(uid), since)
        for *whose, home, uid, since in connection.execute(sql.REMOVED, values)
    ]


def _json(values: Iterable[object]) -> str:
    return dumps(list(values)).decode()
