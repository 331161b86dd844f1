"""SQL statements that both databases run, and the connections that run them.

A statement is written once, for PostgreSQL. In SQLite there is no schema prefix, placeholders look
different, values have no casts, an array is a JSON text, and nothing is locked, as there is one
writer at a time. Where more differs, a statement has two texts.

Ids are passed as UUIDs. Those in a row are what the driver returns; `uid` converts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, LiteralString, Protocol, TypeAlias
from uuid import UUID

Row: TypeAlias = Any
"""The columns of a row."""

_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bsennit\.", ""),
        (r"%s", "?"),
        (r"%\((\w+)\)s", r":\1"),
        (r"= ANY \((\S+)::uuid\[\]\)", r"IN (SELECT unhex(value) FROM json_each(\1))"),
        (r"= ANY \((\S+?)(::\w+\[\])?\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"unnest\((\S+)\) AS g \((\w+)\)", r"(SELECT value AS \2 FROM json_each(\1)) AS g"),
        (r"position\((\S+) IN (\S+)\)", r"instr(\2, \1)"),
        (r"::\w+(\[\])?", ""),
        (r" FOR UPDATE\b", ""),
    )
)


class Sql:
    """A statement for both databases."""

    __slots__ = ("postgres", "sqlite")

    def __init__(self, text: LiteralString, sqlite: str | None = None) -> None:
        """Take the text for PostgreSQL, and the one for SQLite if it says something else."""
        self.postgres: LiteralString = text
        self.sqlite: str = text if sqlite is None else sqlite
        for pattern, replacement in _REWRITES:
            self.sqlite = pattern.sub(replacement, self.sqlite)


Statement: TypeAlias = Sql | LiteralString
"""A statement; a plain text is one that only the database of the connection runs."""


class SqlConnection(Protocol):
    """A connection to one of the databases, inside a transaction or a snapshot."""

    connection: Any
    """The driver's connection."""

    def rows(self, statement: Statement, *values: object, **named: object) -> list[Row]:
        """Run a statement, and return all its rows."""
        ...

    def run(self, statement: Statement, *values: object, **named: object) -> int:
        """Run a statement, and return how many rows it changed."""
        ...

    def run_many(self, statement: Statement, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement once for each row of values."""
        ...

    def uid(self, column: Any) -> UUID:
        """Return the id in a column."""
        ...
