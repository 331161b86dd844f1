"""Cancellation of a request's work when its client disconnects.

A coroutine is cancelled. Work in a thread is told, and ends where it looks: see `cancellation`.
"""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, current_task, get_running_loop
from collections.abc import Awaitable
from typing import TypeVar

from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import Receive

_T = TypeVar("_T")
_SOON = 0.25  # seconds after which it is looked whether whoever asked is still there


async def while_there(receive: Receive, work: Awaitable[_T]) -> _T:
    """Return the result of the work; if the client disconnects, cancel it and raise HTTPError
    499.
    """
    watcher = _Leaving(receive)
    try:
        return await work
    except CancelledError:
        if not watcher.left:
            raise
        watcher.task.uncancel()
        raise HTTPError(
            499, "gone", ("The client disconnected; the request was cancelled.")
        ) from None
    finally:
        watcher.stop()


class _Leaving:
    """Cancels the task it is made in if the client goes away; at first it is only a timer."""

    def __init__(self, receive: Receive) -> None:
        task = current_task()
        assert task is not None
        self.task, self.left = task, False
        self._receive = receive
        self._watching: Task[None] | None = None
        self._timer = get_running_loop().call_later(_SOON, self._watch)

    def stop(self) -> None:
        """It does not matter any more."""
        self._timer.cancel()
        if self._watching is not None:
            self._watching.remove_done_callback(self._leave)
            self._watching.cancel()

    def _watch(self) -> None:
        self._watching = create_task(gone(self._receive))
        self._watching.add_done_callback(self._leave)

    def _leave(self, watch_task: Task[None]) -> None:
        if not watch_task.cancelled():
            self.left = True
            self.task.cancel()


async def gone(receive: Receive) -> None:
    """Wait until the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
