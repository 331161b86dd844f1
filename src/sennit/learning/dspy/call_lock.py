"""A fair lock shared by threads and event loops.

Threads and tasks wait in one FIFO queue, so a blocking call and an awaited one never run at the
same time. A waiter that is cancelled leaves the queue, or releases the lock if it was acquired at
that moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Literal, TypeAlias

LockMode: TypeAlias = Literal["none", "thread", "async"]


class _Waiter:
    """A thread or task in the queue."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.acquired = False


class CallLock:
    """A lock for threads and event loops; in mode "none" it excludes nobody."""

    def __init__(self, mode: LockMode) -> None:
        self.mode: LockMode = mode
        self._guard = threading.Lock()
        self._locked = False
        self._waiters: deque[_Waiter] = deque()

    def hold(self) -> AbstractContextManager[None]:
        """Return a context manager that acquires the lock, blocking the thread."""
        return nullcontext() if self.mode == "none" else self._hold_in_thread()

    @contextmanager
    def _hold_in_thread(self) -> Generator[None]:
        ready = threading.Event()
        waiter = _Waiter(ready.set)
        if not self._try_acquire(waiter):
            try:
                ready.wait()
            except BaseException:
                self._cancel(waiter)
                raise
        try:
            yield
        finally:
            self._release()

    def hold_async(self) -> AbstractAsyncContextManager[None]:
        """Return an async context manager that acquires the lock."""
        return nullcontext() if self.mode == "none" else self._hold_in_task()

    @asynccontextmanager
    async def _hold_in_task(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        waiter = _Waiter(lambda: loop.call_soon_threadsafe(ready.set))
        if not self._try_acquire(waiter):
            try:
                await ready.wait()
            except BaseException:
                self._cancel(waiter)
                raise
        try:
            yield
        finally:
            self._release()

    def _try_acquire(self, waiter: _Waiter) -> bool:
        """Acquire the lock if it is free, otherwise join the queue; return whether it was free."""
        with self._guard:
            if self._locked:
                self._waiters.append(waiter)
                return False
            self._locked = True
            return True

    def _cancel(self, waiter: _Waiter) -> None:
        with self._guard:
            if not waiter.acquired:
                self._waiters.remove(waiter)
                return
        self._release()

    def _release(self) -> None:
        while True:
            with self._guard:
                if not self._waiters:
                    self._locked = False
                    return
                waiter = self._waiters.popleft()
                waiter.acquired = True
            try:
                waiter.wake()
                return
            except RuntimeError:  # its loop was closed, so it waits no more
                continue
