"""PostgreSQL behind the interface that both SQL stores share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias
from uuid import UUID

from sennit.stores.sql.connection import Row, Sql, Statement

if TYPE_CHECKING:
    import psycopg

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class PostgresConnection:
    """A connection that returns columns in binary format: the text format doubles a body."""

    def __init__(self, connection: _Connection) -> None:
        self.connection: Any = connection

    def rows(self, statement: Statement, *values: object, **named: object) -> list[Row]:
        """Run a statement, and return all its rows."""
        parameters = named or values
        return self.connection.execute(_text(statement), parameters, binary=True).fetchall()

    def run(self, statement: Statement, *values: object, **named: object) -> int:
        """Run a statement, and return how many rows it changed."""
        return self.connection.execute(_text(statement), named or values).rowcount

    def run_many(self, statement: Statement, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement once for each row of values."""
        self.connection.cursor().executemany(_text(statement), rows)

    def uid(self, column: Any) -> UUID:
        """Return the id in a column."""
        return column


def _text(statement: Statement) -> LiteralString:
    return statement.postgres if isinstance(statement, Sql) else statement
