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
from sennit.server.http.disconnects import while_there
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes, ok
from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat import answer_in, where
from sennit.server.openai.chat_schemas import JsonObjectFormat, bad, checked, refuse_unsupported
from sennit.server.openai.conversations import (
    find_conversation,
    is_conversation_id,
    lasting_on,
    main_of,
    session_named,
)
from sennit.server.openai.event_stream import ChunkStream, told
from sennit.server.openai.item_schemas import (
    ResponsesRequest,
    SchemaFormat,
    answer_format,
    sent_items,
)
from sennit.server.openai.locate import BranchLocation, NamedSession, anchored, place_of
from sennit.server.openai.pagination import ItemsQuery, page
from sennit.server.openai.request_metadata import IdempotentRequest, named_by, once_of, remembers
from sennit.server.openai.response_builder import ResponseEvents, ResponseHead, asked_for
from sennit.server.openai.stored_responses import (
    StoredResponse,
    copied_after,
    copied_on,
    delete_response,
    find_response,
    place_after,
    place_again,
    response_id,
)
from sennit.server.openai.translate import (
    ClientMessages,
    ModelAnswer,
    offered,
    schema_form,
    wanted_form,
)
from sennit.server.openai.turn import TurnOptions, answered, known_model, watched
from sennit.sessions.run_repository import RunRepository
from sennit.turns.subscription import is_under_way

