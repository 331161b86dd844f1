"""Observers of a run, whose errors become warnings.

Each observer has a task of its own: a slow one delays neither the run nor the others. The errors of
an observer become warnings: events while the run is active, and always notices of the Return. At
its end a run waits a few seconds for its observers.
"""

from __future__ import annotations

from asyncio import CancelledError, Queue, Task, create_task, wait
from collections.abc import Callable, Iterable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from sennit.errors import RunError
from sennit.finish_uncancelled import is_cancelling
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
)
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.turns.events import (
    AnyEvent,
    HistoryReplaced,
    MessageCompleted,
    MessageInterjected,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
    ToolCompleted,
)

if TYPE_CHECKING:
    from sennit.turns.request import Request
    from sennit.turns.result import Return

_FINISH_TIMEOUT_SECONDS = 5.0  # seconds an observer may take after the run has ended


class ConversationObserver:
    """An observer of runs: override the methods you need. Each may be async.

    `on_final` is called exactly once per run, whatever its outcome; `on_error`, if at all, just
    before it.
    """

    def on_start(self, request: Request) -> object:
        """Handle the start of a run."""

    def on_delta(self, interaction: Message) -> object:
        """Handle an increment; it has the id of the message that it will be part of."""

    def on_interaction_completed(self, interaction: Message) -> object:
        """Handle a message that was added to the branch."""

    def on_tool_call(self, tool_call: Message) -> object:
        """Handle a tool call of the model."""

    def on_tool_result(self, tool_result: Message) -> object:
        """Handle the result of a tool call, which may be an error."""

    def on_final(self, result: Return) -> object:
        """Handle the end of a run."""

    def on_error(self, error: Exception) -> object:
        """Handle the error of a run that failed."""


class Observers:
    """The observers of one run."""

    def __init__(
        self,
        observers: Iterable[Any],
        request: Request,
        warn: Callable[[Any, BaseException], None],
    ) -> None:
        self._request, self._warn = request, warn
        self._workers: list[tuple[Any, Queue[AnyEvent | None], Task[None]]] = []
        for observer in observers:
            queue: Queue[AnyEvent | None] = Queue()
            self._workers.append((observer, queue, create_task(self._deliver(observer, queue))))

    def notify(self, events: list[AnyEvent]) -> None:
        """Pass events to all observers."""
        for _, queue, _ in self._workers:
            for event in events:
                queue.put_nowait(event)

    async def finish(self) -> None:
        """Wait until the observers have handled all events; cancel those that take too long."""
        for _, queue, _ in self._workers:
            queue.put_nowait(None)
        tasks = {task for _, _, task in self._workers}
        if not tasks:
            return
        _, late = await wait(tasks, timeout=_FINISH_TIMEOUT_SECONDS)
        for task in late:
            task.cancel()

    async def _deliver(self, observer: Any, queue: Queue[AnyEvent | None]) -> None:
        while (event := await queue.get()) is not None:
            for name, argument in _callbacks(event, self._request):
                try:
                    result = getattr(observer, name, _ignore)(argument)
                    if isawaitable(result):
                        await result
                except CancelledError as error:
                    if is_cancelling():
                        raise
                    self._warn(observer, error)
                except Exception as error:
                    self._warn(observer, error)


def observer_warning(observer: Any, error: BaseException) -> str:
    """Return the warning about an observer that raised."""
    return f"{type(observer).__name__} raised {type(error).__name__}: {error}"


def _ignore(_argument: Any) -> None:
    """Do nothing, for an observer without this method."""


_METHODS = {
    ActionRequestContent.kind: "on_tool_call",
    ActionResponseContent.kind: "on_tool_result",
}


def _callbacks(event: AnyEvent, request: Request) -> Iterable[tuple[str, Any]]:
    """Yield the observer methods for an event, with their argument."""
    if isinstance(event, TextAdded | ReasoningAdded):
        yield "on_delta", delta_message(event)
    elif isinstance(event, MessageCompleted | HistoryReplaced):
        yield "on_interaction_completed", event.message
    elif isinstance(event, ToolCalled):
        yield "on_tool_call", event.message
    elif isinstance(event, ToolCompleted):
        yield "on_tool_result", event.message
    elif isinstance(event, MessageInterjected):
        yield _METHODS.get(event.message.content.kind, "on_interaction_completed"), event.message
    elif isinstance(event, RunStarted):
        yield "on_start", request
    elif isinstance(event, RunEnded):
        try:
            event.result.raise_for_error()
        except RunError as error:
            yield "on_error", event.result.error or error
        yield "on_final", event.result


def delta_message(event: TextAdded | ReasoningAdded) -> Message:
    """Return the message of an increment, with the id of the complete message."""
    is_reasoning = isinstance(event, ReasoningAdded)
    content = AssistantResponseContent(
        assistant_response=Unset if is_reasoning else event.text,
        reasoning=event.text if is_reasoning else Unset,
    )
    return Message(content, id=event.message_id)
