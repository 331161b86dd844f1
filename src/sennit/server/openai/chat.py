"""/v1/chat/completions and /v1/models."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from typing import Any

from sennit import clock
from sennit.messages.message import Message
from sennit.server.http.disconnects import cancel_on_disconnect
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes, ok
from sennit.server.http.errors import PRIVATE, HTTPError
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat_schemas import (
    ChatCompletionRequest,
    checked_values,
    refuse_unsupported,
)
from sennit.server.openai.event_stream import DONE, ChunkStream, encode_events, sse_event
from sennit.server.openai.locate import BranchLocation, begin_unstored, locate, with_first_id
from sennit.server.openai.request_metadata import (
    IdempotentRequest,
    idempotent_request,
    named_session,
    stored_metadata,
    wants_memory,
)
from sennit.server.openai.stored_responses import locate_retry
from sennit.server.openai.translate import (
    ClientMessages,
    ModelAnswer,
    check_calls,
    client_tools,
    output_schema,
    parse_chat,
)
from sennit.server.openai.translate import ClientToolCall as ToolCall
from sennit.server.openai.turn import (
    TurnOptions,
    find_model,
    raise_for_failure,
    run_turn,
    stream_turn,
)
from sennit.services.models.reply import Usage
from sennit.turns.events import AnyEvent, ReasoningAdded, RunEnded, TextAdded, ToolCalled
from sennit.turns.result import Return

routes = Routes()

_FINISH_REASONS = {"length": "length", "refusal": "content_filter"}


@routes.post(
    "/v1/chat/completions",
    scope="run",
    summary="Answer a conversation, as OpenAI's chat completions do",
    body=ChatCompletionRequest,
    validation_status=400,
    answer=dict[str, Any],
)
async def complete(request: HTTPRequest) -> Response:
    """Answer a conversation, in one response or as a stream."""
    body: ChatCompletionRequest = request.body
    refuse_unsupported(body)
    streams = find_model(request.server, body.model).streams
    request.check_count(len(body.messages), request.limits.items, "messages")
    client_messages = await request.build(len(body.messages), parse_chat, body.messages)
    options, idempotent = _turn_options(request, body), idempotent_request(request)
    if body.stream:
        request.open_stream()
    async with AsyncExitStack() as stack:
        if idempotent is not None:
            await stack.enter_async_context(idempotent.lock)
        location = await _locate_or_answer(request, body, client_messages, idempotent)
        if isinstance(location, ModelAnswer):
            return _repeat(request, body, location)
        if not body.stream or not streams:
            location, result = await cancel_on_disconnect(
                request.receive, run_turn(location, options)
            )
            return _respond(request, body, answer_of(result, location), location_headers(location))
        pieces = encode_events(
            stream_turn(location, options), Chunks(body).encode, _encode_error, DONE
        )
        return ChunkStream(pieces, stack.pop_all(), request.limits, location_headers(location))


def _turn_options(request: HTTPRequest, body: ChatCompletionRequest) -> TurnOptions:
    functions = [] if body.tool_choice == "none" else [tool.function for tool in body.tools or ()]
    return TurnOptions(
        model=find_model(request.server, body.model),
        tools=tuple(client_tools(functions)),
        schema=output_schema(body.response_format),
        params=checked_values(body.params),
        use_memory=body.store is not False and wants_memory(request, body),
    )


async def _locate_or_answer(
    request: HTTPRequest,
    body: ChatCompletionRequest,
    sent: ClientMessages,
    idempotent: IdempotentRequest | None,
) -> BranchLocation | ModelAnswer:
    """Return the location to continue at, or the stored answer to an idempotent request."""
    named, notes = named_session(request, body), stored_metadata(body)
    if body.store is False:
        check_calls(sent.messages)
        return begin_unstored(request.caller.client, sent)
    if idempotent is not None:
        stored = await idempotent.find_stored(sent, named)
        if stored is not None:
            return (
                stored.answer
                if stored.answer.is_complete
                else await to_thread(locate_retry, stored)
            )
        notes |= idempotent.notes
    location = await locate(request.caller, sent, named, always_append=idempotent is not None)
    if idempotent is not None:
        idempotent.record(location.session.id)
    if not notes or not location.new_messages:
        return location
    return with_first_id(
        location, location.new_messages[0].id if idempotent is None else idempotent.uid, notes
    )


def answer_of(result: Return, location: BranchLocation) -> ModelAnswer:
    """Return the model's answer in the result of a run at a location."""
    interactions = result.body.interactions
    last = location.new_messages[-1].id if location.new_messages else location.last
    start = next((at for at, message in enumerate(interactions, 1) if message.id == last), 0)
    return ModelAnswer(tuple(interactions[start:]))


def location_headers(location: BranchLocation) -> dict[str, str]:
    """Return headers that name the session and branch; none if they are not stored."""
    if not location.is_stored:
        return {}
    return {
        "x-sennit-session": str(location.session.id),
        "x-sennit-branch": str(location.branch.id),
    }


