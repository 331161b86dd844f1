"""Messages of Anthropic's API, whole or as stream events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sennit.messages.codec import dumps
from sennit.server.anthropic.message_schemas import MessagesRequest
from sennit.server.anthropic.translate import (
    answer_blocks,
    signature_of,
    text_block,
    thinking_block,
    tool_use_block,
)
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import sse_event
from sennit.server.openai.translate import ModelAnswer
from sennit.server.openai.turn import raise_for_failure
from sennit.services.models.reply import Usage
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    TextAdded,
    ToolCalled,
)

MESSAGE_PREFIX = "msg_"
"""The prefix of the ids of messages."""
_STOP_REASONS = {"length": "max_tokens", "refusal": "refusal"}


def stop_reason(reason: str | None, calls: bool) -> str:
    """Return the finish reason as the Messages API names it."""
    return _STOP_REASONS.get(reason or "", "tool_use" if calls else "end_turn")


def usage(used: Usage) -> dict[str, Any]:
    """Return token counts as the Messages API has them: those read from a cache count apart."""
    return {
        "input_tokens": used.input_tokens - used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
    }


class MessageEvents:
    """The format of a message, whole or as events.

    message_start, then for each block content_block_start, its deltas and content_block_stop; then
    message_delta and message_stop
    """

    end = b""

    def __init__(self, body: MessagesRequest, name: str | None = None) -> None:
        """`name` is the id of the message; without it, it has the id of the first of the answer."""
        self._model, self._shows_thinking = body.model, body.shows_thinking
        self._name, self._started = name, False
        self._count = 0  # of blocks begun
        self._open: tuple[str, str] | None = None  # the type and message of the current block
        self._calls = False

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an answer as a message object."""
        return self._message(
            answer.messages[0].id.hex if answer.messages else "0",
            content=answer_blocks(answer, thinking=self._shows_thinking),
            stop_reason=stop_reason(answer.finish_reason, bool(answer.calls)),
            usage=usage(answer.usage),
        )

    def encode(self, event: AnyEvent) -> Iterator[bytes]:
        """Yield the events of one of ours, encoded as server-sent events."""
        return (sse_event(item, item["type"]) for item in self.convert(event))

    def encode_error(self, problem: HTTPError) -> bytes:
        """Return the encoded event that ends a failed answer."""
        return sse_event(problem.to_anthropic(), "error")

    def convert(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """Yield the events of one of ours; raise HTTPError if the run failed."""
        if isinstance(event, TextAdded):
            yield from self._start(event.message_id.hex)
            yield from self._open_block("text", event.message_id.hex, text_block(""))
            yield self._delta("text_delta", text=event.text)
        elif isinstance(event, ReasoningAdded):
            yield from self._start(event.message_id.hex)
            if self._shows_thinking:
                yield from self._open_block(
                    "thinking", event.message_id.hex, thinking_block("", "")
                )
                yield self._delta("thinking_delta", thinking=event.text)
        elif isinstance(event, ToolCalled):
            yield from self._start(event.message.id.hex)
            yield from self._tool_use(event)
        elif isinstance(event, MessageCompleted):
            yield from self._close()
        elif isinstance(event, RunEnded):
            yield from self._close()
            metrics = raise_for_failure(event.result).metrics
            yield from self._start("0")  # if the model sent nothing
            yield from self._end(metrics.finish_reason, metrics.usage)

    def _start(self, name: str) -> Iterator[dict[str, Any]]:
        if self._started:
            return
        self._started = True
        message = self._message(name, content=[], stop_reason=None, usage=usage(Usage()))
        yield {"type": "message_start", "message": message}
        yield {"type": "ping"}

    def _end(self, finish: str | None, used: Usage) -> Iterator[dict[str, Any]]:
        delta = {"stop_reason": stop_reason(finish, self._calls), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": usage(used)}
        yield {"type": "message_stop"}

    def _message(self, name: str, **fields: Any) -> dict[str, Any]:
        name = self._name or f"{MESSAGE_PREFIX}{name}"
        head = {"id": name, "type": "message", "role": "assistant", "model": self._model}
        return {**head, "stop_sequence": None, **fields}

    def _open_block(
        self, kind: str, message: str, block: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if self._open == (kind, message):
            return
        yield from self._close()
        self._open = (kind, message)
        self._count += 1
        yield self._in_block("content_block_start", content_block=block)

    def _close(self) -> Iterator[dict[str, Any]]:
        """Yield the events that end the current block, if there is one."""
        if self._open is None:
            return
        kind, message = self._open
        self._open = None
        if kind == "thinking":
            yield self._delta("signature_delta", signature=signature_of(message))
        yield self._in_block("content_block_stop")

    def _tool_use(self, event: ToolCalled) -> Iterator[dict[str, Any]]:
        self._calls = True
        block = tool_use_block(event.message)
        yield from self._open_block("tool_use", event.message.id.hex, {**block, "input": {}})
        yield self._delta("input_json_delta", partial_json=dumps(block["input"]).decode())
        yield from self._close()

    def _delta(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self._in_block("content_block_delta", delta={"type": kind, **fields})

    def _in_block(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "index": self._count - 1, **fields}
