"""Integrity checks of a PostgreSQL database.

Checks run in one snapshot. A repair blocks writers, not readers. It checks rows; for the server's
files use the server's tools (`pg_amcheck`).
"""

# Integrity checks may use the private parts of the store.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sennit import clock
from sennit.ids import new_id
from sennit.stores.checksums import DATABASE_START, database_checksum
from sennit.stores.doctor import postgres_statements as sql
from sennit.stores.doctor.checks import (
    Finding,
    Home,
    IntegrityCheck,
    StoreInspector,
    asking,
    findings,
    loose_messages,
    telling,
)
from sennit.stores.postgres import statements as store_sql
from sennit.stores.postgres.session_writer import Connection, fetch_one
from sennit.stores.postgres.store import PostgresStore

_FETCH_ROWS = 500


class PostgresInspector(StoreInspector):
    """A PostgreSQL database, inside one transaction."""

    sql = sql
    dialect = MappingProxyType(
        {"at": "sennit.", "new_id": "gen_random_uuid()", "given": "OVERRIDING SYSTEM VALUE"}
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def visited(cls, store: PostgresStore, *, mend: bool) -> list[Finding]:
        """Check a database; with `mend`, repair what can be repaired."""

        def look(connection: Connection) -> list[Finding]:
            return findings(nullcontext(cls(connection)), mend=False)

        def treat(connection: Connection) -> list[Finding]:
            connection.execute(sql.LOCK)
            return findings(nullcontext(cls(connection)), mend=True)

        return store._database.change(treat) if mend else store._database.read(look)

    @classmethod
    def noted(cls, store: PostgresStore) -> list[str]:
        """Return a remark about messages on no branch."""
        return store._database.read(lambda connection: loose_messages(cls(connection)))

    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query and return all rows."""
        return self._connection.execute(question.encode(), values).fetchall()

    def tell(self, statement: str, *values: Any) -> None:
        """Run a statement."""
        self._connection.execute(statement.encode(), values)

    def bodies(self) -> Iterator[tuple[UUID, int, bytes, int]]:
        """Yield the id, time, body and checksum of every message."""
        with self._connection.cursor("bodies", binary=True) as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(sql.BODIES)

    def key_of(self, uid: UUID) -> object:
        """Return an id as a column value."""
        return uid

    def entries(self) -> Iterator[tuple[int, int, int, bytes, Any]]:
        """Yield the owner, segment, position, message id and checksum of every entry, in order."""
        with self._connection.cursor("entries", binary=True) as cursor:
            cursor.itersize = _FETCH_ROWS
            for owner, segment, position, uid, checksum in cursor.execute(sql.ENTRY_CHECKSUMS):
                yield owner, segment, position, uid.bytes, checksum

    def rolled(self, before: Any, position: int, uid: bytes) -> Any:
        """Return the running checksum of an entry; `before` is None for the first."""
        return database_checksum(DATABASE_START if before is None else before, position, uid)

    def recompute_checksums(self, owner: int, segment: int) -> None:
        """Recompute the checksums of a segment's entries."""
        for (session,) in self.ask(sql.SEGMENT_SESSION, owner, segment):
            self._recompute_checksums((owner, session), segment)

    def _recompute_checksums(self, home: Home, segment: int) -> None:
        owner, session = home
        values = {"owner": owner, "session": session, "segment": segment, "first": 0}
        self._connection.execute(store_sql.ROLL_AGAIN, values)
        self.tell(store_sql.SET_TAIL_CHECKSUM, owner, session, segment)

    def add_session(self, home: Home) -> int:
        """Add a session for the rows that lost this one; return its number."""
        owner, session = home
        values = {"owner": owner, "session": session, "id": new_id(), "now": clock.now_us()}
        return fetch_one(self._connection.execute(sql.ADD_SESSION, values))[0]

    def renew_tail(self, home: Home, branch: Any) -> None:
        """Give a branch a new empty segment as its tail."""
        uid = new_id()
        values = (*home, uid, None, 0)
        segment = fetch_one(self._connection.execute(store_sql.ADD_SEGMENT, values))[0]
        self.tell(sql.SET_TAIL, segment, uid, *home, branch)

    def set_base(self, home: Home, segment: int, base: int | None, start: int) -> None:
        """Set the base and the start of a segment."""
        self.tell(sql.SET_BASE, base, start, *home, segment)

    def lay(self, home: Home, segment: int, messages: list[int]) -> None:
        """Replace a segment's entries."""
        owner, _ = home
        self.tell(store_sql.DELETE_ENTRIES, owner, [segment])
        self.tell(store_sql.ADD_ENTRIES, owner, segment, 0, messages, [b""] * len(messages))
        self._recompute_checksums(home, segment)

    def drop_segments(self, segments: list[tuple[Home, int]]) -> None:
        """Drop segments and their entries."""
        for (owner, session), segment in segments:
            self.tell(store_sql.DELETE_ENTRIES, owner, [segment])
            self.tell(store_sql.DELETE_SEGMENTS, owner, session, [segment])

    def index_faults(self) -> Iterator[str]:
        """Yield rows that are missing from the full-text index, or wrongly in it."""
        for name, *_ in self.ask(sql.STRAY_WORDS):
            yield name
        for name, *_ in self.ask(sql.WRONGLY_INDEXED):
            yield name

    def mend_index(self) -> None:
        """Drop words without a message, and have the next search reindex damaged sessions."""
        self.tell(sql.DROP_STRAY_WORDS)
        for home in {row[1:] for row in self.ask(sql.WRONGLY_INDEXED)}:
            self.tell(sql.DROP_WORDS, *home)
            self.tell(sql.INDEX_AGAIN, *home)

    def checks(self) -> Iterable[IntegrityCheck]:
        """Yield all checks, and those of the tail and length columns of branches."""
        for check in super().checks():
            yield check
            if check.kind == "tail":
                yield _HEADS
        yield _LENGTHS


_HEADS = IntegrityCheck(
    "heads",
    "Branches name another segment than they end with.",
    asking("WRONG_TAILS"),
    telling("NAME_TAILS"),
)
_LENGTHS = IntegrityCheck(
    "lengths",
    "Branches were counted wrong.",
    asking("WRONG_LENGTHS"),
    telling("COUNT_LENGTHS"),
)
