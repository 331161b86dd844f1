"""Blocking versions of conversation methods.

The loop behind runs in a thread of its own, for as long as it is watched; what it shows is handed
over one by one. It is the same loop: nothing is implemented twice.
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


def run_now(work: Coroutine[Any, Any, _T], door: str) -> _T:
    """Run to the end; raises UsageError inside a running event loop, naming the async door."""
    _refuse_a_loop(door, work)
    return asyncio.run(work)


@contextmanager
def watching(
    make: Callable[[], RunStream[_T]], cancel: Callable[[], None], door: str
) -> Generator[Generator[_T]]:
    """Yield the items of an async stream; leaving the block early cancels the run."""
    _refuse_a_loop(door, None)
    shown: Queue[tuple[_T | None, BaseException | None]] = Queue()
    left = Event()

    async def watch() -> None:
        async with make() as stream:
            if left.is_set():  # before there was anything to cancel
                return
            async for piece in stream:
                shown.put((piece, None))

    def work() -> None:
        try:
            asyncio.run(watch())
            shown.put((None, None))
        except BaseException as error:
            shown.put((None, error))

    thread = Thread(target=work, name="sennit-conversation", daemon=True)
    thread.start()
    try:
        yield _each(shown)
    finally:
        left.set()
        if thread.is_alive():
            cancel()
        thread.join()


def _each(shown: Queue[tuple[_T | None, BaseException | None]]) -> Generator[_T]:
    while True:
        piece, error = shown.get()
        if error is not None:
            raise error
        if piece is None:
            return
        yield piece


def _refuse_a_loop(door: str, work: Coroutine[Any, Any, Any] | None) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if work is not None:
        work.close()
    raise UsageError(f"An event loop is running here; use {door} instead.")
