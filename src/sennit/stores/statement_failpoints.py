"""Failpoints before and after each SQL statement.

A failpoint is named after its driver and the first words of the statement
(`sqlite.before: INSERT INTO messages`), or the table that a SELECT reads
(`sqlite.after: SELECT FROM sessions`).
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from sennit import failpoints

_MAX_NAME_WORDS = 3
_COMMENT = re.compile(r"--[^\n]*")
_PUNCTUATION = re.compile(r"[(),;=\s]+")
_SELECT = re.compile(r"SELECT\b.*?\bFROM\s+([\w.]+)", re.DOTALL)


def named(statement: str) -> str:
    """Return a readable name of a statement: its first words, or the table it reads."""
    text = _COMMENT.sub("", statement).strip()
    if match := _SELECT.match(text):
        return f"SELECT FROM {match[1]}"
    return " ".join(_PUNCTUATION.sub(" ", text).split()[:_MAX_NAME_WORDS])


@contextmanager
def around(driver: str, statement: str) -> Generator[None]:
    """Trigger the failpoint before the block and, if it succeeds, the one after it."""
    name = named(statement)
    failpoints.reach(f"{driver}.before: {name}")
    yield
    failpoints.reach(f"{driver}.after: {name}")
