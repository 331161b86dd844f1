"""/v1/chat/completions and /v1/models."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from typing import Any

from sennit import clock
from sennit.messages.message import Message
from sennit.server.http.disconnects import while_there
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes, ok
from sennit.server.http.errors import PRIVATE, HTTPError
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat_schemas import ChatCompletionRequest, checked, refuse_unsupported
from sennit.server.openai.event_stream import DONE, ChunkStream, data, told
from sennit.server.openai.locate import BranchLocation, anchored, begin_apart, place_of
from sennit.server.openai.request_metadata import (
    IdempotentRequest,
    named_by,
    notes_of,
    once_of,
    remembers,
)
from sennit.server.openai.stored_responses import place_again
from sennit.server.openai.translate import (
    ClientMessages,
    ModelAnswer,
    check_calls,
    offered,
    sent,
    wanted_form,
)
from sennit.server.openai.translate import ClientToolCall as ToolCall
from sennit.server.openai.turn import (
    TurnOptions,
    answered,
    known_model,
    sound,
    watched,
)
from sennit.services.models.reply import Usage
from sennit.turns.events import AnyEvent, ReasoningAdded, RunEnded, TextAdded, ToolCalled
from sennit.turns.result import Return

routes = Routes()

_FINISHES = {"length": "length", "refusal": "content_filter"}


@routes.post(
    "/v1/chat/completions",
    scope="run",
    summary="Answer a conversation, as OpenAI's chat completions do",
    body=ChatCompletionRequest,
    misfit=400,
    answer=dict[str, Any],
)
async def complete(request: HTTPRequest) -> Response:
    """Answer a conversation, whole or as a stream."""
    body: ChatCompletionRequest = request.body
    refuse_unsupported(body)
    streams = known_model(request.server, body.model).streams
    request.check_count(len(body.messages), request.limits.items, "messages")
    client_messages = await request.build(len(body.messages), sent, body.messages)
    options, idempotent = _wanted(request, body), once_of(request)
    if body.stream:
        request.open_stream()
    async with AsyncExitStack() as stack:
        if idempotent is not None:
            await stack.enter_async_context(idempotent.lock)
        location = await _place(request, body, client_messages, idempotent)
        if isinstance(location, ModelAnswer):
            return _repeated(request, body, location)
        if not body.stream or not streams:
            location, result = await while_there(request.receive, answered(location, options))
            return _whole(request, body, answer_in(result, location), where(location))
        pieces = told(watched(location, options), Chunks(body).encoded, _failed, DONE)
        return ChunkStream(pieces, stack.pop_all(), request.limits, where(location))


def _wanted(request: HTTPRequest, body: ChatCompletionRequest) -> TurnOptions:
    functions = [] if body.tool_choice == "none" else [tool.function for tool in body.tools or ()]
    return TurnOptions(
        model=known_model(request.server, body.model),
        tools=tuple(offered(functions)),
        form=wanted_form(body.response_format),
        params=checked(body.params),
        remembers=body.store is not False and remembers(request, body),
    )


async def _place(
    request: HTTPRequest,
    body: ChatCompletionRequest,
    sent: ClientMessages,
    idempotent: IdempotentRequest | None,
) -> BranchLocation | ModelAnswer:
    """Return the location to continue at, or the answer that was given before."""
    named, notes = named_by(request, body), notes_of(body)
    if body.store is False:
        check_calls(sent.messages)
        return begin_apart(request.caller.client, sent)
    if idempotent is not None:
        stored = await idempotent.kept(sent, named)
        if stored is not None:
            return stored.answer if stored.answer.whole else await to_thread(place_again, stored)
        notes |= idempotent.notes
    location = await place_of(request.caller, sent, named, always_append=idempotent is not None)
    if idempotent is not None:
        idempotent.note(location.session.id)
    if not notes or not location.say:
        return location
    return anchored(location, location.say[0].id if idempotent is None else idempotent.uid, notes)


def answer_in(result: Return, location: BranchLocation) -> ModelAnswer:
    """Return the model's answer in a run at a place."""
    interactions = result.body.interactions
    last = location.say[-1].id if location.say else location.last
    start = next((at for at, message in enumerate(interactions, 1) if message.id == last), 0)
    return ModelAnswer(tuple(interactions[start:]))


def where(location: BranchLocation) -> dict[str, str]:
    """Headers that tell where a conversation is kept; nothing if it is not."""
    if not location.kept:
        return {}
    return {"x-sennit-session": str(location.session.id), "x-sennit-branch": str(location.branch.id)}


