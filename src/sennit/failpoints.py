"""Failpoints: named places in the code where a test can raise, call back or kill the process.

What survives a crash can only be known by crashing, and the moments that matter (after the write,
before the acknowledgement) are too short to be hit by chance. So the code says where it is:
`failpoints.reach("journal.before: text.delta")`. Nobody listens but a test, through
`sennit.testing.faults`; otherwise a point costs one look at one name. Nothing outside the program
can put a listener here: there is no variable in the environment and no setting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

Listener: TypeAlias = Callable[[str], object]

_listener: Listener | None = None


def reach(point: str) -> None:
    """Say that the program has come to this point; whoever listens may raise, or end it."""
    if _listener is not None:
        _listener(point)


def in_use() -> bool:
    """Return whether someone listens: what is costly to watch is watched only then."""
    return _listener is not None


@contextmanager
def using(listener: Listener) -> Generator[None]:
    """Tell `listener`, after those outside the block, of each point reached inside it."""
    global _listener
    outer = _listener

    def both(point: str) -> None:
        if outer is not None:
            outer(point)
        listener(point)

    _listener = both
    try:
        yield
    finally:
        _listener = outer
