"""Integrity checks of a SQLite file.

`PRAGMA integrity_check` comes first: queries of a corrupt file mean nothing. Indexes that disagree
with their tables are a separate finding, repaired by REINDEX.
"""

# Integrity checks may use the private parts of the store.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Final, LiteralString, TypeVar, cast
from uuid import UUID

from sennit.stores.checksums import START, entry_checksum
from sennit.stores.doctor.checks import (
    CHANGED_ROWS,
    Finding,
    IntegrityCheck,
    StoreInspector,
    finding,
    is_readable,
    run_all,
)
from sennit.stores.sql.connection import Row, Sql
from sennit.stores.sql.store import SqlStore
from sennit.stores.sqlite.connection import connect, translated
from sennit.stores.sqlite.erase import has_hidden_session
from sennit.stores.sqlite.search_rows import file_words, index_words
from sennit.stores.sqlite.search_statements import ADD_WORDS, ALL_FILES
from sennit.stores.sqlite.store import SQLiteStore

_T = TypeVar("_T")

_FIXED_SQLITE_VERSION = (3, 51, 3)

_UNINDEXED: Final = """
    SELECT id, body FROM messages WHERE no <= (SELECT mark FROM indexed)
      AND no NOT IN (SELECT id FROM words_docsize)
      AND no NOT IN (SELECT message FROM detached)"""
_WRONGLY_INDEXED: Final = """
    SELECT 'index row ' || id FROM words_docsize
    WHERE id > (SELECT mark FROM indexed)
       OR (id >= 0 AND id NOT IN (SELECT no FROM messages))
       OR id IN (SELECT message FROM detached WHERE words = 0)
       OR (id < 0 AND -id NOT IN (SELECT no FROM versions))
    UNION ALL
    SELECT 'message ' || message FROM detached
    WHERE words = 1 AND message NOT IN (SELECT id FROM words_docsize)
    UNION ALL
    SELECT 'version ' || no FROM versions
    WHERE -no NOT IN (SELECT id FROM words_docsize)"""
# One mark, and not past the last message: those to come would never be indexed.
_MARKS: Final = """
    SELECT count(*) FROM indexed
    WHERE mark <= (SELECT coalesce(max(no), 0) FROM messages)
       OR (SELECT count(*) FROM indexed) > 1"""
_EMPTY_INDEX: Final = (
    "INSERT INTO words (words) VALUES ('delete-all')",
    "UPDATE detached SET words = 0 WHERE words = 1",
    "DELETE FROM indexed",
    "INSERT INTO indexed (mark) SELECT coalesce(max(no), 0) FROM messages",
)
_ALL_BODIES: Final = """
    SELECT no, created, body FROM messages
    WHERE no NOT IN (SELECT message FROM detached) ORDER BY no"""


def _covered(
    table: LiteralString, name: LiteralString, columns: LiteralString
) -> tuple[LiteralString, LiteralString]:
    """Return the query for rows that differ from the checksum of columns, and its repair."""
    checksum = f"row_checksum({columns})"
    return (
        f"SELECT {name} FROM {table} WHERE checksum IS NOT {checksum}",
        f"UPDATE {table} SET checksum = {checksum}",
    )


_COVERED: Final = (
    _covered("sessions", "'session ' || no", "id, key, sender, created, metadata"),
    _covered("segments", "'segment ' || no", "id, base, start"),
    _covered(
        "branches",
        "'branch ' || name",
        "id, name, created, system, segment, resources, capabilities, metadata",
    ),
    _covered(
        "versions",
        "'version ' || no",
        "number, written, valid_from, body, valid_to, made_by, info",
    ),
)


class SQLiteInspector(StoreInspector):
    """A SQLite file, on one connection."""

    @classmethod
    def visit(cls, store: SqlStore, work: Callable[[StoreInspector], _T], *, mend: bool) -> _T:
        """Run work once deleted sessions are erased: half-erased ones look damaged."""

        def attempt(inspector: StoreInspector) -> list[_T]:
            return [] if has_hidden_session(inspector._connection) else [work(inspector)]

        results: list[_T] = []
        while not results:
            cast("SQLiteStore", store)._erase_hidden_sessions()
            results = super().visit(store, attempt, mend=mend)
        return results[0]

    @classmethod
    def findings(cls, store: SqlStore, *, mend: bool) -> list[Finding]:
        """Run all checks, unless the file is corrupt; with `mend`, repair what each one finds."""
        damage = _damage(cast("SQLiteStore", store))
        return [damage] if damage else super().findings(store, mend=mend)

    @classmethod
    def notes(cls, store: SqlStore) -> list[str]:
        """Return remarks about SQLite's version and messages on no branch."""
        return [_version_note(), *super().notes(store)]

    def stream(self, query: Sql) -> Iterator[Row]:
        """Run a query and yield its rows, of which few are in memory."""
        return self._connection.execute(query.sqlite)

    def next_checksum(self, before: Any, position: int, uid: bytes) -> Any:
        """Return the running checksum of an entry; `before` is None for the first."""
        del position  # not part of the checksum here: gaps have a check of their own
        return entry_checksum(START if before is None else before, uid)

    def index_faults(self) -> Iterator[str]:
        """Yield rows that are missing from the full-text index, or wrongly in it."""
        if self.rows(_MARKS)[0][0] != 1:
            yield "the mark"
        for column, body in self._connection.execute(_UNINDEXED):
            uid = self.uid(column)
            if is_readable(uid, 0, body):
                yield f"message {uid}"
        for (name,) in self.rows(_WRONGLY_INDEXED):
            yield name

    def mend_index(self) -> None:
        """Rebuild the index."""
        run_all(*_EMPTY_INDEX)(self)
        self._connection.executemany(ADD_WORDS, self._indexed_rows())

    def _indexed_rows(self) -> Iterator[tuple[int, str]]:
        for number, created, body in self._connection.execute(_ALL_BODIES):
            if is_readable(UUID(int=0), 0, body):
                yield index_words(number, created, body)
        for version, body in self._connection.execute(ALL_FILES):
            yield file_words(version, body)

    def checks(self) -> Iterable[IntegrityCheck]:
        """Yield all checks; indexes first, because the others rely on them."""
        yield IntegrityCheck(
            "keys",
            "Keys disagree with their rows.",
            lambda _: (row for row in _integrity_errors(self._connection) if _is_index_error(row)),
            "REINDEX",
        )
        yield from super().checks()
        queries, updates = zip(*_COVERED, strict=True)
        yield IntegrityCheck("rows", CHANGED_ROWS, " UNION ALL ".join(queries), run_all(*updates))


def _version_note() -> str:
    text = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info >= _FIXED_SQLITE_VERSION:
        return f"{text}."
    return (
        f"{text}: versions before 3.51.3 can damage a file when several programs write to it at "
        f"the same moment (the WAL-reset bug). It is rare; use a Python with a newer SQLite, and "
        f"make backups."
    )


def _damage(store: SQLiteStore) -> Finding | None:
    store._refuse_if_closed()
    with translated(store._path), closing(connect(store._path, store._durability)) as connection:
        rows = [row for row in _integrity_errors(connection) if not _is_index_error(row)]
    text = "SQLite finds the file damaged; restore a backup."
    return finding("file", text, rows, repairable=False) if rows else None


def _integrity_errors(connection: sqlite3.Connection) -> list[str]:
    try:
        rows = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.OperationalError:
        raise  # a lock or a lost disk says nothing about the file
    except sqlite3.DatabaseError as error:
        rows = [str(error)]
    return [] if rows == ["ok"] else rows


def _is_index_error(row: str) -> bool:
    return "missing from index" in row or "entries in index" in row
