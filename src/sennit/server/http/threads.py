"""Threads for request work, shared fairly between tokens and owners.

Short requests run a few at a time per token, so that one token cannot occupy all threads. Long work
(decoding large bodies, building thousands of messages, searching files) runs apart from these, one
piece at a time per owner and two in all: threads share the interpreter, so the more of them
compute, the longer everyone else waits.
"""

from __future__ import annotations

from asyncio import CancelledError, Lock, Semaphore, get_running_loop
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

from sennit.cancellation import cancellable
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError
from sennit.server.settings import Limits

_T = TypeVar("_T")
_A = TypeVarTuple("_A")
_LONG = 2
_MOST_WAITING = 32
_SOON = {"retry-after": "5"}


class _Turn(Lock):
    """The right of one owner to compute; counts those who wait for it."""

    waiting = 0


class FairThreadPool:
    """The threads of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._long = ThreadPoolExecutor(_LONG, thread_name_prefix="sennit-long")
        self._turns: WeakValueDictionary[Hashable, _Turn] = WeakValueDictionary()
        self._slots: WeakValueDictionary[tuple[str, str], Semaphore] = WeakValueDictionary()

    def slot(self, caller: Caller | None, kind: str = "") -> AbstractAsyncContextManager[Any]:
        """A place among the requests of a kind that a token has; the local user needs none."""
        if caller is None or caller.token is None:
            return nullcontext()
        semaphore = Semaphore(self._limits.token_threads)
        return self._slots.setdefault((caller.name, kind), semaphore)

    async def run(self, caller: Caller | None, work: Callable[[*_A], _T], *args: *_A) -> _T:
        """Do long work in a thread when it is the owner's turn; raises HTTPError 429."""
        lock = self._turns.setdefault(_owner(caller), _Turn())
        if lock.waiting >= _MOST_WAITING:
            message = f"This user has {_MOST_WAITING} large requests waiting, the maximum."
            raise HTTPError(429, "large_requests", f"{message} Wait 5 s.", headers=_SOON)
        lock.waiting += 1
        try:
            async with lock:
                return await self._in_thread(work, *args)
        finally:
            lock.waiting -= 1

    async def _in_thread(self, work: Callable[[*_A], _T], *args: *_A) -> _T:
        """Work in a thread; being cancelled ends it where it next looks."""
        with cancellable() as cancelled:
            context, loop = copy_context(), get_running_loop()
            try:
                return await loop.run_in_executor(self._long, partial(context.run, work, *args))
            except CancelledError:
                cancelled.set()
                raise

    def close(self) -> None:
        """End the threads; what they do is finished first."""
        self._long.shutdown()


def _owner(caller: Caller | None) -> Hashable:
    return None if caller is None else (caller.client.tenant, caller.client.user)
