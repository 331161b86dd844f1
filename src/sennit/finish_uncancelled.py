"""Await a task to completion despite cancellation, then re-raise CancelledError."""

from __future__ import annotations

from asyncio import CancelledError, Future, current_task, ensure_future
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def finish_uncancelled(work: Awaitable[_T]) -> _T:
    """Await `work` to completion and return its result; cancellation is re-raised afterwards."""
    task = ensure_future(work)
    disturbed: CancelledError | None = None
    while not task.done():
        try:
            await _over(task)
        except CancelledError as error:
            disturbed = error
    if disturbed is not None and not task.cancelled():
        raise disturbed
    return task.result()


def _over(task: Future[_T]) -> Future[None]:
    """Done as soon as a task is; cancelling it does nothing to the task."""
    over: Future[None] = task.get_loop().create_future()

    def tell(_: Future[_T]) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(tell)
    return over


def is_leaving() -> bool:
    """Return whether someone cancels this task, rather than that code it calls raised
    CancelledError.
    """
    task = current_task()
    return task is not None and task.cancelling() > 0
