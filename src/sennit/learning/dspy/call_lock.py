"""A fair lock shared by threads and event loops.

Threads and tasks wait in one FIFO queue, so a blocking call and an awaited one never run at the
same time. Each has a future, and waits for the one before it. The result of a future is the one to
wait for next: None from a holder that releases the lock, or the predecessor of a waiter that was
cancelled.
"""

from __future__ import annotations

from asyncio import shield, wrap_future
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from typing import Any, Literal, TypeAlias

LockMode: TypeAlias = Literal["none", "thread", "async"]
_Place: TypeAlias = "Future[Any]"


class CallLock:
    """A lock for threads and event loops; in mode "none" it excludes nobody."""

    def __init__(self, mode: LockMode) -> None:
        self.mode: LockMode = mode
        self._guard = Lock()
        self._last: _Place | None = None

    def _join(self) -> tuple[_Place, _Place | None]:
        """Join the queue; return the new place and the one before it, if any."""
        place: _Place = Future()
        if self.mode == "none":
            return place, None
        with self._guard:
            before, self._last = self._last, place
        return place, before

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold the lock in the block; wait for it by blocking the thread."""
        place, before = self._join()
        try:
            while before is not None:
                before = before.result()
            yield
        finally:
            place.set_result(before)

    @asynccontextmanager
    async def hold_async(self) -> AsyncGenerator[None]:
        """Hold the lock in the block; wait for it without blocking the event loop."""
        place, before = self._join()
        try:
            while before is not None:
                before = await shield(wrap_future(before))  # cancelling a waiter leaves the future
            yield
        finally:
            place.set_result(before)
