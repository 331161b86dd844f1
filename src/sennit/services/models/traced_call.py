"""Model calls with telemetry.

With telemetry off, these are the model's own `aask` and `stream`, without overhead.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast
from uuid import UUID

from sennit import telemetry
from sennit.messages.codec import dumps
from sennit.services.models.protocol import Model
from sennit.services.models.reply import (
    Delta,
    Finished,
    Reply,
    ReplyAssembler,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    Usage,
)
from sennit.services.models.request import ModelRequest


def ask(
    model: Model, request: ModelRequest, conversation: UUID | None = None
) -> Coroutine[Any, Any, Reply]:
    """Call `Model.aask`, with telemetry if it is on."""
    return _traced_ask(model, request, conversation) if telemetry.on() else model.aask(request)


def stream(
    model: Model, request: ModelRequest, conversation: UUID | None = None
) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
    """Call `Model.stream`, with telemetry if it is on."""
    return _traced_stream(model, request, conversation) if telemetry.on() else model.stream(request)


async def _traced_ask(model: Model, request: ModelRequest, conversation: UUID | None) -> Reply:
    subject, attributes = _request_attributes(model, request, conversation)
    with telemetry.traced(telemetry.CHAT, subject, attributes) as span:
        reply = await model.aask(request)
        _record_reply(span, reply)
        return reply


@asynccontextmanager
async def _traced_stream(
    model: Model, request: ModelRequest, conversation: UUID | None
) -> AsyncGenerator[AsyncIterator[Delta]]:
    subject, attributes = _request_attributes(model, request, conversation)
    attributes[telemetry.STREAM] = True
    with telemetry.traced(telemetry.CHAT, subject, attributes) as span:
        async with model.stream(request) as deltas:
            yield _TracedDeltas(deltas, span)


class _TracedDeltas:
    """Deltas passed through unchanged; the whole reply is recorded at the end."""

    __slots__ = ("_assembly", "_next", "_span")

    def __init__(self, deltas: AsyncIterator[Delta], span: telemetry.Span) -> None:
        self._next, self._span, self._assembly = deltas.__anext__, span, ReplyAssembler()

    def __aiter__(self) -> _TracedDeltas:
        return self

    async def __anext__(self) -> Delta:
        delta = await self._next()
        self._assembly.feed(delta)
        if isinstance(delta, Finished):
            _record_reply(self._span, self._assembly.reply())
        return delta


def _request_attributes(
    model: Model, request: ModelRequest, conversation: UUID | None
) -> tuple[str, dict[str, Any]]:
    provider, name = telemetry.provider_and_model(model.name)
    params = request.params
    attributes: dict[str, Any] = {
        telemetry.PROVIDER: provider,
        telemetry.REQUEST_MODEL: name,
        telemetry.CONVERSATION: None if conversation is None else str(conversation),
        telemetry.OUTPUT_TYPE: None if request.output is None else "json",
        **{attribute: params.get(param) for param, attribute in telemetry.REQUEST_PARAMS.items()},
    }
    if telemetry.content():
        attributes[telemetry.INPUT] = _json(
            [_message_attribute(message) for message in request.messages]
        )
    return name, attributes


def _record_reply(span: telemetry.Span, reply: Reply) -> None:
    span.set_attributes(usage_attributes(reply.usage))
    span.set_attributes(
        {telemetry.RESPONSE_MODEL: reply.model, telemetry.FINISH_REASONS: [reply.finish]}
    )
    if reply.finish == "error":
        span.fail("broken_off")
    if telemetry.content():
        span.set_attributes({telemetry.OUTPUT: _json([_reply_attribute(reply)])})


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Return usage as telemetry attributes."""
    return {
        telemetry.INPUT_TOKENS: usage.input_tokens,
        telemetry.OUTPUT_TOKENS: usage.output_tokens,
        telemetry.CACHED_TOKENS: usage.cached_tokens or None,
        telemetry.REASONING_TOKENS: usage.reasoning_tokens or None,
        telemetry.COST: usage.cost,
    }


def _message_attribute(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat message in the form of the GenAI semantic conventions."""
    content = message.get("content")
    if message["role"] == "tool":
        parts = [_part("tool_call_response", id=message.get("tool_call_id"), response=content)]
    else:
        blocks = cast(
            "list[dict[str, Any]]", content if isinstance(content, list) else [{"text": content}]
        )
        parts = [_text(block) for block in blocks if content]
        parts += [
            _part("tool_call", id=call["id"], **call["function"])
            for call in message.get("tool_calls", ())
        ]
    return {"role": message["role"], "parts": parts}


def _reply_attribute(reply: Reply) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for item in reply.items:
        match item:
            case ReplyText():
                parts.append(_part("text", content=item.text))
            case ReplyReasoning():
                parts.append(_part("reasoning", content=item.text))
            case ReplyCall():
                call = {"id": item.id, "name": item.name, "arguments": item.arguments}
                parts.append(_part("tool_call", **call))
    return {"role": "assistant", "parts": parts, "finish_reason": reply.finish}


def _text(block: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in block:
        return _part("text", content=block["text"])
    return _part(str(block.get("type")), **{key: block[key] for key in block if key != "type"})


def _part(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


def _json(value: Any) -> str:
    return dumps(value).decode()
