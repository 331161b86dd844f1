"""What erased words leave behind in a SQLite file, and how that goes too.

SQLite overwrites a row that is deleted (`secure_delete`), but two places keep what it said: the
index of words only notes that a row is gone until its parts are merged, and the log beside the file
holds pages as they were until it is emptied. Whether a merge is due is written down with the
erasure, so that one which was cut off is made up for by the next. (FTS5 can erase in place since
SQLite 3.42, but a file that was told to can no longer be read by an older one.)
"""

from __future__ import annotations

import sqlite3

from sennit.stores.sql import sqlite_words as sql


def drop_words(connection: sqlite3.Connection, row: tuple[int, str]) -> None:
    """Take a row out of the index; its words stay in the file until the index is merged."""
    connection.execute(sql.DROP_WORDS, row)
    connection.execute(sql.COUNT_ERASED)


def in_index(connection: sqlite3.Connection) -> bool:
    """Whether words may be in the file that were taken out of the index."""
    return connection.execute(sql.HAS_ERASED).fetchone() is not None


def merge(connection: sqlite3.Connection) -> None:
    """Leave no trace in the index of what was taken out of it."""
    connection.execute(sql.MERGE_INDEX)
    connection.execute(sql.SET_MERGED)


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
