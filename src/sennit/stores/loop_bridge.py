"""Delivery of results from a writer thread to event loops."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar
from weakref import WeakKeyDictionary, ref


class LoopBridge:
    """Brings outcomes from a writer's thread to a loop, many with one wake-up."""

    _all: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # or what is kept for a loop would keep it, long after it ended
        self._letters: deque[tuple[asyncio.Future[None], Exception | None]] = deque()

    @classmethod
    def of_running_loop(cls) -> LoopBridge:
        """The running loop's own mailbox."""
        loop = asyncio.get_running_loop()
        found = cls._all.get(loop)
        if found is None:
            found = cls._all[loop] = cls(loop)
        return found

    def promise(self) -> asyncio.Future[None] | None:
        """Return a future, to be completed with `put`; None if another loop is running."""
        loop = asyncio.get_running_loop()
        return loop.create_future() if loop is self._loop() else None

    def soon(self, work: Callable[[], None]) -> None:
        """Have work done when all that is ready has run; called on the loop, as `promise` is."""
        asyncio.get_running_loop().call_soon(work)

    def put(self, finished: asyncio.Future[None], error: Exception | None) -> None:
        """Leave an outcome for whoever waits, and `ring` later; called in the writer's thread."""
        self._letters.append((finished, error))

    def ring(self) -> None:
        """Have the loop look at what was left; if it has ended, nobody waits any more."""
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._letters:
            finished, error = self._letters.popleft()
            if finished.cancelled():
                continue
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)
