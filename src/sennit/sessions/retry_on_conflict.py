"""Retry of work that lost an optimistic-locking race (ConflictError).

A write raises ConflictError if the state it was based on has changed. The work is then retried
from its read, often enough for a dozen concurrent writers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sennit.errors import ConflictError

_T = TypeVar("_T")


def retry_on_conflict(work: Callable[[], _T], what: str, *, tries: int = 20) -> _T:
    """Return the result of `work`, retried on ConflictError up to `tries` times."""
    for _ in range(tries):
        with suppress(ConflictError):
            return work()
    raise ConflictError(f"Too many concurrent changes to {what}; try again.")
