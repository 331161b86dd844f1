"""The runs of this process that wait for each other, so that none waits forever.

Code that a run calls, such as a tool, may start another run and wait for its branch. If that branch
is held by the calling run, or by one that waits for it, neither would ever end, so the wait is
refused.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from sennit.errors import ConflictError

_callers: ContextVar[tuple[str, ...]] = ContextVar("sennit_callers", default=())
"""The lease holders of the runs that have called the current code."""
_lock = Lock()
_waits: list[tuple[str, str]] = []  # pairs of lease holders: the first waits for the second


@contextmanager
def called_by(holder: str) -> Generator[None]:
    """Mark the code in this block as called by a run; tasks and tool threads inherit the mark."""
    token = _callers.set((*_callers.get(), holder))
    try:
        yield
    finally:
        _callers.reset(token)


@contextmanager
def waiting_for(holder: str) -> Generator[None]:
    """Record in this block that the calling runs wait for another.

    Raises ConflictError if that one waits for them, so that this wait would never end.
    """
    edges = [(caller, holder) for caller in _callers.get()]
    with _lock:
        if _is_deadlock(holder):
            raise ConflictError("Waiting would never end.", holder=holder)
        _waits.extend(edges)
    try:
        yield
    finally:
        with _lock:
            for edge in edges:
                _waits.remove(edge)


def would_deadlock(holder: str) -> bool:
    """Return whether the current code would wait for this run forever."""
    with _lock:
        return _is_deadlock(holder)


def _is_deadlock(holder: str) -> bool:
    callers = _callers.get()
    found, unread = {holder}, [holder] if callers else []
    while unread:
        current = unread.pop()
        if current in callers:
            return True
        others = {other for waiter, other in _waits if waiter == current} - found
        found |= others
        unread += others
    return False
