"""The events of AG-UI: those of a run, with the ids of our messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias
from uuid import UUID

from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import tool_text
from sennit.server.frontends.chats import call_id_of
from sennit.server.http.event_stream import sse_event
from sennit.turns.events import (
    AnyEvent,
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

AGUIEvent: TypeAlias = dict[str, Any]
REASONING_SUFFIX = "-reasoning"
"""The end of the id of a reasoning message; before it is the id of the text."""
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


class AGUIEvents:
    """Encodes the events of one run; the first text or call names the answer."""

    end = b""

    def __init__(self, thread: str, run: str | None = None) -> None:
        """`run` is the id that the page gave the run; without it, it gets one."""
        self._ids = {"threadId": thread, "runId": run or str(new_id())}
        self._started = False
        self._open: tuple[str, str] | None = None  # the kind and id of the open text
        self._streamed: set[UUID] = set()  # messages whose text was streamed
        self._parent: UUID | None = None  # the first text or call of the current call of the model
        self._interrupts: list[dict[str, Any]] = []

    def encode(self, event: AnyEvent) -> bytes:
        """Return the events for one of ours, encoded as server-sent events."""
        events = list(self._convert(event))
        if not self._started:
            self._started = True
            events.insert(0, {"type": "RUN_STARTED", **self._ids})
        return b"".join(map(sse_event, events))

    def _convert(self, event: AnyEvent) -> Iterator[AGUIEvent]:
        match event:
            case TurnStarted():
                self._parent = None
            case TextAdded():
                yield from self._text("TEXT_MESSAGE", event.message_id, event.text)
            case ReasoningAdded():
                yield from self._text("REASONING_MESSAGE", event.message_id, event.text)
            case DraftDropped():
                yield from self._close()
            case MessageCompleted(message=message):
                yield from self._completed(message)
            case ToolCalled(message=message):
                yield from self._tool_call(message)
            case ApprovalRequired(message=message):
                self._interrupts.append(_interrupt(message))
            case ToolCompleted(message=message):
                yield from self._tool_result(message)
            case RunEnded(result=result):
                yield from self._close()
                yield self._end(result)
            case _:
                pass

    def _text(self, kind: str, message: UUID, text: str) -> Iterator[AGUIEvent]:
        is_text = kind == "TEXT_MESSAGE"
        name = str(message) if is_text else f"{message}{REASONING_SUFFIX}"
        if self._open != (kind, name):
            yield from self._close()
            self._open = (kind, name)
            if not is_text:
                yield {"type": "REASONING_START", "messageId": name}
            role = "assistant" if is_text else "reasoning"
            yield {"type": f"{kind}_START", "messageId": name, "role": role}
        self._streamed.add(message)
        if is_text and self._parent is None:
            self._parent = message
        yield {"type": f"{kind}_CONTENT", "messageId": name, "delta": text}

    def _close(self) -> Iterator[AGUIEvent]:
        if self._open is None:
            return
        kind, name = self._open
        self._open = None
        yield {"type": f"{kind}_END", "messageId": name}
        if kind == "REASONING_MESSAGE":
            yield {"type": "REASONING_END", "messageId": name}

    def _completed(self, message: Message) -> Iterator[AGUIEvent]:
        content = message.content
        if isinstance(content, AssistantResponseContent) and message.id not in self._streamed:
            if content.reasoning:
                yield from self._text("REASONING_MESSAGE", message.id, content.reasoning)
            if content.words:
                yield from self._text("TEXT_MESSAGE", message.id, content.words)
        yield from self._close()

    def _tool_call(self, message: Message) -> Iterator[AGUIEvent]:
        yield from self._close()
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

    def _tool_result(self, message: Message) -> Iterator[AGUIEvent]:
        content: Any = message.content
        yield {
            "type": "TOOL_CALL_RESULT",
            "messageId": str(message.id),
            "toolCallId": content.request_id or "",
            "content": tool_text(content),
            "role": "tool",
        }

    def _end(self, result: Return) -> AGUIEvent:
        reason = result.stop_reason
        finished: AGUIEvent = {"type": "RUN_FINISHED", **self._ids}
        if self._interrupts and reason == "suspended":
            return {**finished, "outcome": {"type": "interrupt", "interrupts": self._interrupts}}
        if reason == "cancelled":
            return {**finished, "outcome": {"type": "cancelled"}}
        if reason in ("error", "invalid"):
            notice = result.notices[-1]
            return {"type": "RUN_ERROR", "message": notice.text, "code": notice.code}
        return {**finished, "outcome": {"type": "success"}}


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
