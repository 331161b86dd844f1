"""Rows of the full-text index in SQLite.

Messages are indexed in batches before a search, files when they are written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from sennit.errors import StoreError
from sennit.stores.search import tokenizer
from sennit.stores.sql.files import FileWriter
from sennit.stores.sqlite import search_statements as sql
from sennit.stores.sqlite.secure_delete import drop_words

_BATCH = 200
_MAX_BATCH_BYTES = 32 * 1024


def index_words(number: int, created: int, body: bytes) -> tuple[int, str]:
    """Return a message's row in the index."""
    return number, tokenizer.indexed_text(body, created)


def file_words(version: int, body: bytes) -> tuple[int, str]:
    """Return a version's row in the index."""
    return -version, tokenizer.space_letters(body.decode(errors="replace"))


class IndexingFileWriter(FileWriter):
    """A writer of files that keeps the index up to date."""

    def _index(self, version: int, body: bytes) -> None:
        self._connection.connection.execute(sql.ADD_WORDS, file_words(version, body))

    def _unindex(self, versions: dict[int, bytes]) -> None:
        rows = (file_words(version, body) for version, body in versions.items())
        drop_words(self._connection.connection, rows)


def is_complete(connection: sqlite3.Connection) -> bool:
    """Return whether the index has exactly the attached messages; files are indexed on write."""
    return bool(connection.execute(sql.IS_COMPLETE, (_read_mark(connection),)).fetchone()[0])


def index_more(connection: sqlite3.Connection) -> None:
    """Index the next batch of messages or, if there is none, drop a batch of detached ones."""
    rows = _limited(connection, sql.UNINDEXED, _read_mark(connection), _BATCH)
    if rows:
        words = [index_words(*row) for row in rows if row[2] is not None]
        connection.executemany(sql.ADD_WORDS, words)
        connection.execute(sql.SET_MARK, (rows[-1][0],))
        return
    rows = _limited(connection, sql.TO_DROP, _BATCH)
    drop_words(connection, (index_words(*row) for *row, _, _ in rows))
    dropped = [(*home, number) for number, _, _, *home in rows]
    connection.executemany(sql.SET_DROPPED, dropped)


def _limited(connection: sqlite3.Connection, statement: str, *parameters: int) -> list[Any]:
    """Return rows with a body as third column, up to the byte limit of a batch."""
    with closing(connection.execute(statement, parameters)) as rows:
        return list(few(rows, lambda row: len(row[2] or b"")))


def remove_words(connection: sqlite3.Connection, number: int, created: int, body: bytes) -> None:
    """Remove a message from the index if it is indexed."""
    if number <= _read_mark(connection):
        drop_words(connection, [index_words(number, created, body)])


def add_words(connection: sqlite3.Connection, number: int, created: int, body: bytes) -> None:
    """Index a message again, unless the next search does so anyway."""
    if number <= _read_mark(connection):
        connection.execute(sql.ADD_WORDS, index_words(number, created, body))


def few(rows: Iterable[Any], size: Callable[[Any], int]) -> Iterator[Any]:
    """Yield rows up to the byte limit of a batch: at least one, if there is any."""
    budget = _MAX_BATCH_BYTES
    for row in rows:
        yield row
        budget -= size(row)
        if budget <= 0:
            return


def _read_mark(connection: sqlite3.Connection) -> int:
    row = connection.execute(sql.MARK).fetchone()
    if row is None:
        raise StoreError(
            "The full-text index is damaged. Repair it with client.doctor(repair=True)."
        )
    return row[0]
