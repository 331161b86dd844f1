"""The stream of a run, as an async iterator."""

from __future__ import annotations

from asyncio import Queue, Task, wait
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Generic, TypeVar

from sennit.finish_uncancelled import finish_uncancelled
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    TextAdded,
    ToolCalled,
    ToolCompleted,
)
from sennit.turns.observers import delta_message
from sennit.turns.result import Body, Return

_T = TypeVar("_T")


class RunStream(Generic[_T]):
    """A run as a stream: an async iterator and an async context manager.

    The run starts with the block, or with the first step of a plain `async for`. Leaving the block
    early cancels the run and waits until its messages are durable.
    """

    def __init__(
        self,
        start: Callable[[Callable[[list[AnyEvent]], None]], Task[Return]],
        stop: Callable[[Task[Return]], None],
        show: Callable[[AnyEvent], _T | None],
    ) -> None:
        self._start, self._stop, self._show = start, stop, show
        self._queue: Queue[AnyEvent | None] = Queue()
        self._task: Task[Return] | None = None
        self._finished = False

    async def __aenter__(self) -> RunStream[_T]:
        self._ensure_started()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None and not self._task.done():
            self._stop(self._task)
            with suppress(Exception):
                await finish_uncancelled(self._task)

    def __aiter__(self) -> RunStream[_T]:
        return self

    async def __anext__(self) -> _T:
        task = self._ensure_started()
        while not self._finished:
            event = await self._queue.get()
            if event is None:
                self._finished = True
                await task  # raises what the run raised, if anything
                break
            if isinstance(event, RunEnded):
                event = await _with_observer_warnings(event, task)
            if (item := self._show(event)) is not None:
                return item
        raise StopAsyncIteration

    @property
    async def result(self) -> Return:
        """Return the result of the run."""
        return await self._ensure_started()

    def _ensure_started(self) -> Task[Return]:
        if self._task is None:
            self._task = self._start(self._publish)
            self._task.add_done_callback(lambda _: self._queue.put_nowait(None))
        return self._task

    def _publish(self, events: list[AnyEvent]) -> None:
        for event in events:
            self._queue.put_nowait(event)


async def _with_observer_warnings(ended: RunEnded, task: Task[Return]) -> RunEnded:
    """Return the end of a run with the warnings of its observers, which are awaited first."""
    await wait({task})
    if task.cancelled() or task.exception() is not None:
        return ended
    return replace(ended, result=task.result())


def as_event(event: AnyEvent) -> AnyEvent | None:
    """Return the event itself, for `events`."""
    return event


def as_return(event: AnyEvent) -> Return | None:
    """Return the stream item of an event."""
    if isinstance(event, RunEnded):
        return event.result
    if isinstance(event, TextAdded | ReasoningAdded):
        body = Body((delta_message(event),))
        return Return(body=body, run_id=event.run_id, seq=event.seq, is_delta=True)
    if isinstance(event, MessageCompleted | ToolCalled | ToolCompleted):
        return Return(body=Body((event.message,)), run_id=event.run_id, seq=event.seq)
    return None
