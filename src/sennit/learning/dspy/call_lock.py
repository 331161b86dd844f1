"""A lock shared by threads and event loops.

Whoever waits, in whichever way, stands in one line and is let in when their turn comes: a call from
a thread and an awaited one never run at once. A caller that gives up while waiting leaves the line,
and passes the lock on if it was handed over at that very moment.
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
    """Someone in line."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.let_in = False


class CallLock:
    """A lock that threads and event loops share; with the mode "none" it keeps nobody out."""

    def __init__(self, mode: LockMode) -> None:
        self.mode: LockMode = mode
        self._guard = threading.Lock()
        self._held = False
        self._line: deque[_Waiter] = deque()

    def held(self) -> AbstractContextManager[None]:
        """Wait for the lock, and hold it."""
        return nullcontext() if self.mode == "none" else self._held_by_thread()

    @contextmanager
    def _held_by_thread(self) -> Generator[None]:
        ready = threading.Event()
        self._wait(_Waiter(ready.set), ready.wait)
        try:
            yield
        finally:
            self._pass_on()

    def _wait(self, waiter: _Waiter, wait: Callable[[], object]) -> None:
        if self._enter(waiter):
            return
        try:
            wait()
        except BaseException:
            self._leave(waiter)
            raise

    def aheld(self) -> AbstractAsyncContextManager[None]:
        """The same without blocking the loop."""
        return nullcontext() if self.mode == "none" else self._held_by_task()

    @asynccontextmanager
    async def _held_by_task(self) -> AsyncGenerator[None]:
        await self._await_turn()
        try:
            yield
        finally:
            self._pass_on()

    async def _await_turn(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        waiter = _Waiter(lambda: loop.call_soon_threadsafe(ready.set))
        if self._enter(waiter):
            return
        try:
            await ready.wait()
        except BaseException:
            self._leave(waiter)
            raise

    def _enter(self, waiter: _Waiter) -> bool:
        """Return whether the lock was free; else one stands in line."""
        with self._guard:
            if self._held:
                self._line.append(waiter)
                return False
            self._held = True
            return True

    def _leave(self, waiter: _Waiter) -> None:
        with self._guard:
            if not waiter.let_in:
                self._line.remove(waiter)
                return
        self._pass_on()

    def _pass_on(self) -> None:
        while True:
            with self._guard:
                if not self._line:
                    self._held = False
                    return
                waiter = self._line.popleft()
                waiter.let_in = True
            try:
                waiter.wake()
                return
            except RuntimeError:  # its loop was closed: nobody is waiting there any more
                continue
