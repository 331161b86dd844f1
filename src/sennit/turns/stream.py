"""The stream of a run, for `for` and `async for`."""

from __future__ import annotations

import os
from asyncio import Queue, Task, wait
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic

from sennit.blocking import is_loop_running, run_blocking
from sennit.errors import UsageError
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

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    _O = TypeVar("_O", default=object)
else:
    from typing import TypeVar

    _O = TypeVar("_O")

_T = TypeVar("_T")
_R = TypeVar("_R")
_ALTERNATIVE = "'async for' or 'async with'"


class RunStream(Generic[_T, _O]):
    """A run as a stream, for `for` and `with`, or on an event loop `async for` and `async with`.

    The run starts with the block, or with the first step of a plain loop. Leaving the block or a
    plain `for` early cancels the run, and its messages are durable then. A plain `async for` cannot
    see that it was left: the run is cancelled when the stream is no longer referenced.
    """

    def __init__(
        self,
        start: Callable[[Callable[[list[AnyEvent]], None]], Task[Return[_O]]],
        stop: Callable[[Task[Return[_O]]], None],
        show: Callable[[AnyEvent], _T | None],
    ) -> None:
        self._start, self._stop, self._show = start, stop, show
        self._events: Queue[AnyEvent | None] = Queue()
        self._blocking_events: SimpleQueue[AnyEvent | None] | None = None
        self._task: Task[Return[_O]] | None = None
        self._in_block = False
        self._finished = False
        self._process = os.getpid()

    @property
    def result(self) -> Return[_O]:
        """The result of the run; raises UsageError before its end, and what the run raised."""
        if self._task is None or not self._task.done():
            raise UsageError("The run has no result yet; read the stream to its end first.")
        return self._task.result()

    async def __aenter__(self) -> RunStream[_T, _O]:
        self._ensure_started(self._async_events())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    def __aiter__(self) -> RunStream[_T, _O]:
        return self

    async def __anext__(self) -> _T:
        events = self._async_events()
        task = self._ensure_started(events)
        while not self._finished:
            event = await events.get()
            if event is None:
                self._finished = True
                events.put_nowait(None)  # for another reader of this stream
                await task  # raises what the run raised, if anything
                break
            if isinstance(event, RunEnded):
                event = await _with_observer_warnings(event, task)
            if (item := self._show(event)) is not None:
                return item
        raise StopAsyncIteration

    def __enter__(self) -> RunStream[_T, _O]:
        self._start_blocking()
        self._in_block = True
        return self

    def __exit__(self, *_: object) -> None:
        self._in_block = False
        self._leave_blocking()

    def __iter__(self) -> Generator[_T]:
        try:
            yield from self._iterate()
        finally:
            if not self._in_block:
                self._leave_blocking()

    def __del__(self) -> None:
        self._cancel()

    def _leave_blocking(self) -> None:
        if self._task is not None and not self._task.done():
            if is_loop_running():  # such as a generator that is collected there
                self._cancel()
            else:
                _block(self._leave())

    def _cancel(self) -> None:
        """Cancel the run without waiting for its end."""
        if self._task is not None and not self._task.done():
            with suppress(RuntimeError):  # its loop has ended, and the run with it
                self._task.get_loop().call_soon_threadsafe(self._stop, self._task)

    def _iterate(self) -> Generator[_T]:
        task, events = self._start_blocking()
        while not self._finished:
            self._check_process()
            event = events.get()
            if event is None:
                self._finished = True
                events.put_nowait(None)  # for another reader of this stream
                _block(_result_of(task))  # raises what the run raised, if anything
                return
            if isinstance(event, RunEnded):
                event = _block(_with_observer_warnings(event, task))
            if (item := self._show(event)) is not None:
                yield item

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise UsageError("This stream was made before a fork; only the parent can read it.")

    def _start_blocking(self) -> tuple[Task[Return[_O]], SimpleQueue[AnyEvent | None]]:
        self._check_process()
        if self._blocking_events is None:
            if self._task is not None:
                raise UsageError(f"This stream is read on an event loop; use {_ALTERNATIVE}.")
            self._blocking_events = SimpleQueue()
        events = self._blocking_events

        async def start() -> Task[Return[_O]]:
            return self._ensure_started(events)

        return _block(start()), events

    def _async_events(self) -> Queue[AnyEvent | None]:
        if self._blocking_events is not None:
            raise UsageError("This stream is read without an event loop; use 'for' or 'with'.")
        return self._events

    def _ensure_started(
        self, events: Queue[AnyEvent | None] | SimpleQueue[AnyEvent | None]
    ) -> Task[Return[_O]]:
        if self._task is None:
            # The task must not refer to the stream: a stream that is dropped cancels its run.
            self._task = self._start(partial(_put_all, events))
            self._task.add_done_callback(lambda _: events.put_nowait(None))
        return self._task

    async def _leave(self) -> None:
        if self._task is not None and not self._task.done():
            self._stop(self._task)
            with suppress(Exception):
                await finish_uncancelled(self._task)


def _put_all(
    queue: Queue[AnyEvent | None] | SimpleQueue[AnyEvent | None], events: Iterable[AnyEvent]
) -> None:
    for event in events:
        queue.put_nowait(event)


def _block(work: Coroutine[Any, Any, _R]) -> _R:
    return run_blocking(work, _ALTERNATIVE)


async def _result_of(task: Task[Return[_O]]) -> Return[_O]:
    return await task


async def _with_observer_warnings(ended: RunEnded, task: Task[Return[Any]]) -> RunEnded:
    """Return the end of a run with the warnings of its observers, which are awaited first."""
    await wait({task})
    if task.cancelled() or task.exception() is not None:
        return ended
    return replace(ended, result=task.result())


def as_event(event: AnyEvent) -> AnyEvent | None:
    """Return the event itself, for `events`."""
    return event


def as_return(event: AnyEvent) -> Return[Any] | None:
    """Return the stream item of an event."""
    if isinstance(event, RunEnded):
        return replace(event.result, is_streamed=True)
    if isinstance(event, TextAdded | ReasoningAdded):
        body = Body((delta_message(event),))
        return Return(body=body, run_id=event.run_id, seq=event.seq, is_delta=True)
    if isinstance(event, MessageCompleted | ToolCalled | ToolCompleted):
        return Return(body=Body((event.message,)), run_id=event.run_id, seq=event.seq)
    return None
