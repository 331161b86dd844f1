"""Threads for request work, shared fairly between tokens and owners.

Short requests run a few at a time per token, so that one token cannot occupy all threads. Long work
(decoding large bodies, building thousands of messages, searching files) has its own pool of two
threads, one job at a time per owner: threads share the GIL, so each that computes slows down the
others. Uploads have threads of their own, as they wait for their clients.
"""

from __future__ import annotations

from asyncio import CancelledError, Lock, Semaphore, get_running_loop
from collections import Counter
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
_LONG_WORKERS = 2
_MAX_WAITING = 32
_UPLOAD_WORKERS = 8
_OWNER_UPLOADS = 4
_RETRY_AFTER = {"retry-after": "5"}


class _OwnerLock(Lock):
    """The lock of one owner's long work; counts the holder and the waiters."""

    waiting = 0


class FairThreadPool:
    """The threads of one server."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._executor = ThreadPoolExecutor(_LONG_WORKERS, thread_name_prefix="sennit-long")
        self._uploader = ThreadPoolExecutor(_UPLOAD_WORKERS, thread_name_prefix="sennit-upload")
        self._uploads: Counter[Hashable] = Counter()
        self._owner_locks: WeakValueDictionary[Hashable, _OwnerLock] = WeakValueDictionary()
        self._slots: WeakValueDictionary[tuple[str, str], Semaphore] = WeakValueDictionary()

    def slot(self, caller: Caller | None, kind: str = "") -> AbstractAsyncContextManager[Any]:
        """Return a semaphore for a token's requests of a kind; the local user has no limit."""
        if caller is None or caller.token is None:
            return nullcontext()
        semaphore = Semaphore(self._limits.token_threads)
        return self._slots.setdefault((caller.name, kind), semaphore)

    async def run(self, caller: Caller | None, work: Callable[[*_A], _T], *args: *_A) -> _T:
        """Run long work in a thread, one job per owner; raise HTTPError 429 if too many wait."""
        lock = self._owner_locks.setdefault(_owner(caller), _OwnerLock())
        if lock.waiting >= _MAX_WAITING:
            message = f"This user has {_MAX_WAITING} large requests waiting, the maximum."
            raise HTTPError(429, "large_requests", f"{message} Wait 5 s.", headers=_RETRY_AFTER)
        lock.waiting += 1
        try:
            async with lock:
                return await self._in_thread(work, *args)
        finally:
            lock.waiting -= 1

    async def upload(self, caller: Caller, work: Callable[[], _T]) -> _T:
        """Run work that reads from a client; raise HTTPError 429 if the owner has many."""
        owner = _owner(caller)
        if self._uploads[owner] >= _OWNER_UPLOADS:
            message = f"This user has {_OWNER_UPLOADS} uploads under way, the maximum."
            raise HTTPError(429, "uploads", f"{message} Wait 5 s.", headers=_RETRY_AFTER)
        self._uploads[owner] += 1
        try:
            return await get_running_loop().run_in_executor(self._uploader, work)
        finally:
            self._uploads[owner] -= 1
            if not self._uploads[owner]:
                del self._uploads[owner]

    async def _in_thread(self, work: Callable[[*_A], _T], *args: *_A) -> _T:
        """Run work in a thread; on cancellation it ends at its next check."""
        with cancellable() as cancelled:
            context, loop = copy_context(), get_running_loop()
            try:
                return await loop.run_in_executor(self._executor, partial(context.run, work, *args))
            except CancelledError:
                cancelled.set()
                raise

    def close(self) -> None:
        """Shut down the threads after their current work."""
        self._executor.shutdown()
        self._uploader.shutdown(wait=False)  # they wait for the event loop, which waits here


def _owner(caller: Caller | None) -> Hashable:
    return None if caller is None else (caller.client.tenant, caller.client.user)
