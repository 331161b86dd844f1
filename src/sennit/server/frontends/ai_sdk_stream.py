"""The UI message stream of the AI SDK: the events of a run as chunks of one message.

start, then for each call of the model start-step, its texts, reasoning and tool calls, finish-step;
then finish, or error, or abort
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar
from uuid import UUID

from sennit.messages.content import ActionResponseContent
from sennit.messages.message import Message
from sennit.server.frontends.ai_sdk_messages import outcome
from sennit.server.frontends.chats import call_id_of
from sennit.server.frontends.page_stream import PageEvent, PageStream, TextKind
from sennit.turns.result import Return

_FINISH_REASONS = {"length": "length", "refusal": "content-filter"}
_FINISHED = ("stable", "length", "suspended", "max_turns", "budget", "loop")


class UIMessageStream(PageStream):
    """Encodes the events of one run; the first content names the message."""

    end: ClassVar[bytes] = b"data: [DONE]\n\n"

    def __init__(self, name: str | None = None) -> None:
        """`name` is the id of the message that the run continues, after an approval."""
        super().__init__()
        self._name, self._started = name, False
        self._step = False  # whether a step is open
        self._denied: set[str] = set()

    def turn_started(self) -> Iterator[PageEvent]:
        yield from self._close()
        if self._step:
            self._step = False
            yield {"type": "finish-step"}

    def _begin(self, message: UUID) -> Iterator[PageEvent]:
        """Yield the chunks that begin the message and a step, unless they have begun."""
        if not self._started:
            self._started = True
            yield {"type": "start", "messageId": self._name or str(message)}
        if not self._step:
            self._step = True
            yield {"type": "start-step"}

    def text_started(self, kind: TextKind, message: UUID) -> Iterator[PageEvent]:
        yield from self._begin(message)
        yield {"type": f"{kind}-start", "id": f"{message}-{kind}"}

    def text_added(self, kind: TextKind, message: UUID, text: str) -> Iterator[PageEvent]:
        yield {"type": f"{kind}-delta", "id": f"{message}-{kind}", "delta": text}

    def text_ended(self, kind: TextKind, message: UUID) -> Iterator[PageEvent]:
        yield {"type": f"{kind}-end", "id": f"{message}-{kind}"}

    def tool_called(self, message: Message) -> Iterator[PageEvent]:
        yield from self._begin(message.id)
        content: Any = message.content
        call = {"toolCallId": call_id_of(message), "toolName": content.function or ""}
        yield {"type": "tool-input-start", **call}
        yield {"type": "tool-input-available", **call, "input": content.arguments or {}}

    def approval_required(self, message: Message) -> Iterator[PageEvent]:
        yield from self._begin(message.id)
        call_id = call_id_of(message)
        yield {"type": "tool-approval-request", "approvalId": call_id, "toolCallId": call_id}

    def denied(self, message: Message) -> Iterator[PageEvent]:
        self._denied.add(call_id_of(message))
        yield from self._begin(message.id)
        yield {"type": "tool-output-denied", "toolCallId": call_id_of(message)}

    def tool_completed(self, message: Message) -> Iterator[PageEvent]:
        content = message.content
        assert isinstance(content, ActionResponseContent)
        call_id = content.request_id or ""
        if call_id in self._denied:
            return
        yield from self._begin(message.id)
        ended = outcome(message)
        yield {"type": f"tool-{ended.pop('state')}", "toolCallId": call_id, **ended}

    def run_ended(self, result: Return) -> Iterator[PageEvent]:
        yield from self.turn_started()  # ends the step
        if not self._started:
            yield {"type": "start"}
        reason = result.stop_reason
        if reason == "cancelled":
            yield {"type": "abort"}
        elif reason in _FINISHED:
            finish = _FINISH_REASONS.get(result.metrics.finish_reason or "", "stop")
            yield {
                "type": "finish",
                "finishReason": "tool-calls" if reason == "suspended" else finish,
            }
        else:
            yield {"type": "error", "errorText": result.notices[-1].text}
