"""/v1/responses: create, continue, read and delete responses."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from sennit import clock
from sennit.api.session import Session
from sennit.ids import new_id
from sennit.messages.output_schema import ModelSchema
from sennit.server.http.disconnects import cancel_on_disconnect
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes, ok
from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat import answer_of, location_headers
from sennit.server.openai.chat_schemas import (
    JsonObjectFormat,
    bad_param,
    checked_values,
    refuse_unsupported,
)
from sennit.server.openai.conversations import (
    find_conversation,
    is_conversation_id,
    lasting_system,
    main_branch,
    session_name,
)
from sennit.server.openai.event_stream import ChunkStream, encode_events
from sennit.server.openai.item_schemas import (
    ResponsesRequest,
    SchemaFormat,
    answer_format,
    parse_input,
)
from sennit.server.openai.locate import BranchLocation, NamedSession, locate, with_first_id
from sennit.server.openai.pagination import ItemsQuery, page
from sennit.server.openai.request_metadata import (
    IdempotentRequest,
    idempotent_request,
    named_session,
    wants_memory,
)
from sennit.server.openai.response_builder import ResponseEvents, ResponseHead, echoed_params
from sennit.server.openai.stored_responses import (
    StoredResponse,
    copy_branch,
    copy_response,
    delete_response,
    find_response,
    locate_next,
    locate_retry,
    response_id,
)
from sennit.server.openai.translate import (
    ClientMessages,
    ModelAnswer,
    client_tools,
    output_schema,
    schema_of,
)
from sennit.server.openai.turn import TurnOptions, find_model, run_turn, stream_turn
from sennit.sessions.run_repository import RunRepository
from sennit.turns.subscription import has_active_run

routes = Routes()


@dataclass(frozen=True, slots=True)
class _PreparedResponse:
    """A response to generate, or with its stored answer."""

    head: ResponseHead
    location: BranchLocation
    answer: ModelAnswer | None = None


@routes.post(
    "/v1/responses",
    scope="run",
    summary="Create a response, as in OpenAI's API",
    body=ResponsesRequest,
    validation_status=400,
    answer=dict[str, Any],
)
async def create(request: HTTPRequest) -> Response:
    """Answer, in one response or as a stream of events."""
    body: ResponsesRequest = request.body
    _check_supported(body)
    if not isinstance(body.input, str):
        request.check_count(len(body.input), request.limits.items, "input")
    streams = find_model(request.server, body.model).streams
    options, idempotent, limits = (
        _turn_options(request, body),
        idempotent_request(request),
        request.limits,
    )
    if body.stream:
        request.open_stream()
    async with AsyncExitStack() as stack:
        if idempotent is not None:
            await stack.enter_async_context(idempotent.lock)
        prepared = await _prepare(request, body, idempotent)
        answer = prepared.answer
        if answer is None and not (body.stream and streams):
            location, result = await cancel_on_disconnect(
                request.receive, run_turn(prepared.location, options)
            )
            answer = answer_of(result, location)
        if answer is not None and not body.stream:
            return ok(prepared.head.with_answer(answer))
        events = ResponseEvents(prepared.head)
        if answer is not None:
            pieces = _stream_answer(events, answer)
        else:
            turn = stream_turn(prepared.location, options)
            pieces = encode_events(turn, events.encode, events.encode_failure)
        return ChunkStream(pieces, stack.pop_all(), limits, location_headers(prepared.location))


async def _stream_answer(events: ResponseEvents, answer: ModelAnswer) -> AsyncGenerator[bytes]:
    yield b"".join(events.encode_answer(answer))


def _check_supported(body: ResponsesRequest) -> None:
    refuse_unsupported(body)
    if body.previous_response_id is not None and body.conversation is not None:
        raise bad_param("conversation", "Send 'conversation' or 'previous_response_id', not both.")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise bad_param(
            "text.verbosity", "'text.verbosity' is not supported; leave it out.", "unsupported"
        )
    if "message.output_text.logprobs" in (body.include or ()):
        raise bad_param(
            "include", "Logprobs are not supported; leave them out of 'include'.", "unsupported"
        )


def _turn_options(request: HTTPRequest, body: ResponsesRequest) -> TurnOptions:
    functions = [] if body.tool_choice == "none" else body.tools or ()
    return TurnOptions(
        model=find_model(request.server, body.model),
        tools=tuple(client_tools(functions)),
        schema=_output_schema(body),
        params=checked_values(body.params),
        use_memory=body.store is not False and wants_memory(request, body),
    )


def _output_schema(body: ResponsesRequest) -> ModelSchema | None:
    format = answer_format(body)
    if isinstance(format, SchemaFormat):
        return schema_of(format)
    return output_schema(format if isinstance(format, JsonObjectFormat) else None)


async def _prepare(
    request: HTTPRequest, body: ResponsesRequest, idempotent: IdempotentRequest | None
) -> _PreparedResponse:
    """Locate a new response, or find the stored one of an idempotent request."""
    previous = await _previous(request, body)
    conversation = await _conversation(request, body)
    lasting = None if previous is None else previous.lasting
    if conversation is not None:
        lasting = lasting_system(conversation)
    sent = await request.build(_count(body), parse_input, body.input, body.instructions, lasting)
    if body.store is False:
        client = request.caller.client
        main = None if conversation is None else main_branch(conversation)
        if main is not None:
            return _new_response(body, sent, copy_branch(client, main, main.tail.total, sent), None)
        return _new_response(body, sent, copy_response(client, previous, sent), None)
    if conversation is not None:  # instructions of earlier responses do not apply
        sent = replace(sent, system=sent.system or "")
    named = _named_session(request, body, previous)
    if idempotent is not None:
        stored = await idempotent.find_stored(sent, named)
        if stored is not None:
            return await to_thread(_repeat, stored)
    if previous is not None:
        location = await locate_next(request.caller, previous, sent)
    else:
        location = await locate(request.caller, sent, named, always_append=True)
    if idempotent is not None:
        idempotent.record(location.session.id)
    return _new_response(body, sent, location, idempotent)


def _count(body: ResponsesRequest) -> int:
    return 1 if isinstance(body.input, str) else len(body.input)


async def _previous(request: HTTPRequest, body: ResponsesRequest) -> StoredResponse | None:
    name = body.previous_response_id
    if name is None:
        return None
    stored = await find_response(request.caller, name)
    if stored is None:
        message = f"There is no response {name[:100]!r}; it was deleted, or not stored."
        raise bad_param("previous_response_id", message, "previous_response_not_found")
    return stored


async def _conversation(request: HTTPRequest, body: ResponsesRequest) -> Session | None:
    """Return the conversation of a request; raise HTTPError 404 for a missing conversation id."""
    name = body.conversation_id
    if name is None:
        return None
    if not name:
        raise bad_param("conversation", "The id of a conversation must not be empty.")
    return await find_conversation(request.caller, name, required=is_conversation_id(name))


def _named_session(
    request: HTTPRequest, body: ResponsesRequest, previous: StoredResponse | None
) -> NamedSession | None:
    if previous is not None:
        return NamedSession(session=str(previous.session.id))
    if (conversation := body.conversation_id) is not None:
        return NamedSession(session=session_name(conversation), history="new")
    return named_session(request, body)


def _new_response(
    body: ResponsesRequest,
    sent: ClientMessages,
    location: BranchLocation,
    idempotent: IdempotentRequest | None,
) -> _PreparedResponse:
    uid = new_id() if idempotent is None else idempotent.uid
    params = echoed_params(body)
    notes: dict[str, Any] = {"response": params} | ({} if idempotent is None else idempotent.notes)
    if sent.lasting is not None:
        notes["lasting"] = sent.lasting
    head = ResponseHead(response_id(location.session.id, uid), clock.now_us() // 1_000_000, params)
    return _PreparedResponse(head, with_first_id(location, uid, notes))


def _repeat(stored: StoredResponse) -> _PreparedResponse:
    """Return the stored response to an idempotent request; retry one without an answer."""
    if stored.answer.is_complete:
        location = BranchLocation(stored.branch, (), stored.end)
        return _PreparedResponse(stored.head, location, stored.answer)
    return _PreparedResponse(stored.head, locate_retry(stored))


@routes.get(
    "/v1/responses/{response}",
    scope="read",
    summary="Read a stored response",
    answer=dict[str, Any],
)
async def retrieve(request: HTTPRequest) -> dict[str, Any]:
    """Return a stored response; raise HTTPError 404 if there is none."""
    if b"stream=true" in request.http["query_string"].lower():
        raise bad_param("stream", "A stored response is not streamed; leave 'stream' out.")
    stored = await _find_stored(request)
    answer = stored.answer
    if answer.messages:
        return stored.head.with_answer(answer)
    if await to_thread(has_active_run, RunRepository(stored.branch)):
        return stored.head.build("in_progress", [])
    return stored.head.fail(HTTPError(502, "server_error", "The model did not answer."), [])


async def _find_stored(request: HTTPRequest) -> StoredResponse:
    name = request.path["response"]
    stored = await find_response(request.caller, name)
    if stored is None:
        raise HTTPError(404, "not_found", f"There is no response {name[:100]!r}.")
    return stored


class DeletedResponse(ResponseModel):
    """The confirmation that a response was deleted."""

    id: str
    object: str = "response"
    deleted: bool = True


@routes.delete(
    "/v1/responses/{response}", scope="write", summary="Erase a response", answer=DeletedResponse
)
async def delete(request: HTTPRequest) -> DeletedResponse:
    """Erase a response."""
    stored = await _find_stored(request)
    await to_thread(delete_response, request.caller, stored)
    return DeletedResponse(id=request.path["response"])


@routes.get(
    "/v1/responses/{response}/input_items",
    scope="read",
    summary="List the input items of a response",
    query=ItemsQuery,
    answer=dict[str, Any],
)
async def input_items(request: HTTPRequest) -> dict[str, Any]:
    """List the input items of a response, page by page."""
    messages = (await _find_stored(request)).input_messages
    return await to_thread(page, messages, request.query, request.limits.answer_bytes)
