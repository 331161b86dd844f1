"""Threads with an event loop each, which ask for one thing at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from threading import Event, Semaphore, Thread
from typing import Any


def in_threads(
    work: Sequence[Callable[[], Awaitable[Any]]], begun: Event, go_on: Event, seconds: float = 10
) -> list[Any]:
    """What comes of work that several threads ask for while the first of them is under way.

    The first sets `begun` and waits for `go_on`; whoever has no result in time has none.
    """
    results: list[Any] = []
    asked = Semaphore(0)

    def ask(one: Callable[[], Awaitable[Any]]) -> None:
        async def asking() -> Any:
            task = asyncio.ensure_future(one())
            await asyncio.sleep(0)
            asked.release()  # it stands in line now
            return await task

        results.append(asyncio.run(asking()))

    threads = [Thread(target=ask, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
        assert begun.wait(seconds)
        assert asked.acquire(timeout=seconds)
    go_on.set()
    for thread in threads:
        thread.join(seconds)
    return results
