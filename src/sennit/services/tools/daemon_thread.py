"""A daemon thread for blocking functions that may never return.

A synchronous tool can hang, and Python cannot stop a thread. The executors of asyncio and anyio
would then keep the program from ending, as they wait for their threads at exit; a daemon thread of
its own, started for each call, does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T]) -> _T:
    """Run `call` in a thread with the caller's context variables, and return its result.

    If the caller is cancelled, the thread goes on by itself and nobody hears of it any more.
    """
    import asyncio  # takes long, and only async callers need it

    loop = asyncio.get_running_loop()
    settled: asyncio.Future[tuple[_T] | BaseException] = loop.create_future()

    def report(outcome: tuple[_T] | BaseException) -> None:
        if not settled.done():
            settled.set_result(outcome)

    def work() -> None:
        try:
            # A result, even for an error: a future refuses to be given StopIteration.
            outcome: tuple[_T] | BaseException = (call(),)
        except BaseException as error:
            outcome = error
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(report, outcome)
            except RuntimeError:  # the loop was closed just now: nobody is waiting
                return

    Thread(target=copy_context().run, args=(work,), name="sennit-tool", daemon=True).start()
    outcome = await settled
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome[0]
