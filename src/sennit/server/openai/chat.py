"""/v1/chat/completions and /v1/models."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from sennit import clock
from sennit.messages.message import Message
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import sse_event
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat_schemas import ChatCompletionRequest, refuse_unsupported
from sennit.server.openai.locate import BranchLocation
from sennit.server.openai.requests import answer_history
from sennit.server.openai.stored_completions import PREFIX, find_completion
from sennit.server.openai.stored_responses import response_id
from sennit.server.openai.translate import ClientToolCall as ToolCall
from sennit.server.openai.translate import ModelAnswer, parse_chat
from sennit.server.openai.turn import find_model, raise_for_failure
from sennit.services.models.reply import Usage
from sennit.turns.events import AnyEvent, ReasoningAdded, RunEnded, TextAdded, ToolCalled

routes: Final = Routes()

_FINISH_REASONS = {"length": "length", "refusal": "content_filter"}


@routes.post("/v1/chat/completions", scope="run")
async def complete(request: HTTPRequest, body: ChatCompletionRequest) -> Response:
    """Answer a conversation, as OpenAI's chat completions do."""
    refuse_unsupported(body)
    request.check_count(len(body.messages), request.limits.items, "messages")
    sent = await request.build(len(body.messages), parse_chat, body.messages)
    return await answer_history(request, body, sent, partial(Chunks, body))


def completion(
    name: str, model: str, created: int, answer: ModelAnswer, custom: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return an answer as a chat completion object; `custom` are the names of custom tools."""
    calls = answer.calls
    text = answer.text or (None if calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if calls:
        message["tool_calls"] = [_call(call, custom) for call in calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(answer.finish_reason, bool(calls)),
    }
    return {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage(answer.usage),
    }


def finish_reason(reason: str | None, calls: bool) -> str:
    """Return the finish reason as chat completions name it."""
    return _FINISH_REASONS.get(reason or "", "tool_calls" if calls else "stop")


def usage(used: Usage) -> dict[str, Any]:
    """Return token counts as a chat completion has them."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def _call(call: ToolCall, custom: frozenset[str]) -> dict[str, Any]:
    if call.name in custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.input}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _now() -> int:
    return clock.now_us() // 1_000_000


class Chunks:
    """The format of a chat completion, whole or as chunks."""

    end = b"data: [DONE]\n\n"

    def __init__(self, body: ChatCompletionRequest, location: BranchLocation) -> None:
        options = body.stream_options
        self._session = location.session.id if location.is_stored else None
        self._include_usage = options is not None and bool(options.include_usage)
        self._head: dict[str, Any] = {
            "object": "chat.completion.chunk",
            "created": _now(),
            "model": body.model,
        }
        self._custom = body.custom_tools
        self._completion_id: str | None = None
        self._calls = 0

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an answer as a chat completion object."""
        name = self._name(answer.messages[0].id if answer.messages else None)
        head = self._head
        return completion(name, head["model"], head["created"], answer, self._custom)

    def encode(self, event: AnyEvent) -> Iterator[bytes]:
        """Return the chunks of an event, encoded as server-sent events."""
        return map(sse_event, self.convert(event))

    def encode_error(self, problem: HTTPError) -> bytes:
        """Return the event that ends a failed answer."""
        return sse_event(problem.to_dict())

    def convert(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """Yield the chunks of an event; raise HTTPError if the run failed."""
        if isinstance(event, TextAdded):
            yield from self._delta(event.message_id, {"content": event.text})
        elif isinstance(event, ReasoningAdded):
            yield from self._delta(event.message_id, {"reasoning_content": event.text})
        elif isinstance(event, ToolCalled):
            yield from self._tool_call(event.message)
        elif isinstance(event, RunEnded):
            result = raise_for_failure(event.result)
            yield from self._end(result.metrics.finish_reason, result.metrics.usage)

    def _name(self, message: UUID | None) -> str:
        """Return the id of a completion, by which it is found if it is stored."""
        if message is None or self._session is None:
            return f"{PREFIX}{0 if message is None else message.hex}"
        return response_id(self._session, message, PREFIX)

    def _delta(self, message: UUID | None, delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._completion_id is None:
            self._completion_id = self._name(message)
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        yield self._chunk(delta)

    def _tool_call(self, message: Message) -> Iterator[dict[str, Any]]:
        call = {"index": self._calls, **_call(ToolCall.of(message), self._custom)}
        self._calls += 1
        yield from self._delta(message.id, {"tool_calls": [call]})

    def _end(self, reason: str | None, used: Usage) -> Iterator[dict[str, Any]]:
        if self._completion_id is None:  # the model sent nothing
            yield from self._delta(None, {"content": ""})
        yield self._chunk({}, finish_reason(reason, self._calls > 0))
        if self._include_usage:
            yield {"id": self._completion_id, **self._head, "choices": [], "usage": usage(used)}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: dict[str, Any] = {"id": self._completion_id, **self._head, "choices": [choice]}
        return {**chunk, "usage": None} if self._include_usage else chunk


@routes.get("/v1/chat/completions/{completion}", scope="read")
async def retrieve(request: HTTPRequest) -> dict[str, Any]:
    """Read a stored chat completion.

    Raises HTTPError 404 if there is none.
    """
    name = request.path["completion"]
    stored = await find_completion(request.caller, name)
    first = stored.answer.messages[0]
    created, model = first.created_us // 1_000_000, stored.answer.model or ""
    metadata = stored.metadata
    return completion(name, model, created, stored.answer) | {"metadata": metadata}


class DeletedCompletion(ResponseModel):
    """The confirmation that a chat completion was deleted."""

    id: str
    object: str = "chat.completion.deleted"
    deleted: bool = True


@routes.delete("/v1/chat/completions/{completion}", scope="write")
async def delete(request: HTTPRequest) -> DeletedCompletion:
    """Erase a stored chat completion, with the messages that it answers."""
    name = request.path["completion"]
    stored = await find_completion(request.caller, name)
    await to_thread(stored.delete, request.caller)
    return DeletedCompletion(id=name)


class ModelObject(ResponseModel):
    """A model as OpenAI's and Anthropic's clients list it."""

    id: str
    display_name: str
    created: int = 0
    object: str = "model"
    owned_by: str = "sennit"
    type: str = "model"
    created_at: str = "1970-01-01T00:00:00Z"
    lifecycle: str = "active"

    @classmethod
    def of(cls, name: str) -> ModelObject:
        """Return the model with a name; when it was made is not known."""
        return cls(id=name, display_name=name)


class ModelList(ResponseModel):
    """The models of the server."""

    data: list[ModelObject]
    first_id: str | None
    last_id: str | None
    has_more: bool = False
    object: str = "list"


@routes.get("/v1/models", scope="read")
async def models(request: HTTPRequest) -> ModelList:
    """List the models, as OpenAI's and Anthropic's clients do."""
    names = list(request.server.models)
    first, last = (names[0], names[-1]) if names else (None, None)
    return ModelList(data=[ModelObject.of(name) for name in names], first_id=first, last_id=last)


@routes.get("/v1/models/{model}", scope="read")
async def model(request: HTTPRequest) -> ModelObject:
    """Read a model, as OpenAI's and Anthropic's clients do.

    Raises HTTPError 404 if there is none.
    """
    find_model(request.server, request.path["model"])
    return ModelObject.of(request.path["model"])
