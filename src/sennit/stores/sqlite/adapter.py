"""SQLite behind the interface that both SQL stores share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, cast
from uuid import UUID

from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores.sql.connection import Row, Sql, Statement


class SQLiteConnection:
    """A connection whose ids are blobs and whose lists are JSON."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection: Any = connection

    def rows(self, statement: Statement, *values: object, **named: object) -> list[Row]:
        """Run a statement, and return all its rows."""
        return self._execute(statement, values, named).fetchall()

    def run(self, statement: Statement, *values: object, **named: object) -> int:
        """Run a statement, and return how many rows it changed."""
        return self._execute(statement, values, named).rowcount

    def _execute(
        self, statement: Statement, values: Sequence[object], named: dict[str, object]
    ) -> sqlite3.Cursor:
        if named:
            parameters = {name: _column(value) for name, value in named.items()}
            return self.connection.execute(_text(statement), parameters)
        return self.connection.execute(_text(statement), [_column(value) for value in values])

    def run_many(self, statement: Statement, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement once for each row of values."""
        columns = ([_column(value) for value in row] for row in rows)
        self.connection.executemany(_text(statement), columns)

    def uid(self, column: Any) -> UUID:
        """Return the id in a column."""
        return id_from_bytes(column)


def _column(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, list):
        return dumps([_item(item) for item in cast("list[Any]", value)]).decode()
    return value


def _item(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.hex
    return value.decode() if isinstance(value, bytes) else value


def _text(statement: Statement) -> str:
    return statement.sqlite if isinstance(statement, Sql) else statement
