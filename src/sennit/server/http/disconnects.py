"""Cancellation of a request's work when its client disconnects.

A coroutine is cancelled. Work in a thread polls a flag and ends there: see `cancellation`.
"""

from __future__ import annotations

from asyncio import CancelledError, Task, create_task, current_task, get_running_loop
from collections.abc import Awaitable
from typing import TypeVar

from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import Receive

_T = TypeVar("_T")
_DISCONNECT_POLL_DELAY = 0.25  # seconds before watching for a client disconnect


async def cancel_on_disconnect(receive: Receive, work: Awaitable[_T]) -> _T:
    """Return the result of the work; on a disconnect cancel it and raise HTTPError 499."""
    watcher = _DisconnectWatcher(receive)
    try:
        return await work
    except CancelledError:
        if not watcher.disconnected:
            raise
        watcher.task.uncancel()
        raise HTTPError(
            499, "gone", ("The client disconnected; the request was cancelled.")
        ) from None
    finally:
        watcher.stop()


class _DisconnectWatcher:
    """Cancels the current task if the client disconnects; starts watching after a delay."""

    def __init__(self, receive: Receive) -> None:
        task = current_task()
        assert task is not None
        self.task, self.disconnected = task, False
        self._receive = receive
        self._watch_task: Task[None] | None = None
        self._timer = get_running_loop().call_later(_DISCONNECT_POLL_DELAY, self._watch)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._watch_task is not None:
            self._watch_task.remove_done_callback(self._cancel)
            self._watch_task.cancel()

    def _watch(self) -> None:
        self._watch_task = create_task(wait_for_disconnect(self._receive))
        self._watch_task.add_done_callback(self._cancel)

    def _cancel(self, watch_task: Task[None]) -> None:
        if not watch_task.cancelled():
            self.disconnected = True
            self.task.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
