"""Cancellation of work in threads.

Python cannot stop a thread. So long read-only work calls `check` regularly, which raises
CancelledError once the caller has cancelled it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

_current_event: ContextVar[Event | None] = ContextVar("cancellation", default=None)


@contextmanager
def cancellable() -> Generator[Event]:
    """Yield the event that cancels work running in copies of this context."""
    event = Event()
    token = _current_event.set(event)
    try:
        yield event
    finally:
        _current_event.reset(token)


def cancellation_event() -> Event | None:
    """Return the event that cancels this work; None if it is not cancellable."""
    return _current_event.get()


def raise_if_cancelled() -> None:
    """Raise CancelledError if this work was cancelled."""
    event = _current_event.get()
    if event is not None and event.is_set():
        from asyncio import CancelledError  # late: slow to import

        raise CancelledError
