"""Integrity checks of a PostgreSQL database.

Checks run in one snapshot. A repair blocks writers, not readers. It checks rows; for the server's
files use the server's tools (`pg_amcheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from sennit.stores.checksums import DATABASE_START, database_checksum
from sennit.stores.doctor.checks import IntegrityCheck, StoreInspector
from sennit.stores.doctor.statements import MOVE_ROWS, WORDS, move_rows
from sennit.stores.postgres.statements import LAST_CHECKSUM
from sennit.stores.sql.connection import Row, Sql
from sennit.stores.sql.store import SqlStore

_T = TypeVar("_T")

_FETCH_ROWS = 500

# Nobody writes while it is repaired, and everybody may read.
_LOCK: Final = "LOCK TABLE sennit.sessions, sennit.owners IN EXCLUSIVE MODE"
_SET_TAIL_CHECKSUMS: Final = f"""
    UPDATE sennit.branches b SET checksum = {LAST_CHECKSUM} WHERE owner = %s AND segment = %s"""
_WRONG_TAILS: Final = """
    SELECT b.name FROM sennit.branches b JOIN sennit.segments s
      ON s.owner = b.owner AND s.session = b.session AND s.no = b.segment
    WHERE s.id <> b.tail"""
_NAME_TAILS: Final = """
    UPDATE sennit.branches b SET tail = s.id, version = version + 1 FROM sennit.segments s
    WHERE s.owner = b.owner AND s.session = b.session AND s.no = b.segment AND s.id <> b.tail"""
_COUNT: Final = """(
        SELECT count(*) FROM sennit.entries e WHERE e.owner = b.owner AND e.segment = b.segment)"""
_COUNTED_WRONG: Final = f"length <> {_COUNT} OR checksum <> {LAST_CHECKSUM}"
_WRONG_LENGTHS: Final = f"SELECT name FROM sennit.branches b WHERE {_COUNTED_WRONG}"
_COUNT_LENGTHS: Final = f"""
    UPDATE sennit.branches b
    SET version = version + 1, length = {_COUNT}, checksum = {LAST_CHECKSUM}
    WHERE {_COUNTED_WRONG}"""
# Messages up to the mark have words unless they are detached, those beyond it have none, and their
# session says so. A mark past every number that was ever given would hide those to come.
_WRONGLY_INDEXED: Final = """
    SELECT 'message ' || m.id, m.owner, m.session FROM sennit.messages m
    JOIN sennit.sessions s ON s.owner = m.owner AND s.no = m.session
    LEFT JOIN sennit.detached d
      ON d.owner = m.owner AND d.session = m.session AND d.message = m.no
    WHERE (m.no > s.indexed AND NOT s.unindexed AND d.message IS NULL)
       OR (m.no <= s.indexed AND d.message IS NULL) <> EXISTS (
        SELECT FROM sennit.words w
        WHERE w.owner = m.owner AND w.session = m.session AND w.message = m.no)
    UNION ALL
    SELECT 'mark of session ' || no, owner, no FROM sennit.sessions WHERE indexed > coalesce(
        pg_sequence_last_value(pg_get_serial_sequence('sennit.messages', 'no')::regclass), 0)"""
_DROP_WORDS: Final = "DELETE FROM sennit.words WHERE owner = %s AND session = %s"
_INDEX_AGAIN: Final = """
    UPDATE sennit.sessions SET indexed = 0, unindexed = true WHERE owner = %s AND no = %s"""


class PostgresInspector(StoreInspector):
    """A PostgreSQL database, inside one transaction."""

    move_rows = (*MOVE_ROWS, move_rows("words"))
    set_tail_checksums = _SET_TAIL_CHECKSUMS

    @classmethod
    def visit(cls, store: SqlStore, work: Callable[[StoreInspector], _T], *, mend: bool) -> _T:
        """Run work in a snapshot or, to repair, in a transaction that blocks writers."""

        def locked(inspector: StoreInspector) -> _T:
            if mend:
                inspector.run(_LOCK)
            return work(inspector)

        return super().visit(store, locked, mend=mend)

    def stream(self, query: Sql) -> Iterator[Row]:
        """Run a query and yield its rows, of which few are in memory."""
        with self._connection.cursor("rows", binary=True) as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(query.postgres)

    def next_checksum(self, before: Any, position: int, uid: bytes) -> Any:
        """Return the running checksum of an entry; `before` is None for the first."""
        return database_checksum(DATABASE_START if before is None else before, position, uid)

    def index_faults(self) -> Iterator[str]:
        """Yield rows that are missing from the full-text index, or wrongly in it."""
        for name, *_ in (*self.rows(WORDS[0]), *self.rows(_WRONGLY_INDEXED)):
            yield name

    def mend_index(self) -> None:
        """Drop words without a message, and have the next search reindex damaged sessions."""
        self.run(WORDS[1])
        for home in {tuple(row[1:]) for row in self.rows(_WRONGLY_INDEXED)}:
            self.run(_DROP_WORDS, *home)
            self.run(_INDEX_AGAIN, *home)

    def checks(self) -> Iterable[IntegrityCheck]:
        """Yield all checks, and those of the tail and length columns of branches."""
        for check in super().checks():
            yield check
            if check.kind == "tail":
                said = "Branches name another segment than they end with."
                yield IntegrityCheck("heads", said, _WRONG_TAILS, _NAME_TAILS)
        yield IntegrityCheck(
            "lengths", "Branches were counted wrong.", _WRONG_LENGTHS, _COUNT_LENGTHS
        )
