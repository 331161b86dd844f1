"""Blocking versions of conversation methods.

The event loop runs in a thread of its own, which passes the items of a stream on through a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from sennit.errors import UsageError

if TYPE_CHECKING:
    from sennit.turns.stream import RunStream

_T = TypeVar("_T")


def run_blocking(work: Coroutine[Any, Any, _T], alternative: str) -> _T:
    """Run a coroutine to its end; raises UsageError inside a running event loop, naming the async
    method.
    """
    _refuse_running_loop(alternative, work)
    return asyncio.run(work)


@contextmanager
def stream_blocking(
    make: Callable[[], RunStream[_T]], cancel: Callable[[], None], alternative: str
) -> Generator[Generator[_T]]:
    """Yield the items of an async stream; leaving the block early cancels the run."""
    _refuse_running_loop(alternative, None)
    items: Queue[tuple[_T | None, BaseException | None]] = Queue()
    closed = Event()

    async def consume() -> None:
        async with make() as stream:
            if closed.is_set():  # before there was anything to cancel
                return
            async for item in stream:
                items.put((item, None))

    def run_loop() -> None:
        try:
            asyncio.run(consume())
            items.put((None, None))
        except BaseException as error:
            items.put((None, error))

    thread = Thread(target=run_loop, name="sennit-conversation", daemon=True)
    thread.start()
    try:
        yield _iterate(items)
    finally:
        closed.set()
        if thread.is_alive():
            cancel()
        thread.join()


def _iterate(items: Queue[tuple[_T | None, BaseException | None]]) -> Generator[_T]:
    while True:
        item, error = items.get()
        if error is not None:
            raise error
        if item is None:
            return
        yield item


def _refuse_running_loop(alternative: str, work: Coroutine[Any, Any, Any] | None) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if work is not None:
        work.close()
    raise UsageError(f"An event loop is running here; use {alternative} instead.")
