"""Erasure in SQLite, in short transactions.

A deleted session is hidden at once: its row gets the negative of its owner's number and another id,
so that nothing that looks for what an owner has finds it. All that is in it is then erased in
pieces. The row goes last, so whoever opens the file after a crash finds it, and goes on.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, closing

from sennit.stores.sqlite import erase_statements as sql
from sennit.stores.sqlite import secure_delete
from sennit.stores.sqlite.search import few, index_words
from sennit.stores.sqlite.search_statements import LOWER_MARK

ROWS = 200
"""Maximum number of rows that one transaction erases."""
_LEAST_PAUSE = 0.001

# What must be gone before what leads to it: events before journals, entries before segments.
_TABLES = (
    (sql.SOME_EVENTS, sql.DELETE_EVENT),
    (sql.SOME_RUNS, sql.DELETE_RUN),
    (sql.SOME_JOURNALS, sql.DELETE_JOURNAL),
    (sql.SOME_ENTRIES, sql.DELETE_ENTRY),
    (sql.SOME_SEGMENTS, sql.DELETE_SEGMENT),
    (sql.SOME_BRANCHES, sql.DELETE_BRANCH),
    (sql.SOME_LEASES, sql.DELETE_LEASE),
    (sql.SOME_LABELS, sql.DELETE_LABEL),
    (sql.SOME_STARTS, sql.DELETE_START),
    (sql.SOME_USES, sql.DELETE_USE),
    (sql.SOME_ARCHIVED, sql.DELETE_ARCHIVED),
    (sql.SOME_COMMITS, sql.DELETE_COMMIT),
)


class SQLiteErasing(ABC):
    """The part of a store that erases what was deleted."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _unhurried(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _empty_log(self) -> None: ...

    def _erase_hidden(self) -> None:
        """Erase what is left of deleted sessions, here or by a process that was cut off."""
        with self._reading() as connection:
            hidden = is_any_hidden(connection)
        if hidden:
            self._in_pieces(erase_more)

    def _in_pieces(self, work: Callable[[sqlite3.Connection], bool]) -> None:
        """Work in transactions until it says that there is no more; half of the time is others'."""
        more = True
        while more:
            with self._unhurried() as connection:
                began = time.monotonic()
                more = work(connection)
            if more:
                time.sleep(max(_LEAST_PAUSE, time.monotonic() - began))

    def scrub(self) -> None:
        """Leave no trace of what was erased: not in the index, and not in the log beside the file.

        Whoever reads for longer than a moment keeps the log as it is, until the next time.
        """
        self._erase_hidden()
        with self._reading() as connection:
            erased = secure_delete.in_index(connection)
        if erased:
            with self._unhurried() as connection:
                secure_delete.begin_merge(connection)
            self._in_pieces(secure_delete.merge_more)
            with self._unhurried() as connection:
                secure_delete.end_merge(connection, erased)
        self._empty_log()


def is_any_hidden(connection: sqlite3.Connection) -> bool:
    """Tell whether there is a deleted session of which something is left."""
    return connection.execute(sql.HIDDEN).fetchone() is not None


def hide(connection: sqlite3.Connection, owner: int, session: int) -> None:
    """Delete a session, of which all else is erased later."""
    connection.execute(sql.HIDE_SESSION, (owner, session))


def erase_more(connection: sqlite3.Connection) -> bool:
    """Erase a piece of a deleted session; False if there is none."""
    row = connection.execute(sql.HIDDEN).fetchone()
    if row is None:
        return False
    owner, session = row
    named = {"owner": owner, "session": session, "rows": ROWS}
    for some, delete in _TABLES:
        rows = connection.execute(some, named).fetchall()
        if rows:
            connection.executemany(delete, [key for _, *key in few(rows, lambda row: row[0])])
            return True
    if not _erase_messages(connection, owner, session):
        connection.execute(sql.DELETE_HIDDEN, named)
    return True


def _erase_messages(connection: sqlite3.Connection, owner: int, session: int) -> bool:
    named = {"owner": owner, "session": session, "rows": ROWS}
    with closing(connection.execute(sql.SOME_MESSAGES, named)) as rows:
        some = list(few(rows, lambda row: len(row[2])))
    indexed = (index_words(*row) for *row, has_words in some if has_words)
    secure_delete.drop_words(connection, indexed)
    numbers = [row[0] for row in some]
    connection.executemany(sql.DELETE_DETACHED, [(owner, session, one) for one in numbers])
    connection.executemany(sql.DELETE_MESSAGE, [(owner, one) for one in numbers])
    connection.execute(LOWER_MARK)
    return bool(some)
