"""Blocking calls of coroutines, on one background event loop per process.

The loop runs in a thread of its own from the first blocking call to the end of the process.
A SystemExit or KeyboardInterrupt that is raised on it ends the call, not the loop.
Provider clients, connection pools and MCP connections belong to an event loop, so they survive from
one blocking call to the next. A forked child has a loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from asyncio import AbstractEventLoop, CancelledError, Task
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from sennit.errors import UsageError

_T = TypeVar("_T")
_STOP_SECONDS = 5.0  # for connections to be closed at the end of the process
# Elsewhere a signal interrupts a thread that waits for a lock.
_WAIT_SECONDS = 0.1 if sys.platform == "win32" else None


def run_blocking(work: Coroutine[Any, Any, _T], alternative: str) -> _T:
    """Run a coroutine on the background loop and return its result.

    An exception in the waiting thread, such as KeyboardInterrupt, cancels the coroutine and is
    raised when that has ended. Raises UsageError on a running event loop, naming the alternative.
    """
    try:
        refuse_running_loop(alternative)
        call = _Call(work, _background.loop())
    except BaseException:
        work.close()
        raise
    return call.wait()


def refuse_running_loop(alternative: str) -> None:
    """Raise UsageError on a running event loop, which a blocking call would stop."""
    if is_loop_running():
        raise UsageError(f"An event loop is running here; use {alternative} instead.")


def is_loop_running() -> bool:
    """Return whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Call(Generic[_T]):
    """A coroutine on the background loop."""

    def __init__(self, work: Coroutine[Any, Any, _T], loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._task: Task[_T] | None = None
        self._outcome: Future[_T] = Future()
        loop.call_soon_threadsafe(self._start, work)  # in the context of the caller

    def wait(self) -> _T:
        """Return the result when it is there; an interruption cancels the coroutine first."""
        try:
            return self._wait()
        except BaseException:
            if not self._outcome.done():
                self._loop.call_soon_threadsafe(self._cancel)
                self._wait_for_end()
            raise

    def _wait(self) -> _T:
        self._wait_for_end()
        return self._outcome.result()

    def _wait_for_end(self) -> None:
        while not self._outcome.done():
            try:
                self._outcome.exception(_WAIT_SECONDS)
            except TimeoutError:
                continue

    def _start(self, work: Coroutine[Any, Any, _T]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: Task[_T]) -> None:
        error = CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._outcome.set_result(task.result())
        else:
            self._outcome.set_exception(error)


@dataclass(slots=True)
class _Background:
    """The background loop, once it was needed."""

    lock: Lock = field(default_factory=Lock)
    thread: Thread | None = None
    running: AbstractEventLoop | None = None

    def loop(self) -> AbstractEventLoop:
        """Return the loop, started on first use; raises UsageError when Python shuts down."""
        with self.lock:
            if self.running is None:
                started: Future[AbstractEventLoop] = Future()
                self.thread = Thread(
                    target=_serve, args=(started,), name="sennit-blocking", daemon=True
                )
                _start(self.thread)
                self.running = started.result()
            return self.running

    def close(self) -> None:
        """Cancel what still runs, and close the connections that belong to the loop."""
        with self.lock:
            if self.running is None or self.thread is None:
                return
            self.running.call_soon_threadsafe(self.running.stop)
            self.thread.join(_STOP_SECONDS)
            self.running = None


def _start(thread: Thread) -> None:
    if not sys.is_finalizing():  # else the thread would never run, nor this one go on
        with suppress(RuntimeError):  # Python 3.12 and later start no thread even before that
            return thread.start()
    raise UsageError("Python is shutting down; make blocking calls before the program ends.")


def _serve(started: Future[AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.call_soon(started.set_result, loop)
        stopped = False
        while not stopped:
            # These two leave the loop as well as the task that raised them, whose caller gets them.
            with suppress(KeyboardInterrupt, SystemExit):
                loop.run_forever()
                stopped = True


_background = _Background()
_inherited: list[_Background] = []  # kept alive: its connections are those of the parent


def _forget_background() -> None:
    global _background
    _inherited.append(_background)
    _background = _Background()


def _close_background() -> None:
    _background.close()


atexit.register(_close_background)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_background)
