"""Secure deletion: erased text leaves the file, its WAL and its full-text index.

SQLite overwrites deleted rows (`secure_delete`), but the text survives in two places: FTS5 only
marks a row as deleted until its segments are merged, and the WAL holds old pages until it is
truncated. The number of deletions to merge is stored with the erasure, so that an interrupted merge
is completed by the next. (FTS5 can erase in place since SQLite 3.42, but older versions cannot read
such a file.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from sennit.stores.sqlite import search_statements as sql

_MERGE_PAGES = 16
_CHANGES_OF_A_MERGE = 2  # FTS5 always changes one row, and more if it merged anything


def drop_words(connection: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Remove rows from the index; their words stay in the file until the index is merged."""
    if removed := list(rows):
        connection.executemany(sql.DROP_WORDS, removed)
        connection.execute(sql.COUNT_ERASED, (len(removed),))


def in_index(connection: sqlite3.Connection) -> int:
    """Return the number of index deletions whose words may still be in the file."""
    return connection.execute(sql.ERASED).fetchone()[0]


def begin_merge(connection: sqlite3.Connection) -> None:
    """Start to merge all segments of the index into one; `merge_more` continues."""
    connection.execute(sql.MERGE_INDEX, (-_MERGE_PAGES,))


def merge_more(connection: sqlite3.Connection) -> bool:
    """Merge some pages of the index; return False if there is nothing left to merge."""
    before = connection.total_changes
    connection.execute(sql.MERGE_INDEX, (_MERGE_PAGES,))
    return connection.total_changes - before >= _CHANGES_OF_A_MERGE


def end_merge(connection: sqlite3.Connection, erased: int) -> None:
    """Record that `erased` deletions have been merged."""
    connection.execute(sql.SET_MERGED, (erased,))


def empty_log(connection: sqlite3.Connection, timeout: float) -> None:
    """Truncate the WAL, unless readers use it for longer than `timeout` seconds.

    A TRUNCATE checkpoint waits for the write lock and holds it. One that runs beside a writer may
    corrupt the file in SQLite before 3.51.3.
    """
    busy_timeout = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {timeout * 1000:.0f}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {busy_timeout}")