def _repeated(request: HTTPRequest, body: ChatCompletionRequest, answer: ModelAnswer) -> Response:
    return _whole(request, body, answer, {"x-sennit-repeated": "true"})


def _whole(
    request: HTTPRequest, body: ChatCompletionRequest, answer: ModelAnswer, headers: dict[str, str]
) -> Response:
    """An answer that is there already, in the form that was asked for."""
    if not body.stream:
        return ok(completion(body.model, answer), headers={**PRIVATE, **headers})
    pieces = _at_once(Chunks(body), answer)
    return ChunkStream(pieces, AsyncExitStack(), request.limits, headers)


def completion(model: str, answer: ModelAnswer) -> dict[str, Any]:
    """A whole answer as chat completions give it."""
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
        "finish_reason": finish_reason(answer.finish, bool(calls)),
    }
    return {
        "id": _id(answer.messages[0].id.hex if answer.messages else "0"),
        "object": "chat.completion",
        "created": _now(),
        "model": model,
        "choices": [choice],
        "usage": usage(answer.usage),
    }


def finish_reason(reason: str | None, calls: bool) -> str:
    """Return the finish reason as chat completions name it."""
    return _FINISHES.get(reason or "", "tool_calls" if calls else "stop")


def usage(used: Usage) -> dict[str, Any]:
    """Tokens as chat completions count them."""
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


def _id(name: str) -> str:
    return f"chatcmpl-{name}"


def _now() -> int:
    return clock.now_us() // 1_000_000


class Chunks:
    """Converts the events of a run to chunks of a streamed completion."""

    def __init__(self, body: ChatCompletionRequest) -> None:
        options = body.stream_options
        self._counts = options is not None and bool(options.include_usage)
        self._head = {"object": "chat.completion.chunk", "created": _now(), "model": body.model}
        self._id: str | None = None
        self._calls = 0

    def encoded(self, event: AnyEvent) -> Iterator[bytes]:
        """The same as they are sent."""
        return map(data, self.of(event))

    def of(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """The chunks that tell of an event; raises Problem if the run failed."""
        if isinstance(event, TextAdded):
            yield from self._said(event.message_id.hex, {"content": event.text})
        elif isinstance(event, ReasoningAdded):
            yield from self._said(event.message_id.hex, {"reasoning_content": event.text})
        elif isinstance(event, ToolCalled):
            yield from self._called(event.message)
        elif isinstance(event, RunEnded):
            result = sound(event.result)
            yield from self._ended(result.metrics.finish_reason, result.metrics.usage)

    def of_answer(self, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        """The chunks of an answer that is there already."""
        for message in answer.messages:
            part = ModelAnswer((message,))
            if part.reasoning:
                yield from self._said(message.id.hex, {"reasoning_content": part.reasoning})
            if part.text:
                yield from self._said(message.id.hex, {"content": part.text})
            if part.calls:
                yield from self._called(message)
        yield from self._ended(answer.finish, answer.usage)

    def _said(self, message_id: str, delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._id is None:
            self._id = _id(message_id)
            yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        yield self._chunk(delta)

    def _called(self, message: Message) -> Iterator[dict[str, Any]]:
        call = {"index": self._calls, **_call(ToolCall.of(message))}
        self._calls += 1
        yield from self._said(message.id.hex, {"tool_calls": [call]})

    def _ended(self, reason: str | None, used: Usage) -> Iterator[dict[str, Any]]:
        if self._id is None:  # the model said nothing
            yield from self._said("0", {"content": ""})
        yield self._chunk({}, finish_reason(reason, self._calls > 0))
        if self._counts:
            yield {"id": self._id, **self._head, "choices": [], "usage": usage(used)}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: dict[str, Any] = {"id": self._id, **self._head, "choices": [choice]}
        return {**chunk, "usage": None} if self._counts else chunk


def _failed(problem: HTTPError) -> bytes:
    return data(problem.to_dict())


async def _at_once(chunks: Chunks, answer: ModelAnswer) -> AsyncGenerator[bytes]:
    yield b"".join(map(data, chunks.of_answer(answer))) + DONE


class ModelObject(ResponseModel):
    """A model as OpenAI's clients list it."""

    id: str
    created: int = 0
    object: str = "model"
    owned_by: str = "sennit"


class ModelList(ResponseModel):
    """The models there are."""

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
    """One of them."""
    known_model(request.server, request.path["model"])
    return ModelObject(id=request.path["model"])
