"""Failpoints: named places in the code where a test can raise, call back or kill the process.

Crash safety can only be tested by crashing, and the critical moments (after the write, before the
acknowledgement) are too short to be hit by chance. So the code names them:
`failpoints.reach("journal.before: text.delta")`. Only tests listen, through
`sennit.testing.faults`; otherwise a failpoint costs one global lookup. No environment variable or
setting can install a listener.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

Listener: TypeAlias = Callable[[str], object]

_listener: Listener | None = None


def reach(point: str) -> None:
    """Notify the listener, which may raise or kill the process."""
    if _listener is not None:
        _listener(point)


def has_listener() -> bool:
    """Return whether a listener is installed, so that costly failpoints can be skipped."""
    return _listener is not None


@contextmanager
def using(listener: Listener) -> Generator[None]:
    """Call `listener`, after those of outer blocks, for each failpoint reached in the block."""
    global _listener
    outer = _listener

    def notify(point: str) -> None:
        if outer is not None:
            outer(point)
        listener(point)

    _listener = notify
    try:
        yield
    finally:
        _listener = outer
