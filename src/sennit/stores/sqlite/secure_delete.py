"""Secure deletion: erased text leaves the file, its log and its index.

SQLite overwrites a row that is deleted (`secure_delete`), but two places keep what it said: the
index of words only notes that a row is gone until its parts are merged, and the log beside the file
holds pages as they were until it is emptied. Whether a merge is due is written down with the
erasure, so that one which was cut off is made up for by the next. (FTS5 can erase in place since
SQLite 3.42, but a file that was told to can no longer be read by an older one.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from sennit.stores.sqlite import search_statements as sql

_PAGES = 16
_MERGED = 2  # rows that change if anything was merged; FTS5 always changes one


def drop_words(connection: sqlite3.Connection, rows: Iterable[tuple[int, str]]) -> None:
    """Take rows out of the index; their words stay in the file until the index is merged."""
    if given := list(rows):
        connection.executemany(sql.DROP_WORDS, given)
        connection.execute(sql.COUNT_ERASED, (len(given),))


def in_index(connection: sqlite3.Connection) -> int:
    """Return the number of index deletions whose words may still be in the file."""
    return connection.execute(sql.ERASED).fetchone()[0]


def begin_merge(connection: sqlite3.Connection) -> None:
    """Have all parts of the index merged into one; what is merged then grows by `merge_more`."""
    connection.execute(sql.MERGE_INDEX, (-_PAGES,))


def merge_more(connection: sqlite3.Connection) -> bool:
    """Merge some pages of the index; False if there is no more to merge."""
    before = connection.total_changes
    connection.execute(sql.MERGE_INDEX, (_PAGES,))
    return connection.total_changes - before >= _MERGED


def end_merge(connection: sqlite3.Connection, erased: int) -> None:
    """Note that what was taken out of the index before the merge has left no trace in it."""
    connection.execute(sql.SET_MERGED, (erased,))


def empty_log(connection: sqlite3.Connection, seconds: float) -> None:
    """Empty the log beside the file, unless others read from it for longer than that.

    It waits for the lock of writers, and holds it. A checkpoint that cannot have it goes on beside
    a writer, which versions of SQLite before 3.51.3 may answer with a damaged file.
    """
    patience = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
