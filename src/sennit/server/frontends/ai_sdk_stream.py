"""The UI message stream of the AI SDK: the events of a run as chunks of one message.

start, then for each call of the model start-step, its texts, reasoning and tool calls, finish-step;
then finish, or error, or abort
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias
from uuid import UUID

from sennit.messages.content import ActionResponseContent, AssistantResponseContent
from sennit.messages.message import Message
from sennit.server.frontends.ai_sdk_messages import outcome
from sennit.server.frontends.chats import call_id_of
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

Chunk: TypeAlias = dict[str, Any]
_FINISH_REASONS = {"length": "length", "refusal": "content-filter"}


class UIMessageStream:
    """Encodes the events of one run; the first content names the message."""

    end = b"data: [DONE]\n\n"

    def __init__(self, name: str | None = None) -> None:
        """`name` is the id of the message that the run continues, after an approval."""
        self._name, self._started = name, False
        self._step = False  # whether a step is open
        self._open: tuple[str, str] | None = None  # the kind and id of the open text
        self._streamed: set[UUID] = set()  # messages whose text was streamed
        self._denied: set[str] = set()

    def encode(self, event: AnyEvent) -> bytes:
        """Return the chunks of an event, encoded as server-sent events."""
        return b"".join(map(sse_event, self._chunks(event)))

    def _chunks(self, event: AnyEvent) -> Iterator[Chunk]:
        match event:
            case TurnStarted():
                yield from self._end_step()
            case TextAdded():
                yield from self._text("text", event.message_id, event.text)
            case ReasoningAdded():
                yield from self._text("reasoning", event.message_id, event.text)
            case DraftDropped():
                yield from self._close()
            case MessageCompleted(message=message):
                yield from self._completed(message)
            case ToolCalled(message=message):
                yield from self._tool_call(message)
            case ApprovalRequired(message=message):
                call_id = call_id_of(message)
                yield from self._begin(message.id)
                yield {
                    "type": "tool-approval-request",
                    "approvalId": call_id,
                    "toolCallId": call_id,
                }
            case ApprovalDecided(message=message, approved=False):
                self._denied.add(call_id_of(message))
                yield from self._begin(message.id)
                yield {"type": "tool-output-denied", "toolCallId": call_id_of(message)}
            case ToolCompleted(message=message):
                yield from self._tool_result(message)
            case RunEnded(result=result):
                yield from self._end(result)
            case _:
                pass

    def _begin(self, message: UUID) -> Iterator[Chunk]:
        """Yield the chunks that begin the message and a step, unless they have begun."""
        if not self._started:
            self._started = True
            yield {"type": "start", "messageId": self._name or str(message)}
        if not self._step:
            self._step = True
            yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Chunk]:
        yield from self._close()
        if self._step:
            self._step = False
            yield {"type": "finish-step"}

    def _text(self, kind: str, message: UUID, text: str) -> Iterator[Chunk]:
        yield from self._begin(message)
        name = f"{message}-{kind}"
        if self._open != (kind, name):
            yield from self._close()
            self._open = (kind, name)
            yield {"type": f"{kind}-start", "id": name}
        self._streamed.add(message)
        yield {"type": f"{kind}-delta", "id": name, "delta": text}

    def _close(self) -> Iterator[Chunk]:
        if self._open is not None:
            kind, name = self._open
            self._open = None
            yield {"type": f"{kind}-end", "id": name}

    def _completed(self, message: Message) -> Iterator[Chunk]:
        content = message.content
        if isinstance(content, AssistantResponseContent) and message.id not in self._streamed:
            if content.reasoning:
                yield from self._text("reasoning", message.id, content.reasoning)
            if content.words:
                yield from self._text("text", message.id, content.words)
        yield from self._close()

    def _tool_call(self, message: Message) -> Iterator[Chunk]:
        yield from self._close()
        yield from self._begin(message.id)
        content: Any = message.content
        call = {"toolCallId": call_id_of(message), "toolName": content.function or ""}
        yield {"type": "tool-input-start", **call}
        yield {"type": "tool-input-available", **call, "input": content.arguments or {}}

    def _tool_result(self, message: Message) -> Iterator[Chunk]:
        content = message.content
        assert isinstance(content, ActionResponseContent)
        call_id = content.request_id or ""
        if call_id in self._denied:
            return
        yield from self._begin(message.id)
        ended = outcome(message)
        yield {"type": f"tool-{ended.pop('state')}", "toolCallId": call_id, **ended}

    def _end(self, result: Return) -> Iterator[Chunk]:
        yield from self._end_step()
        if not self._started:
            yield {"type": "start"}
        reason = result.stop_reason
        if reason == "cancelled":
            yield {"type": "abort"}
        elif reason in ("stable", "length", "suspended", "max_turns", "budget", "loop"):
            finish = _FINISH_REASONS.get(result.metrics.finish_reason or "", "stop")
            if reason == "suspended":
                finish = "tool-calls"
            yield {"type": "finish", "finishReason": finish}
        else:
            yield {"type": "error", "errorText": result.notices[-1].text}
