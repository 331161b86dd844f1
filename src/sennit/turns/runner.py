"""The runner of a conversation: one active run at a time, which can be cancelled at any moment.

`cancel` ends the active run, or the requested ones before they start. `stop` ends the run of one
task only: a caller that was refused as busy must not cancel the run that it collided with.
"""

from __future__ import annotations

import logging
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Task,
    create_task,
    current_task,
    get_running_loop,
    run_coroutine_threadsafe,
    sleep,
)
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from sennit.errors import AccessError, ConflictError, InvalidTypeError, ValidationError, short_repr
from sennit.messages.message import Message
from sennit.sessions.grants import check_access
from sennit.turns.events import AnyEvent
from sennit.turns.journal import Publish
from sennit.turns.loop import hold_and_run
from sennit.turns.observers import Observers, observer_warning
from sennit.turns.options import NO_INPUT, RunInput, SessionOptions, StreamingOptions, WhenBusy
from sennit.turns.output import RunOutput
from sennit.turns.recovery import UnfinishedRun
from sennit.turns.request import Request
from sennit.turns.result import Notice, Return, busy_notice
from sennit.turns.run import CancelMode, Run, stop_nothing
from sennit.turns.subscription import publish_to_subscribers
from sennit.turns.tools.large_output import with_reader
from sennit.turns.wait_graph import waiting_for, would_deadlock

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02  # between two checks whether the active run has ended
_CANCELLED_EARLY = Notice("info", "early", "Cancelled immediately.")


@dataclass(slots=True)
class ActiveRun:
    """The active run, with its task and event loop."""

    run: Run
    loop: AbstractEventLoop
    task: Task[Return]
    started_by: Task[Any] | None
    """The task that awaits it."""

    def cancel(self, mode: CancelMode) -> None:
        """Cancel the run; repeated calls have no effect."""
        if mode == "after_turn":
            self.run.progress.stopping = True
        elif not self.run.cancel_requested:
            self.run.cancel_requested = True
            if self.loop is _running_loop():
                self.task.cancel()
                return
            with suppress(RuntimeError):  # its loop has ended, and the run with it
                self.loop.call_soon_threadsafe(self.task.cancel)

    def steer(self, message: Message) -> bool:
        """Queue a message for the run; return False if it has ended. From another thread, wait
        until it is durable.
        """
        if self.loop is _running_loop():
            return self.run.steer(message)
        try:
            return run_coroutine_threadsafe(self._steer(message), self.loop).result()
        except RuntimeError:  # its loop has ended, and the run with it
            return False

    async def _steer(self, message: Message) -> bool:
        accepted = self.run.steer(message)
        if accepted:
            await self.run.flush()
        return accepted


