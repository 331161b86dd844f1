"""SQLite connections whose every statement is a failpoint.

A store asks here for the class of its SQLite connections, and gets a watched one only while
failpoints are in use: in normal use the driver's own class is used, and nothing is paid. A point is
named after its driver and the first words of the statement (`sqlite.before: INSERT INTO messages`),
which for a question are those that say where it looks (`sqlite.after: SELECT FROM sessions`).
(The twin for PostgreSQL is apart, in `postgres_points`: its driver is an extra.)
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Self

from sennit import failpoints

_WORDS = 3
_COMMENT = re.compile(r"--[^\n]*")
_SIGNS = re.compile(r"[(),;=\s]+")
_TABLE = re.compile(r"SELECT\b.*?\bFROM\s+([\w.]+)", re.DOTALL)


def named(statement: str) -> str:
    """The words of a statement that tell it from others, for people."""
    bare = _COMMENT.sub("", statement).strip()
    if found := _TABLE.match(bare):
        return f"SELECT FROM {found[1]}"
    return " ".join(_SIGNS.sub(" ", bare).split()[:_WORDS])


@contextmanager
def around(driver: str, statement: str) -> Generator[None]:
    """Reach the point before a statement, and if it succeeds the one after it."""
    name = named(statement)
    failpoints.reach(f"{driver}.before: {name}")
    yield
    failpoints.reach(f"{driver}.after: {name}")


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
    """The class that a connection opened now should have."""
    return _Connection if failpoints.in_use() else sqlite3.Connection