routes = Routes()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A response that is to be answered, or was."""

    head: ResponseHead
    place: BranchLocation
    answer: ModelAnswer | None = None


@routes.post(
    "/v1/responses",
    scope="run",
    summary="Answer, as OpenAI's responses do",
    body=ResponsesRequest,
    misfit=400,
    answer=dict[str, Any],
)
async def create(request: HTTPRequest) -> Response:
    """Answer, whole or as a stream of events."""
    body: ResponsesRequest = request.body
    _refuse(body)
    if not isinstance(body.input, str):
        request.check_count(len(body.input), request.limits.items, "input")
    streams = known_model(request.server, body.model).streams
    options, idempotent, limits = _wanted(request, body), once_of(request), request.limits
    if body.stream:
        request.open_stream()
    async with AsyncExitStack() as stack:
        if idempotent is not None:
            await stack.enter_async_context(idempotent.lock)
        prepared = await _begun(request, body, idempotent)
        answer = prepared.answer
        if answer is None and not (body.stream and streams):
            location, result = await while_there(request.receive, answered(prepared.place, options))
            answer = answer_in(result, location)
        if answer is not None and not body.stream:
            return ok(prepared.head.answered(answer))
        events = ResponseEvents(prepared.head)
        if answer is not None:
            pieces = _at_once(events, answer)
        else:
            pieces = told(watched(prepared.place, options), events.encoded, events.failed)
        return ChunkStream(pieces, stack.pop_all(), limits, where(prepared.place))


async def _at_once(events: ResponseEvents, answer: ModelAnswer) -> AsyncGenerator[bytes]:
    yield b"".join(events.encoded_answer(answer))


def _refuse(body: ResponsesRequest) -> None:
    refuse_unsupported(body)
    if body.previous_response_id is not None and body.conversation is not None:
        raise bad("conversation", "Name a 'conversation' or a 'previous_response_id', not both.")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise bad("text.verbosity", "'text.verbosity' is not supported here.", "unsupported")
    if "message.output_text.logprobs" in (body.include or ()):
        raise bad("include", "There are no logprobs here.", "unsupported")


def _wanted(request: HTTPRequest, body: ResponsesRequest) -> TurnOptions:
    functions = [] if body.tool_choice == "none" else body.tools or ()
    return TurnOptions(
        model=known_model(request.server, body.model),
        tools=tuple(offered(functions)),
        form=_form(body),
        params=checked(body.params),
        remembers=body.store is not False and remembers(request, body),
    )


def _form(body: ResponsesRequest) -> ModelSchema | None:
    format = answer_format(body)
    if isinstance(format, SchemaFormat):
        return schema_form(format)
    return wanted_form(format if isinstance(format, JsonObjectFormat) else None)


async def _begun(
    request: HTTPRequest, body: ResponsesRequest, idempotent: IdempotentRequest | None
) -> _Begun:
    """Return the location of a new response, and its id."""
    previous = await _previous(request, body)
    conversation = await _conversation(request, body)
    lasting = None if previous is None else previous.lasting
    if conversation is not None:
        lasting = lasting_on(conversation)
    sent = await request.build(_count(body), sent_items, body.input, body.instructions, lasting)
    if body.store is False:
        client, main = request.caller.client, None if conversation is None else main_of(conversation)
        if main is not None:
            return _new(body, sent, copied_on(client, main, main.tail.total, sent), None)
        return _new(body, sent, copied_after(client, previous, sent), None)
    if conversation is not None:  # what was told for the response before is over
        sent = replace(sent, system=sent.system or "")
    named = _named(request, body, previous)
    if idempotent is not None:
        stored = await idempotent.kept(sent, named)
        if stored is not None:
            return await to_thread(_again, stored)
    if previous is not None:
        location = await place_after(request.caller, previous, sent)
    else:
        location = await place_of(request.caller, sent, named, always_append=True)
    if idempotent is not None:
        idempotent.note(location.session.id)
    return _new(body, sent, location, idempotent)


def _count(body: ResponsesRequest) -> int:
    return 1 if isinstance(body.input, str) else len(body.input)


async def _previous(request: HTTPRequest, body: ResponsesRequest) -> StoredResponse | None:
    name = body.previous_response_id
    if name is None:
        return None
    stored = await find_response(request.caller, name)
    if stored is None:
        message = f"There is no response {name[:100]!r}; it may have been deleted, or never kept."
        raise bad("previous_response_id", message, "previous_response_not_found")
    return stored


async def _conversation(request: HTTPRequest, body: ResponsesRequest) -> Session | None:
    """The conversation that is named, if it is there; raises HTTPError 404 if it has to be."""
    name = body.conversation_id
    if name is None:
        return None
    if not name:
        raise bad("conversation", "The id of a conversation must not be empty.")
    return await find_conversation(request.caller, name, required=is_conversation_id(name))


def _named(
    request: HTTPRequest, body: ResponsesRequest, previous: StoredResponse | None
) -> NamedSession | None:
    if previous is not None:
        return NamedSession(session=str(previous.session.id))
    if (conversation := body.conversation_id) is not None:
        return NamedSession(session=session_named(conversation), history="new")
    return named_by(request, body)


def _new(
    body: ResponsesRequest,
    sent: ClientMessages,
    location: BranchLocation,
    idempotent: IdempotentRequest | None,
) -> _Begun:
    uid = new_id() if idempotent is None else idempotent.uid
    params = asked_for(body)
    notes: dict[str, Any] = {"response": params} | ({} if idempotent is None else idempotent.notes)
    if sent.lasting is not None:
        notes["lasting"] = sent.lasting
    head = ResponseHead(response_id(location.session.id, uid), clock.now_us() // 1_000_000, params)
    return _Begun(head, anchored(location, uid, notes))


def _again(stored: StoredResponse) -> _Begun:
    """A response that was asked for before; one that came to nothing is tried again."""
    if stored.answer.whole:
        return _Begun(stored.head, BranchLocation(stored.branch, (), stored.end), stored.answer)
    return _Begun(stored.head, place_again(stored))


@routes.get(
    "/v1/responses/{response}",
    scope="read",
    summary="A response that is kept",
    answer=dict[str, Any],
)
async def retrieve(request: HTTPRequest) -> dict[str, Any]:
    """A response that is kept."""
    if b"stream=true" in request.http["query_string"].lower():
        raise bad("stream", "A kept response is not streamed again; leave 'stream' out.")
    stored = await _kept(request)
    answer = stored.answer
    if answer.messages:
        return stored.head.answered(answer)
    if await to_thread(is_under_way, RunRepository(stored.branch)):
        return stored.head.told("in_progress", [])
    return stored.head.failed(HTTPError(502, "server_error", "The model did not answer."), [])


async def _kept(request: HTTPRequest) -> StoredResponse:
    name = request.path["response"]
    stored = await find_response(request.caller, name)
    if stored is None:
        raise HTTPError(404, "not_found", f"There is no response {name[:100]!r}.")
    return stored


class DeletedResponse(ResponseModel):
    """That a response is gone."""

    id: str
    object: str = "response"
    deleted: bool = True


@routes.delete(
    "/v1/responses/{response}", scope="write", summary="Erase a response", answer=DeletedResponse
)
async def delete(request: HTTPRequest) -> DeletedResponse:
    """Erase a response."""
    stored = await _kept(request)
    await to_thread(delete_response, request.caller, stored)
    return DeletedResponse(id=request.path["response"])


@routes.get(
    "/v1/responses/{response}/input_items",
    scope="read",
    summary="What was said for a response",
    query=ItemsQuery,
    answer=dict[str, Any],
)
async def input_items(request: HTTPRequest) -> dict[str, Any]:
    """List the input items of a response, page by page."""
    max_bytes = request.limits.answer_bytes
    return await to_thread(page, (await _kept(request)).said, request.query, max_bytes)
