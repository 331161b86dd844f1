"""PostgreSQL connections whose every statement is a failpoint.

Transactions have failpoints of their own, because the driver sends BEGIN and COMMIT itself; nested
ones are named SAVEPOINT and RELEASE.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from sennit import failpoints
from sennit.stores.postgres.driver import TransactionStatus, psycopg
from sennit.stores.postgres.prepared_connection import Answer, Packed, PreparedConnection, Statement
from sennit.stores.statement_failpoints import around

_IDLE = TransactionStatus.IDLE


class _Cursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        with around("postgres", _text(query)):
            return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        with around("postgres", _text(query)):
            super().executemany(query, params_seq, **options)


class _Connection(PreparedConnection):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cursor_factory = _Cursor

    @contextmanager
    def transaction(self, *args: Any, **options: Any) -> Generator[psycopg.Transaction]:
        outermost = self.info.transaction_status == _IDLE
        begin, end = ("BEGIN", "COMMIT") if outermost else ("SAVEPOINT", "RELEASE")
        failpoints.reach(f"postgres.before: {begin}")
        with super().transaction(*args, **options) as transaction:
            failpoints.reach(f"postgres.after: {begin}")
            yield transaction
            failpoints.reach(f"postgres.before: {end}")
        failpoints.reach(f"postgres.after: {end}")

    def ask(self, statement: Statement, values: Packed) -> Answer:
        with around("postgres", statement.text.decode()):
            return super().ask(statement, values)

    def ask_each(self, queries: Sequence[tuple[Statement, Packed]]) -> list[Answer]:
        with around("postgres", queries[0][0].text.decode()):
            return super().ask_each(queries)


def _text(query: Any) -> str:
    return query.decode() if isinstance(query, bytes) else str(query)


def connection_class() -> type[PreparedConnection]:
    """Return the connection class: instrumented while failpoints are in use."""
    return _Connection if failpoints.has_listener() else PreparedConnection
