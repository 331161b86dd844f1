"""Model calls with telemetry.

If nobody watches, it is the model's own `ask` and `stream`, with nothing in between.
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
    """The whole reply, as `Model.ask` gives it."""
    return _asked(model, request, conversation) if telemetry.on() else model.ask(request)


def stream(
    model: Model, request: ModelRequest, conversation: UUID | None = None
) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
    """The reply as deltas, as `Model.stream` gives them."""
    return _streamed(model, request, conversation) if telemetry.on() else model.stream(request)


async def _asked(model: Model, request: ModelRequest, conversation: UUID | None) -> Reply:
    subject, notes = _notes(model, request, conversation)
    with telemetry.watching(telemetry.CHAT, subject, notes) as watched:
        reply = await model.ask(request)
        _note_reply(watched, reply)
        return reply


@asynccontextmanager
async def _streamed(
    model: Model, request: ModelRequest, conversation: UUID | None
) -> AsyncGenerator[AsyncIterator[Delta]]:
    subject, notes = _notes(model, request, conversation)
    notes[telemetry.STREAM] = True
    with telemetry.watching(telemetry.CHAT, subject, notes) as watched:
        async with model.stream(request) as deltas:
            yield _Heard(deltas, watched)


class _Heard:
    """Deltas passed on unchanged; the whole reply is noted at the end."""

    __slots__ = ("_assembly", "_next", "_watched")

    def __init__(self, deltas: AsyncIterator[Delta], watched: telemetry.Span) -> None:
        self._next, self._watched, self._assembly = deltas.__anext__, watched, ReplyAssembler()

    def __aiter__(self) -> _Heard:
        return self

    async def __anext__(self) -> Delta:
        delta = await self._next()
        self._assembly.feed(delta)
        if isinstance(delta, Finished):
            _note_reply(self._watched, self._assembly.reply())
        return delta


def _notes(
    model: Model, request: ModelRequest, conversation: UUID | None
) -> tuple[str, dict[str, Any]]:
    provider, name = telemetry.provider_and_model(model.name)
    given = request.params
    notes: dict[str, Any] = {
        telemetry.PROVIDER: provider,
        telemetry.REQUEST_MODEL: name,
        telemetry.CONVERSATION: None if conversation is None else str(conversation),
        telemetry.OUTPUT_TYPE: None if request.output is None else "json",
        **{told: given.get(param) for param, told in telemetry.REQUEST_PARAMS.items()},
    }
    if telemetry.content():
        notes[telemetry.INPUT] = _json([_told(message) for message in request.messages])
    return name, notes


def _note_reply(watched: telemetry.Span, reply: Reply) -> None:
    watched.note(usage_notes(reply.usage))
    watched.note({telemetry.RESPONSE_MODEL: reply.model, telemetry.FINISH_REASONS: [reply.finish]})
    if reply.finish == "error":
        watched.fail("broken_off")
    if telemetry.content():
        watched.note({telemetry.OUTPUT: _json([_reply_told(reply)])})


def usage_notes(usage: Usage) -> dict[str, Any]:
    """Return usage as telemetry attributes."""
    return {
        telemetry.INPUT_TOKENS: usage.input_tokens,
        telemetry.OUTPUT_TOKENS: usage.output_tokens,
        telemetry.CACHED_TOKENS: usage.cached_tokens or None,
        telemetry.REASONING_TOKENS: usage.reasoning_tokens or None,
        telemetry.COST: usage.cost,
    }


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message in the form the conventions have for it."""
    said = message.get("content")
    if message["role"] == "tool":
        parts = [_part("tool_call_response", id=message.get("tool_call_id"), response=said)]
    else:
        blocks = cast("list[dict[str, Any]]", said if isinstance(said, list) else [{"text": said}])
        parts = [_text(block) for block in blocks if said]
        parts += [
            _part("tool_call", id=call["id"], **call["function"])
            for call in message.get("tool_calls", ())
        ]
    return {"role": message["role"], "parts": parts}


def _reply_told(reply: Reply) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for item in reply.items:
        match item:
            case ReplyText():
                parts.append(_part("text", content=item.text))
            case ReplyReasoning():
                parts.append(_part("reasoning", content=item.text))
            case ReplyCall():
                called = {"id": item.id, "name": item.name, "arguments": item.arguments}
                parts.append(_part("tool_call", **called))
    return {"role": "assistant", "parts": parts, "finish_reason": reply.finish}


def _text(block: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in block:
        return _part("text", content=block["text"])
    return _part(str(block.get("type")), **{key: block[key] for key in block if key != "type"})


def _part(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": type, **fields}


def _json(value: Any) -> str:
    return dumps(value).decode()
