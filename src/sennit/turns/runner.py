"""The runner of a conversation: one run at a time, which can be stopped at any moment.

A run is asked for, then under way, then over. `cancel` ends whatever there is; `stop` ends the run
of one task and no other, so that whoever was refused because the conversation is busy cannot end
what keeps it busy.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError, Task, create_task, current_task, get_running_loop, sleep
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from sennit.errors import AccessError, InvalidTypeError, ValidationError, shown
from sennit.messages.message import Message
from sennit.turns.active_run import ActiveRun, running_loop
from sennit.turns.events import AnyEvent
from sennit.turns.journal import Publish
from sennit.turns.loop import hold_and_run
from sennit.turns.observers import Observers, raised
from sennit.turns.options import SessionOptions, StreamingOptions, WhenBusy
from sennit.turns.recovery import UnfinishedRun
from sennit.turns.request import Request
from sennit.turns.result import Notice, Return
from sennit.turns.run import CancelMode, Run, nobody_stops
from sennit.turns.run_input import NO_AIM, RunInput
from sennit.turns.subscription import tell_joined

_log = logging.getLogger(__name__)
_LOOK = 0.02  # seconds between two looks at a run of the same conversation that is waited for


class Runner:
    """Starts and stops the runs of a conversation."""

    def __init__(self, request: Request, observers: tuple[Any, ...], *, greets: bool) -> None:
        self._request, self._observers, self._greets = request, observers, greets
        self._current: ActiveRun | None = None
        self._asked_for: dict[Task[Return], list[CancelMode]] = {}  # with cancels that came early

    def start(self, work: Coroutine[Any, Any, Return]) -> Task[Return]:
        """Have work begin that comes to `run`; from now on it can be stopped."""
        task = create_task(work)
        self._asked_for[task] = []
        task.add_done_callback(lambda done: self._asked_for.pop(done, None))
        return task

    def cancel(self, mode: CancelMode) -> None:
        """End the run under way, or those that were asked for, from any thread."""
        if mode not in ("now", "after_turn"):
            raise ValidationError(f"cancel takes 'now' or 'after_turn', got {shown(mode)}.")
        current = self._current
        if current is not None:
            current.cancel(mode)
            return
        for early in list(self._asked_for.values()):
            early.append(mode)

    def stop(self, task: Task[Return]) -> None:
        """End the run of this task, if it is not over."""
        current = self._current
        if current is not None and current.started_by is task:
            current.cancel("now")
        elif task in self._asked_for:
            self._asked_for[task].append("now")

    def suspend(self) -> None:
        """End the run under way so that it can be gone on with; one not begun yet is cancelled."""
        if self._current is not None:
            self._current.run.suspending = True
        self.cancel("now")

    def steer(self, message: Message) -> bool:
        """Say something to the run under way; False if there is none, or it is too late."""
        current = self._current
        return current is not None and current.steer(message)

    def here(self) -> Run | None:
        """The run under way, if it can be told things from here."""
        current = self._current
        if current is None or not current.run.under_way or current.loop is not running_loop():
            return None
        return current.run

    async def run(
        self,
        options: SessionOptions,
        streaming: StreamingOptions | None,
        publish: Publish,
        resume: UnfinishedRun | None = None,
        aim: RunInput = NO_AIM,
    ) -> Return:
        """Run to the end; a run that makes no sense is refused, and has its end too."""
        _check(options, SessionOptions)
        if streaming is not None:
            _check(streaming, StreamingOptions)
        await self._make_way(options.when_busy)
        watching: list[Publish] = [publish]
        run = Run(
            self._request,
            options,
            streaming,
            lambda events: _tell(watching, events),
            id=None if resume is None else resume.record.id,
            aim=aim,
            greets=self._greets_now(resume),
        )
        late: list[Notice] = []
        observers = Observers(self._observers, self._request, _warner(run, late))
        watching += [observers.tell, partial(_tell_joined, run)]
        try:
            if (problem := self._problem(run, resume)) is not None:
                result = run.refuse("invalid", problem)
            else:
                result = await self._under_way(run, resume)
        finally:
            if self._current is not None and self._current.run is run:
                self._current = None
            await observers.finish()
            watching.clear()  # they know the run, and it them: so nothing has to look for that
        return replace(result, messages=(*result.messages, *late)) if late else result

    async def _make_way(self, when_busy: WhenBusy) -> None:
        """Wait until no run of this conversation is under way, unless that is an error."""
        waiting = current_task()
        while when_busy != "error" and (current := self._current) is not None:
            if waiting is not None and self._asked_for.get(waiting):
                return  # cancelled meanwhile
            if when_busy == "interrupt":
                current.cancel("now")
            await sleep(_LOOK)

    async def _under_way(self, run: Run, resume: UnfinishedRun | None) -> Return:
        starting = current_task()
        task = create_task(hold_and_run(run, resume=resume is not None))
        self._current = current = ActiveRun(run, get_running_loop(), task, starting)
        run.stop = partial(current.cancel, "now")
        for early in () if starting is None else self._asked_for.pop(starting, ()):
            current.cancel(early)
        try:
            return await task
        except CancelledError:
            if run.ended:
                raise
            result = run.refuse("cancelled", Notice("info", "early", "Cancelled immediately."))
            if run.cancelled_here:
                return result
            raise
        finally:
            run.stop = nobody_stops  # else run and Current hold each other until a collection

    def _greets_now(self, resume: UnfinishedRun | None) -> bool:
        """Return whether the next run begins with a greeting."""
        wanted = self._greets if resume is None else resume.notes.get("greets", False)
        return wanted and not any(
            message.content.from_assistant for message in self._request.latest()
        )

    def _problem(self, run: Run, resume: UnfinishedRun | None) -> Notice | None:
        """Return the reason why a run makes no sense, or None."""
        request, options = self._request, run.options
        try:
            request.check()
        except AccessError as error:
            return Notice("error", "access", str(error))
        if self._current is not None:
            return Notice("error", "busy", "A run is already active on this conversation.")
        if resume is None and (told := run.nothing_to_answer()) is not None:
            return Notice("error", "empty", told)
        if run.streaming is not None and not request.model.streams:
            told = f"Model {request.model_name!r} does not stream; use run_to_stable_result()."
            return Notice("error", "no_streaming", told)
        if not options.process_tools and not run.aim.say and request.pending():
            told = "Tool calls are pending; set process_tools=True, or run them first."
            return Notice("error", "pending_tools", told)
        return None


def _check(options: Any, kind: type) -> None:
    if not isinstance(options, kind):
        raise InvalidTypeError(f"options must be {kind.__name__}, got {shown(options)}.")


def _tell_joined(run: Run, events: list[AnyEvent]) -> None:
    tell_joined(run.runs, run.holder, events)


def _tell(watching: list[Publish], events: list[AnyEvent]) -> None:
    for publish in watching:
        publish(events)


def _warner(run: Run, late: list[Notice]) -> Callable[[Any, BaseException], None]:
    """Tell what an observer raised: as an event, or among what comes too late for one."""

    def warn(observer: Any, error: BaseException) -> None:
        text = raised(observer, error)
        if run.under_way:
            run.warn("observer", text)
        else:
            _log.warning("%s", text)  # whoever was cancelled gets no Return
            late.append(Notice("warning", "observer", text))

    return warn
