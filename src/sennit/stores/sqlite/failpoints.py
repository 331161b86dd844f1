"""SQLite connections whose every statement is a failpoint.

The instrumented class is used only while failpoints are in use; otherwise connections are the
driver's own, at no cost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Self

from sennit import failpoints
from sennit.stores.statement_failpoints import around


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        with around("sqlite", sql):
            return super().execute(sql, parameters)

    def executemany(self, sql: str, seq_of_parameters: Iterable[Any], /) -> Self:
        with around("sqlite", sql):
            return super().executemany(sql, seq_of_parameters)


class _Connection(sqlite3.Connection):
    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return self.cursor().executemany(sql, parameters)

    def commit(self) -> None:
        with around("sqlite", "COMMIT"):
            super().commit()


def connection_class() -> type[sqlite3.Connection]:
    """Return the connection class: instrumented while failpoints are in use."""
    return _Connection if failpoints.has_listener() else sqlite3.Connection
