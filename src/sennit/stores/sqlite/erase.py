"""Erasure in SQLite, in short transactions.

A deleted session is hidden at once: its row gets the negated owner number and another id, so that
no query of the owner returns it. Its contents are then erased in batches, and the row last, so that
the next open after a crash finds it and continues.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, closing

from sennit import clock
from sennit.stores.records.blobs import BLOB_GRACE_US
from sennit.stores.records.sessions import Owner
from sennit.stores.sqlite import erase_statements as sql
from sennit.stores.sqlite import secure_delete
from sennit.stores.sqlite.search_rows import few, index_words
from sennit.stores.sqlite.search_statements import LOWER_MARK

ROWS = 200
"""Maximum number of rows that one transaction erases."""
_MIN_PAUSE_S = 0.001

# Children before the parents they are found by: events before journals, entries before segments.
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
    (sql.SOME_BLOB_REFS, sql.DELETE_BLOB_REF),
)


class SQLiteErasing(ABC):
    """The part of a store that erases deleted sessions."""

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _unsynced_transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def collect_blobs(self, before: int, owner: Owner | None = None) -> int: ...

    @abstractmethod
    def _truncate_wal(self) -> None: ...

    def _erase_hidden_sessions(self) -> None:
        """Erase the rest of deleted sessions, also those of a process that crashed."""
        with self._snapshot() as connection:
            hidden = has_hidden_session(connection)
        if hidden:
            self._in_batches(erase_batch)

    def _in_batches(self, step: Callable[[sqlite3.Connection], bool]) -> None:
        """Run a step in transactions until it returns False, pausing as long as each takes."""
        more = True
        while more:
            with self._unsynced_transaction() as connection:
                started = time.monotonic()
                more = step(connection)
            if more:
                time.sleep(max(_MIN_PAUSE_S, time.monotonic() - started))

    def scrub(self) -> None:
        """Remove all traces of erased data from the full-text index and the WAL.

        A long read keeps the WAL from being truncated until the next call.
        """
        self._erase_hidden_sessions()
        self.collect_blobs(clock.now_us() - BLOB_GRACE_US)
        with self._snapshot() as connection:
            erased = secure_delete.in_index(connection)
        if erased:
            with self._unsynced_transaction() as connection:
                secure_delete.begin_merge(connection)
            self._in_batches(secure_delete.merge_more)
            with self._unsynced_transaction() as connection:
                secure_delete.end_merge(connection, erased)
        self._truncate_wal()


def has_hidden_session(connection: sqlite3.Connection) -> bool:
    """Return whether a deleted session is not fully erased."""
    return connection.execute(sql.HIDDEN).fetchone() is not None


def hide(connection: sqlite3.Connection, owner: int, session: int) -> None:
    """Hide a deleted session, to be erased later."""
    connection.execute(sql.HIDE_SESSION, (owner, session))


def erase_batch(connection: sqlite3.Connection) -> bool:
    """Erase a batch of a deleted session; return False if there is none."""
    row = connection.execute(sql.HIDDEN).fetchone()
    if row is None:
        return False
    owner, session = row
    values = {"owner": owner, "session": session, "rows": ROWS}
    for select, delete in _TABLES:
        rows = connection.execute(select, values).fetchall()
        if rows:
            connection.executemany(delete, [key for _, *key in few(rows, lambda row: row[0])])
            return True
    if not _erase_messages(connection, owner, session):
        connection.execute(sql.DELETE_HIDDEN, values)
    return True


def _erase_messages(connection: sqlite3.Connection, owner: int, session: int) -> bool:
    values = {"owner": owner, "session": session, "rows": ROWS}
    with closing(connection.execute(sql.SOME_MESSAGES, values)) as cursor:
        batch = list(few(cursor, lambda row: len(row[2])))
    indexed = (index_words(*row) for *row, has_words in batch if has_words)
    secure_delete.drop_words(connection, indexed)
    numbers = [row[0] for row in batch]
    connection.executemany(sql.DELETE_DETACHED, [(owner, session, number) for number in numbers])
    connection.executemany(sql.DELETE_MESSAGE, [(owner, number) for number in numbers])
    connection.execute(LOWER_MARK)
    return bool(batch)
