"""The events of AG-UI: those of a run, with the ids of our messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import tool_text
from sennit.server.frontends.chats import call_id_of
from sennit.server.frontends.page_stream import PageEvent, PageStream, TextKind
from sennit.server.http.event_stream import sse_event
from sennit.turns.events import AnyEvent
from sennit.turns.result import Return

REASONING_SUFFIX = "-reasoning"
"""The end of the id of a reasoning message; before it is the id of the text."""
_KINDS = {"text": "TEXT_MESSAGE", "reasoning": "REASONING_MESSAGE"}
_ROLES = {"text": "assistant", "reasoning": "reasoning"}
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


class AGUIEvents(PageStream):
    """Encodes the events of one run; the first text or call names the answer."""

    def __init__(self, thread: str, run: str | None = None) -> None:
        """`run` is the id that the page gave the run; without it, it gets one."""
        super().__init__()
        self._ids = {"threadId": thread, "runId": run or str(new_id())}
        self._started = False
        self._parent: UUID | None = None  # the first text or call of the current call of the model
        self._interrupts: list[PageEvent] = []

    def encode(self, event: AnyEvent) -> bytes:
        """Return the events for one of ours, after the start of the run, encoded."""
        encoded = super().encode(event)
        if self._started:
            return encoded
        self._started = True
        return sse_event({"type": "RUN_STARTED", **self._ids}) + encoded

    def turn_started(self) -> tuple[()]:
        self._parent = None
        return ()

    def text_started(self, kind: TextKind, message: UUID) -> Iterator[PageEvent]:
        name = _text_name(kind, message)
        if kind == "reasoning":
            yield {"type": "REASONING_START", "messageId": name}
        elif self._parent is None:
            self._parent = message
        yield {"type": f"{_KINDS[kind]}_START", "messageId": name, "role": _ROLES[kind]}

    def text_added(self, kind: TextKind, message: UUID, text: str) -> Iterator[PageEvent]:
        name = _text_name(kind, message)
        yield {"type": f"{_KINDS[kind]}_CONTENT", "messageId": name, "delta": text}

    def text_ended(self, kind: TextKind, message: UUID) -> Iterator[PageEvent]:
        name = _text_name(kind, message)
        yield {"type": f"{_KINDS[kind]}_END", "messageId": name}
        if kind == "reasoning":
            yield {"type": "REASONING_END", "messageId": name}

    def tool_called(self, message: Message) -> Iterator[PageEvent]:
        content: Any = message.content
        call = {"toolCallId": call_id_of(message)}
        self._parent = self._parent or message.id
        yield {
            "type": "TOOL_CALL_START",
            **call,
            "toolCallName": content.function or "",
            "parentMessageId": str(self._parent),
        }
        arguments = dumps(content.arguments or {}).decode()
        yield {"type": "TOOL_CALL_ARGS", **call, "delta": arguments}
        yield {"type": "TOOL_CALL_END", **call}

    def approval_required(self, message: Message) -> tuple[()]:
        self._interrupts.append(_interrupt(message))
        return ()

    def tool_completed(self, message: Message) -> Iterator[PageEvent]:
        content: Any = message.content
        yield {
            "type": "TOOL_CALL_RESULT",
            "messageId": str(message.id),
            "toolCallId": content.request_id or "",
            "content": tool_text(content),
            "role": "tool",
        }

    def run_ended(self, result: Return) -> Iterator[PageEvent]:
        reason = result.stop_reason
        if reason in ("error", "invalid"):
            notice = result.notices[-1]
            yield {"type": "RUN_ERROR", "message": notice.text, "code": notice.code}
            return
        outcome: PageEvent = {"type": "cancelled" if reason == "cancelled" else "success"}
        if self._interrupts and reason == "suspended":
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}


def _text_name(kind: TextKind, message: UUID) -> str:
    return f"{message}{REASONING_SUFFIX}" if kind == "reasoning" else str(message)


def _interrupt(call: Message) -> dict[str, Any]:
    content: Any = call.content
    call_id = call_id_of(call)
    return {
        "id": call_id,
        "reason": "tool_approval",
        "message": f"Run {content.function} with {dumps(content.arguments or {}).decode()}?",
        "toolCallId": call_id,
        "responseSchema": _APPROVAL_SCHEMA,
    }
