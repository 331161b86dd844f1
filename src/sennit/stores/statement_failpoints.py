"""Failpoints before and after each SQL statement.

A point is named after its driver and the first words of the statement
(`sqlite.before: INSERT INTO messages`), or the table that a SELECT reads
(`sqlite.after: SELECT FROM sessions`).
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

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
