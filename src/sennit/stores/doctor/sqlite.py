"""Integrity checks of a SQLite file.

`PRAGMA integrity_check` comes first: queries of a corrupt file mean nothing. Indexes that disagree
with their tables are a separate finding, repaired by REINDEX.
"""

# Integrity checks may use the private parts of the store.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.ids import id_from_bytes, new_id
from sennit.stores.checksums import START, entry_checksum
from sennit.stores.doctor import sqlite_statements as sql
from sennit.stores.doctor.checks import (
    Finding,
    Home,
    IntegrityCheck,
    StoreInspector,
    asking,
    finding,
    findings,
    is_readable,
    loose_messages,
)
from sennit.stores.doctor.checksums import CHANGED_ROWS
from sennit.stores.sqlite import statements as store_sql
from sennit.stores.sqlite.batch_insert import recompute_checksums
from sennit.stores.sqlite.connection import connect, translated
from sennit.stores.sqlite.erase import has_hidden_session
from sennit.stores.sqlite.files import file_words
from sennit.stores.sqlite.search import index_words
from sennit.stores.sqlite.search_statements import ADD_WORDS, ALL_FILES
from sennit.stores.sqlite.store import SQLiteStore

_FIXED_SQLITE_VERSION = (3, 51, 3)


class SQLiteInspector(StoreInspector):
    """A SQLite file, on one connection."""

    sql = sql
    dialect = MappingProxyType({"at": "", "new_id": "randomblob(16)", "given": ""})

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def visited(cls, store: SQLiteStore, *, mend: bool) -> list[Finding]:
        """Check a file; with `mend`, repair what can be repaired."""
        damage = _damage(store)
        return [damage] if damage else findings(cls._open(store, mend=mend), mend=mend)

    @classmethod
    def noted(cls, store: SQLiteStore) -> list[str]:
        """Return remarks about SQLite's version and messages on no branch."""
        with cls._open(store, mend=False) as inspector:
            return [_version_note(), *loose_messages(inspector)]

    @classmethod
    @contextmanager
    def _open(cls, store: SQLiteStore, *, mend: bool) -> Generator[SQLiteInspector]:
        """Open the file once deleted sessions are erased: half-erased ones look damaged."""
        while True:
            store._erase_hidden_sessions()
            with store._transaction() if mend else store._snapshot() as connection:
                if not has_hidden_session(connection):
                    yield cls(connection)
                    return

    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query and return all rows."""
        return self._connection.execute(question, values).fetchall()

    def tell(self, statement: str, *values: Any) -> None:
        """Run a statement."""
        self._connection.execute(statement, values)

    def bodies(self) -> Iterator[tuple[UUID, int, bytes, int]]:
        """Yield the id, time, body and checksum of every message."""
        for uid, *row in self._connection.execute(sql.BODIES):
            yield (id_from_bytes(uid), *row)

    def key_of(self, uid: UUID) -> object:
        """Return an id as a column value."""
        return uid.bytes

    def entries(self) -> Iterator[tuple[int, int, int, bytes, Any]]:
        """Yield the owner, segment, position, message id and checksum of every entry, in order."""
        yield from self._connection.execute(sql.ENTRY_CHECKSUMS)

    def rolled(self, before: Any, position: int, uid: bytes) -> Any:
        """Return the running checksum of an entry; `before` is None for the first."""
        del position  # not part of the checksum here: gaps have a check of their own
        return entry_checksum(START if before is None else before, uid)

    def recompute_checksums(self, owner: int, segment: int) -> None:
        """Recompute the checksums of a segment's entries."""
        recompute_checksums(self._connection, owner, segment, 0)

    def add_session(self, home: Home) -> int:
        """Add a session for the rows that lost this one; return its number."""
        now = clock.now_us()
        return self.ask(sql.ADD_SESSION, home[0], new_id().bytes, now, now)[0][0]

    def renew_tail(self, home: Home, branch: Any) -> None:
        """Give a branch a new empty segment as its tail."""
        segment = self.ask(store_sql.ADD_SEGMENT, *home, new_id().bytes, None, 0)[0][0]
        self.tell(sql.SET_TAIL, segment, *home, branch)

    def set_base(self, home: Home, segment: int, base: int | None, start: int) -> None:
        """Set the base and the start of a segment."""
        del home  # a segment's number is the key of its row
        if base is None:
            self.tell(sql.CUT_LOOSE, segment)
        else:
            self.tell(sql.SET_START, start, segment)

    def lay(self, home: Home, segment: int, messages: list[int]) -> None:
        """Replace a segment's entries."""
        owner, _ = home
        self.tell(store_sql.DELETE_ENTRIES, owner, segment)
        rows = [(owner, segment, position, message, 0) for position, message in enumerate(messages)]
        self._connection.executemany(store_sql.ADD_ENTRY, rows)
        recompute_checksums(self._connection, owner, segment, 0)

    def drop_segments(self, segments: list[tuple[Home, int]]) -> None:
        """Drop segments and their entries."""
        keys = [(owner, segment) for (owner, _), segment in segments]
        self._connection.executemany(store_sql.DELETE_ENTRIES, keys)
        self._connection.executemany(store_sql.DELETE_SEGMENT, keys)

    def index_faults(self) -> Iterator[str]:
        """Yield rows that are missing from the full-text index, or wrongly in it."""
        if self.ask(sql.MARKS)[0][0] != 1:
            yield "the mark"
        for uid, body in self._connection.execute(sql.UNINDEXED):
            if is_readable(id_from_bytes(uid), 0, body):
                yield f"message {id_from_bytes(uid)}"
        for (name,) in self.ask(sql.WRONGLY_INDEXED):
            yield name

    def mend_index(self) -> None:
        """Rebuild the index."""
        self.tell(sql.EMPTY_INDEX)
        self.tell(sql.DROPPED)
        self._connection.executemany(ADD_WORDS, self._indexed_rows())
        self.tell(sql.DROP_MARKS)
        self.tell(sql.ADD_MARK)

    def _indexed_rows(self) -> Iterator[tuple[int, str]]:
        for number, created, body in self._connection.execute(sql.ALL_BODIES):
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
            lambda _: self.tell("REINDEX"),
        )
        yield from super().checks()
        yield IntegrityCheck("rows", CHANGED_ROWS, asking("CHANGED_ROWS"), self._accept_rows)

    def _accept_rows(self, _: StoreInspector) -> None:
        for statement in sql.SET_ROW_CHECKSUMS:
            self.tell(statement)


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
