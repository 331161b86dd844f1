"""Delivery of results from a writer thread to event loops."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar
from weakref import WeakKeyDictionary, ref


class LoopBridge:
    """Delivers results from a writer's thread to a loop, many per wake-up."""

    _bridges: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge]] = (
        WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # weak, so that a bridge does not keep its loop alive
        self._results: deque[tuple[asyncio.Future[None], Exception | None]] = deque()

    @classmethod
    def of_running_loop(cls) -> LoopBridge:
        """Return the bridge of the running loop."""
        loop = asyncio.get_running_loop()
        bridge = cls._bridges.get(loop)
        if bridge is None:
            bridge = cls._bridges[loop] = cls(loop)
        return bridge

    def create_future(self) -> asyncio.Future[None] | None:
        """Return a future, to be completed with `put`; None if another loop is running."""
        loop = asyncio.get_running_loop()
        return loop.create_future() if loop is self._loop() else None

    def call_soon(self, work: Callable[[], None]) -> None:
        """Schedule work on the running loop, after all callbacks that are ready."""
        asyncio.get_running_loop().call_soon(work)

    def put(self, future: asyncio.Future[None], error: Exception | None) -> None:
        """Queue a result in the writer's thread; `ring` later delivers it."""
        self._results.append((future, error))

    def wake(self) -> None:
        """Schedule delivery of the queued results on the loop; do nothing if it is closed."""
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver_results)

    def _deliver_results(self) -> None:
        while self._results:
            future, error = self._results.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
