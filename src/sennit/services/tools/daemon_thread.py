"""A daemon thread for blocking functions that may never return.

A synchronous tool can hang, and Python cannot stop a thread. The executors of asyncio and anyio
join their threads at exit, so a hanging call would keep the program from ending; a daemon thread
started for each call does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T]) -> _T:
    """Run `call` in a thread with the caller's context variables, and return its result.

    If the caller is cancelled, the thread continues and its result is discarded.
    """
    import asyncio  # late: slow to import

    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[_T] | BaseException] = loop.create_future()

    def set_outcome(outcome: tuple[_T] | BaseException) -> None:
        if not future.done():
            future.set_result(outcome)

    def run() -> None:
        try:
            # Errors are also set as a result, since a future rejects StopIteration.
            outcome: tuple[_T] | BaseException = (call(),)
        except BaseException as error:
            outcome = error
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(set_outcome, outcome)
            except RuntimeError:  # the loop was closed meanwhile: no caller is waiting
                return

    Thread(target=copy_context().run, args=(run,), name="sennit-tool", daemon=True).start()
    outcome = await future
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome[0]
