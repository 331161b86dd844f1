"""The events of a run as a page reads them: one walk over our events for all protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal, TypeAlias
from uuid import UUID

from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message
from sennit.server.http.event_stream import sse_event
from sennit.turns.events import (
    AnyEvent,
    ApprovalDecided,
    ApprovalRequired,
    DraftDropped,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    TextAdded,
    ToolCalled,
    ToolCompleted,
    TurnStarted,
)
from sennit.turns.result import Return

PageEvent: TypeAlias = dict[str, Any]
TextKind: TypeAlias = Literal["text", "reasoning"]


class PageStream(ABC):
    """Encodes the events of one run; subclasses yield the events of their protocol."""

    end: ClassVar[bytes] = b""
    """The end of the stream."""

    def __init__(self) -> None:
        self._open: tuple[TextKind, UUID] | None = None  # the text that has not ended
        self._streamed: set[UUID] = set()  # messages whose text was streamed

    def encode(self, event: AnyEvent) -> bytes:
        """Return the events for one of ours, encoded as server-sent events."""
        return b"".join(map(sse_event, self._convert(event)))

    def _convert(self, event: AnyEvent) -> Iterator[PageEvent]:
        match event:
            case TurnStarted():
                yield from self.turn_started()
            case TextAdded():
                yield from self._add("text", event.message_id, event.text)
            case ReasoningAdded():
                yield from self._add("reasoning", event.message_id, event.text)
            case DraftDropped():
                yield from self._close()
            case MessageCompleted(message=message):
                yield from self._completed(message)
            case ToolCalled(message=message):
                yield from self._close()
                yield from self.tool_called(message)
            case ApprovalRequired(message=message):
                yield from self.approval_required(message)
            case ApprovalDecided(message=message, approved=False):
                yield from self.denied(message)
            case ToolCompleted(message=message):
                yield from self.tool_completed(message)
            case RunEnded(result=result):
                yield from self._close()
                yield from self.run_ended(result)
            case _:
                pass

    def _add(self, kind: TextKind, message: UUID, text: str) -> Iterator[PageEvent]:
        self._streamed.add(message)
        if self._open != (kind, message):
            yield from self._close()
            self._open = (kind, message)
            yield from self.text_started(kind, message)
        yield from self.text_added(kind, message, text)

    def _close(self) -> Iterator[PageEvent]:
        if self._open is not None:
            opened, self._open = self._open, None
            yield from self.text_ended(*opened)

    def _completed(self, message: Message) -> Iterator[PageEvent]:
        content = message.content
        if isinstance(content, AssistantResponseContent) and message.id not in self._streamed:
            if content.reasoning:
                yield from self._add("reasoning", message.id, content.reasoning)
            if content.words:
                yield from self._add("text", message.id, content.words)
        yield from self._close()

    @abstractmethod
    def turn_started(self) -> Iterable[PageEvent]:
        """Yield the events for the beginning of a call of the model."""

    @abstractmethod
    def text_started(self, kind: TextKind, message: UUID) -> Iterable[PageEvent]:
        """Yield the events for the beginning of a text."""

    @abstractmethod
    def text_added(self, kind: TextKind, message: UUID, text: str) -> Iterable[PageEvent]:
        """Yield the events for an increment of a text."""

    @abstractmethod
    def text_ended(self, kind: TextKind, message: UUID) -> Iterable[PageEvent]:
        """Yield the events for the end of a text."""

    @abstractmethod
    def tool_called(self, message: Message) -> Iterable[PageEvent]:
        """Yield the events for a tool call."""

    @abstractmethod
    def approval_required(self, message: Message) -> Iterable[PageEvent]:
        """Yield the events for a call that waits for approval."""

    def denied(self, message: Message) -> Iterable[PageEvent]:
        """Yield the events for a call that was denied; its result follows."""
        del message
        return ()

    @abstractmethod
    def tool_completed(self, message: Message) -> Iterable[PageEvent]:
        """Yield the events for the result of a tool call."""

    @abstractmethod
    def run_ended(self, result: Return) -> Iterable[PageEvent]:
        """Yield the events for the end of the run."""