class Runner:
    """Starts and stops the runs of a conversation."""

    def __init__(self, request: Request, observers: tuple[Any, ...], *, greets: bool) -> None:
        self._request, self._observers, self._greets = request, observers, greets
        self._current: ActiveRun | None = None
        self._early_cancels: dict[
            Task[Return], list[CancelMode]
        ] = {}  # cancels before the run was active

    def start(self, work: Coroutine[Any, Any, Return]) -> Task[Return]:
        """Start a task that calls `run`; it can be cancelled from now on."""
        task = create_task(work)
        self._early_cancels[task] = []
        task.add_done_callback(lambda done: self._early_cancels.pop(done, None))
        return task

    def cancel(self, mode: CancelMode) -> None:
        """Cancel the active run, or else the requested ones; thread-safe."""
        if mode not in ("now", "after_turn"):
            raise ValidationError(f"cancel takes 'now' or 'after_turn', got {short_repr(mode)}.")
        current = self._current
        if current is not None:
            current.cancel(mode)
            return
        for early in list(self._early_cancels.values()):
            early.append(mode)

    def stop(self, task: Task[Return]) -> None:
        """Cancel the run of this task, if it has not ended."""
        current = self._current
        if current is not None and current.started_by is task:
            current.cancel("now")
        elif task in self._early_cancels:
            self._early_cancels[task].append("now")

    def suspend(self) -> None:
        """Stop the active run so that it can be resumed; one not started yet is cancelled."""
        if self._current is not None:
            self._current.run.suspending = True
        self.cancel("now")

    def steer(self, message: Message) -> bool:
        """Queue a message for the active run; return False if there is none, or it has ended."""
        current = self._current
        return current is not None and current.steer(message)

    def local_run(self) -> Run | None:
        """Return the active run if it runs on the current event loop."""
        current = self._current
        if current is None or not current.run.is_active or current.loop is not _running_loop():
            return None
        return current.run

    async def run(
        self,
        options: SessionOptions,
        streaming: StreamingOptions | None,
        publish: Publish,
        resume: UnfinishedRun | None = None,
        run_input: RunInput = NO_INPUT,
    ) -> Return:
        """Run to the end and return the result; an invalid run is refused with a result too."""
        _check_type(options, SessionOptions)
        if streaming is not None:
            _check_type(streaming, StreamingOptions)
        await self._wait_until_idle(options.when_busy)
        publishers: list[Publish] = [publish]
        if resume is not None and run_input.output is run_input.only is None:
            recorded = RunOutput.recorded(resume.notes)
            run_input = msgspec.structs.replace(run_input, output=recorded)
        run = Run(
            with_reader(self._request, options),
            options,
            streaming,
            lambda events: _publish_all(publishers, events),
            id=None if resume is None else resume.record.id,
            run_input=run_input,
            greets=self._must_greet(resume),
        )
        late_notices: list[Notice] = []
        observers = Observers(self._observers, self._request, _warner(run, late_notices))
        publishers += [observers.notify, partial(_tell_joined, run)]
        try:
            while _is_busy(problem := self._problem(run, resume)) and self._waits(
                options.when_busy
            ):
                await self._wait_until_idle(options.when_busy)  # one on another loop was faster
            if problem is None:
                result = await self._run_in_task(run, resume)
            elif _is_busy(problem) and self._is_cancelled_early():
                result = run.refuse("cancelled", _CANCELLED_EARLY)
            else:
                result = run.refuse("invalid", problem)
        finally:
            if self._current is not None and self._current.run is run:
                self._current = None
            await observers.finish()
            publishers.clear()  # breaks the reference cycle
        return replace(result, notices=(*result.notices, *late_notices)) if late_notices else result

    async def _wait_until_idle(self, when_busy: WhenBusy) -> None:
        """Wait for the end of the active run, or interrupt it, unless being busy is an error."""
        while self._waits(when_busy) and (current := self._current) is not None:
            if when_busy == "interrupt":
                current.cancel("now")
                await sleep(_POLL_SECONDS)
                continue
            with suppress(ConflictError), waiting_for(current.run.holder):
                await sleep(_POLL_SECONDS)

    def _waits(self, when_busy: WhenBusy) -> bool:
        """Return whether a run still waits for the active one."""
        if when_busy == "error" or self._is_cancelled_early():
            return False
        current = self._current
        return when_busy == "interrupt" or current is None or not would_deadlock(current.run.holder)

    def _is_cancelled_early(self) -> bool:
        """Return whether the run of this task was cancelled before it was active."""
        task = current_task()
        return task is not None and bool(self._early_cancels.get(task))

    async def _run_in_task(self, run: Run, resume: UnfinishedRun | None) -> Return:
        caller = current_task()
        task = create_task(hold_and_run(run, resume=resume is not None))
        self._current = current = ActiveRun(run, get_running_loop(), task, caller)
        run.stop = partial(current.cancel, "now")
        for early in () if caller is None else self._early_cancels.pop(caller, ()):
            current.cancel(early)
        try:
            return await task
        except CancelledError:
            if run.ended:
                raise
            result = run.refuse("cancelled", _CANCELLED_EARLY)
            if run.cancel_requested:
                return result
            raise
        finally:
            run.stop = stop_nothing  # breaks the reference cycle with ActiveRun

    def _must_greet(self, resume: UnfinishedRun | None) -> bool:
        """Return whether the next run starts with a greeting."""
        greets = self._greets if resume is None else resume.notes.get("greets", False)
        return greets and not any(
            message.content.from_assistant for message in self._request.latest()
        )

    def _problem(self, run: Run, resume: UnfinishedRun | None) -> Notice | None:
        """Return the reason why a run is invalid, or None."""
        request, options = self._request, run.options
        try:
            request.check()
            if run.input.output is not None:
                check_access(request.branch, run.input.output.needs)
        except AccessError as error:
            run.error = error
            return Notice("error", "access", str(error))
        if (current := self._current) is not None:
            return busy_notice(request.branch, current.run.holder, same_conversation=True)
        if resume is None and (reason := run.nothing_to_answer()) is not None:
            return Notice("error", "empty", reason)
        if run.streaming is not None and not request.model.streams:
            reason = f"Model {request.model_name!r} does not stream; use run() or say()."
            return Notice("error", "no_streaming", reason)
        if not options.process_tools and not run.input.say and request.pending():
            reason = "Tool calls are pending; set process_tools=True, or run them first."
            return Notice("error", "pending_tools", reason)
        return None


def _is_busy(problem: Notice | None) -> bool:
    return problem is not None and problem.code == "busy"


def _check_type(options: Any, kind: type) -> None:
    if not isinstance(options, kind):
        raise InvalidTypeError(f"options must be {kind.__name__}, got {short_repr(options)}.")


def _tell_joined(run: Run, events: list[AnyEvent]) -> None:
    publish_to_subscribers(run.runs, run.holder, events)


def _publish_all(publishers: list[Publish], events: list[AnyEvent]) -> None:
    for publish in publishers:
        publish(events)


def _warner(run: Run, late: list[Notice]) -> Callable[[Any, BaseException], None]:
    """Return a function that reports an observer's error, in `late` once the run has ended."""

    def warn(observer: Any, error: BaseException) -> None:
        text = observer_warning(observer, error)
        if run.is_active:
            run.warn("observer", text)
        else:
            _log.warning("%s", text)  # a cancelled caller gets no Return
            late.append(Notice("warning", "observer", text))

    return warn


def _running_loop() -> AbstractEventLoop | None:
    """Return the running event loop of this thread, if any."""
    try:
        return get_running_loop()
    except RuntimeError:
        return None