def _repeat(request: HTTPRequest, body: ChatCompletionRequest, answer: ModelAnswer) -> Response:
    return _respond(request, body, answer, {"x-sennit-repeated": "true"})


def _respond(
    request: HTTPRequest, body: ChatCompletionRequest, answer: ModelAnswer, headers: dict[str, str]
) -> Response:
    """Return a complete answer as the request asked for it: as JSON or as a stream."""
    if not body.stream:
        return ok(completion(body.model, answer), headers={**PRIVATE, **headers})
    pieces = _stream_answer(Chunks(body), answer)
    return ChunkStream(pieces, AsyncExitStack(), request.limits, headers)


def completion(model: str, answer: ModelAnswer) -> dict[str, Any]:
    """Return an answer as a chat completion object."""
    calls = answer.calls
    text = answer.text or (None if calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if calls:
        message["tool_calls"] = [_call(call) for call in calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(answer.finish_reason, bool(calls)),
    }
    return {
        "id": _completion_id(answer.messages[0].id.hex if answer.messages else "0"),
        "object": "chat.completion",
        "created": _now(),
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


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _completion_id(name: str) -> str:
    return f"chatcmpl-{name}"


def _now() -> int:
    return clock.now_us() // 1_000_000


class Chunks:
    """Converts the events of a run to chunks of a streamed completion."""

    def __init__(self, body: ChatCompletionRequest) -> None:
        options = body.stream_options
        self._include_usage = options is not None and bool(options.include_usage)
        self._head = {"object": "chat.completion.chunk", "created": _now(), "model": body.model}
        self._completion_id: str | None = None
        self._calls = 0

    def encode(self, event: AnyEvent) -> Iterator[bytes]:
        """Return the chunks of an event, encoded as server-sent events."""
        return map(sse_event, self.convert(event))

    def convert(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """Yield the chunks of an event; raise HTTPError if the run failed."""
        if isinstance(event, TextAdded):
            yield from self._delta(event.message_id.hex, {"content": event.text})
        elif isinstance(event, ReasoningAdded):
            yield from self._delta(event.message_id.hex, {"reasoning_content": event.text})
        elif isinstance(event, ToolCalled):
            yield from self._tool_call(event.message)
        elif isinstance(event, RunEnded):
            result = raise_for_failure(event.result)
            yield from self._end(result.metrics.finish_reason, result.metrics.usage)

    def convert_answer(self, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a complete answer."""
        for message in answer.messages:
            part = ModelAnswer((message,))
            if part.reasoning:
                yield from self._delta(message.id.hex, {"reasoning_content": part.reasoning})
            if part.text:
                yield from self._delta(message.id.hex, {"content": part.text})
            if part.calls:
                yield from self._tool_call(message)
        yield from self._end(answer.finish_reason, answer.usage)

    def _delta(self, message_id: str, delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._completion_id is None:
            self._completion_id = _completion_id(message_id)
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        yield self._chunk(delta)

    def _tool_call(self, message: Message) -> Iterator[dict[str, Any]]:
        call = {"index": self._calls, **_call(ToolCall.of(message))}
        self._calls += 1
        yield from self._delta(message.id.hex, {"tool_calls": [call]})

    def _end(self, reason: str | None, used: Usage) -> Iterator[dict[str, Any]]:
        if self._completion_id is None:  # the model sent nothing
            yield from self._delta("0", {"content": ""})
        yield self._chunk({}, finish_reason(reason, self._calls > 0))
        if self._include_usage:
            yield {"id": self._completion_id, **self._head, "choices": [], "usage": usage(used)}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: dict[str, Any] = {"id": self._completion_id, **self._head, "choices": [choice]}
        return {**chunk, "usage": None} if self._include_usage else chunk


def _encode_error(problem: HTTPError) -> bytes:
    return sse_event(problem.to_dict())


async def _stream_answer(chunks: Chunks, answer: ModelAnswer) -> AsyncGenerator[bytes]:
    yield b"".join(map(sse_event, chunks.convert_answer(answer))) + DONE


class ModelObject(ResponseModel):
    """A model as OpenAI's clients list it."""

    id: str
    created: int = 0
    object: str = "model"
    owned_by: str = "sennit"


class ModelList(ResponseModel):
    """The models of the server."""

    data: list[ModelObject]
    object: str = "list"


@routes.get(
    "/v1/models",
    scope="read",
    summary="The models, as OpenAI's clients list them",
    answer=ModelList,
)
async def models(request: HTTPRequest) -> ModelList:
    """List the models, the default first."""
    return ModelList(data=[ModelObject(id=name) for name in request.server.models])


@routes.get(
    "/v1/models/{model}",
    scope="read",
    summary="One model, as OpenAI's clients see it",
    answer=ModelObject,
)
async def model(request: HTTPRequest) -> ModelObject:
    """Return a model; raise HTTPError 404 if there is none."""
    find_model(request.server, request.path["model"])
    return ModelObject(id=request.path["model"])
