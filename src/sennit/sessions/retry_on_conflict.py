"""Retry of work that lost an optimistic-locking race (ConflictError).

A write is refused with ConflictError if what it was decided on has changed since. Then it is looked
at again and decided anew, often enough for a dozen writers at once but not for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sennit.errors import ConflictError

_T = TypeVar("_T")


def retry_on_conflict(work: Callable[[], _T], what: str, *, tries: int = 20) -> _T:
    """Do some work that reads before it writes; raises ConflictError if others always win."""
    for _ in range(tries):
        with suppress(ConflictError):
            return work()
    raise ConflictError(f"Too many concurrent changes to {what}; try again.")
