"""Await a task to completion despite cancellation, then re-raise CancelledError."""

from __future__ import annotations

from asyncio import CancelledError, Future, current_task, ensure_future
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def finish_uncancelled(work: Awaitable[_T]) -> _T:
    """Await `work` to completion and return its result; cancellation is re-raised afterwards."""
    task = ensure_future(work)
    cancellation: CancelledError | None = None
    while not task.done():
        try:
            await _done_future(task)
        except CancelledError as error:
            cancellation = error
    if cancellation is not None and not task.cancelled():
        raise cancellation
    return task.result()


def _done_future(task: Future[_T]) -> Future[None]:
    """Return a future that is done when `task` is; cancelling it does not cancel the task."""
    done: Future[None] = task.get_loop().create_future()

    def set_done(_: Future[_T]) -> None:
        if not done.done():
            done.set_result(None)

    task.add_done_callback(set_done)
    return done


def is_cancelling() -> bool:
    """Return whether this task is being cancelled; False if a callee raised CancelledError."""
    task = current_task()
    return task is not None and task.cancelling() > 0
