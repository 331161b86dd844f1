"""Virtual time: an event loop that jumps to the next timer.

A test of delays, timeouts and retries should take no time and give the same result on a busy
machine. Inside `run_instantly` a sleep of an hour is over at once, and everything still happens in
the order in which it would. Only what waits inside the loop is skipped: work in other threads takes
the time it takes, and timers do not wait for it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from sennit import clock

_T = TypeVar("_T")


def run_instantly(work: Coroutine[Any, Any, _T]) -> _T:
    """`asyncio.run(work)`, without the waiting."""
    with asyncio.Runner(loop_factory=_InstantLoop) as runner, clock.ticking(_of(runner)):
        return runner.run(work)


def _of(runner: asyncio.Runner) -> Any:
    return runner.get_loop().time


class _Selector(selectors.DefaultSelector):
    """Looks for events, but lets time pass instead of waiting for them."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self.passed += timeout
        return events


class _InstantLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = _Selector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.passed
