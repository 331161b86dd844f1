"""Cancellation of work in threads.

Python cannot stop a thread. So long work that changes nothing calls `check` now and then, which
ends it if whoever asked for it has cancelled it since.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

_requested: ContextVar[Event | None] = ContextVar("cancellation", default=None)


@contextmanager
def cancellable() -> Generator[Event]:
    """Give the event that cancels what runs in copies of this context."""
    requested = Event()
    token = _requested.set(requested)
    try:
        yield requested
    finally:
        _requested.reset(token)


def requested() -> Event | None:
    """The event that cancels this work; None if nothing can."""
    return _requested.get()


def check() -> None:
    """Raise CancelledError if this work was cancelled."""
    event = _requested.get()
    if event is not None and event.is_set():
        from asyncio import CancelledError  # takes long, and only those who use it need it

        raise CancelledError
