"""Virtual time: an event loop that jumps to the next timer.

Tests of delays, timeouts and retries should take no time and be deterministic on a busy machine.
Inside `run_instantly` a sleep of an hour returns at once, and events keep their order. Only waiting
inside the loop is skipped: work in other threads takes real time, and timers do not wait for it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from sennit import clock

_T = TypeVar("_T")


def run_instantly(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine like `asyncio.run`, in virtual time."""
    with (
        asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner,
        clock.monotonic_clock_from(runner.get_loop().time),
    ):
        return runner.run(work)


class _VirtualTimeSelector(selectors.DefaultSelector):
    """A selector that advances the virtual time instead of waiting for events."""

    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0)
        if not events:
            self.elapsed += timeout
        return events


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_selector = _VirtualTimeSelector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        return self._virtual_selector.elapsed
