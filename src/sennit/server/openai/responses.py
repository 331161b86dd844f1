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
async def create(call: HTTPRequest) -> Response:
    """Answer, whole or as a stream of events."""
    ask: ResponsesRequest = call.body
    _refuse(ask)
    if not isinstance(ask.input, str):
        call.check_count(len(ask.input), call.limits.items, "input")
    streams = known_model(call.server, ask.model).streams
    wanted, once, limits = _wanted(call, ask), once_of(call), call.limits
    if ask.stream:
        call.open_stream()
    async with AsyncExitStack() as stack:
        if once is not None:
            await stack.enter_async_context(once.lock)
        begun = await _begun(call, ask, once)
        answer = begun.answer
        if answer is None and not (ask.stream and streams):
            place, result = await while_there(call.receive, answered(begun.place, wanted))
            answer = answer_in(result, place)
        if answer is not None and not ask.stream:
            return ok(begun.head.answered(answer))
        events = ResponseEvents(begun.head)
        if answer is not None:
            pieces = _at_once(events, answer)
        else:
            pieces = told(watched(begun.place, wanted), events.encoded, events.failed)
        return ChunkStream(pieces, stack.pop_all(), limits, where(begun.place))


async def _at_once(events: ResponseEvents, answer: ModelAnswer) -> AsyncGenerator[bytes]:
    yield b"".join(events.encoded_answer(answer))


def _refuse(ask: ResponsesRequest) -> None:
    refuse_unsupported(ask)
    if ask.previous_response_id is not None and ask.conversation is not None:
        raise bad("conversation", "Name a 'conversation' or a 'previous_response_id', not both.")
    if ask.text is not None and ask.text.verbosity not in (None, "medium"):
        raise bad("text.verbosity", "'text.verbosity' is not supported here.", "unsupported")
    if "message.output_text.logprobs" in (ask.include or ()):
        raise bad("include", "There are no logprobs here.", "unsupported")


def _wanted(call: HTTPRequest, ask: ResponsesRequest) -> TurnOptions:
    functions = [] if ask.tool_choice == "none" else ask.tools or ()
    return TurnOptions(
        model=known_model(call.server, ask.model),
        tools=tuple(offered(functions)),
        form=_form(ask),
        params=checked(ask.params),
        remembers=ask.store is not False and remembers(call, ask),
    )


def _form(ask: ResponsesRequest) -> ModelSchema | None:
    given = answer_format(ask)
    if isinstance(given, SchemaFormat):
        return schema_form(given)
    return wanted_form(given if isinstance(given, JsonObjectFormat) else None)


async def _begun(
    call: HTTPRequest, ask: ResponsesRequest, once: IdempotentRequest | None
) -> _Begun:
    """Return the location of a new response, and its id."""
    before = await _previous(call, ask)
    conversation = await _conversation(call, ask)
    lasting = None if before is None else before.lasting
    if conversation is not None:
        lasting = lasting_on(conversation)
    sent = await call.build(_count(ask), sent_items, ask.input, ask.instructions, lasting)
    if ask.store is False:
        client, main = call.caller.client, None if conversation is None else main_of(conversation)
        if main is not None:
            return _new(ask, sent, copied_on(client, main, main.tail.total, sent), None)
        return _new(ask, sent, copied_after(client, before, sent), None)
    if conversation is not None:  # what was told for the response before is over
        sent = replace(sent, system=sent.system or "")
    named = _named(call, ask, before)
    if once is not None:
        kept = await once.kept(sent, named)
        if kept is not None:
            return await to_thread(_again, kept)
    if before is not None:
        place = await place_after(call.caller, before, sent)
    else:
        place = await place_of(call.caller, sent, named, anew=True)
    if once is not None:
        once.note(place.session.id)
    return _new(ask, sent, place, once)


def _count(ask: ResponsesRequest) -> int:
    return 1 if isinstance(ask.input, str) else len(ask.input)


async def _previous(call: HTTPRequest, ask: ResponsesRequest) -> StoredResponse | None:
    name = ask.previous_response_id
    if name is None:
        return None
    found = await find_response(call.caller, name)
    if found is None:
        known = f"There is no response {name[:100]!r}; it may have been deleted, or never kept."
        raise bad("previous_response_id", known, "previous_response_not_found")
    return found


async def _conversation(call: HTTPRequest, ask: ResponsesRequest) -> Session | None:
    """The conversation that is named, if it is there; raises HTTPError 404 if it has to be."""
    name = ask.conversation_id
    if name is None:
        return None
    if not name:
        raise bad("conversation", "The id of a conversation must not be empty.")
    return await find_conversation(call.caller, name, must_be=is_conversation_id(name))


def _named(
    call: HTTPRequest, ask: ResponsesRequest, before: StoredResponse | None
) -> NamedSession | None:
    if before is not None:
        return NamedSession(session=str(before.session.id))
    if (conversation := ask.conversation_id) is not None:
        return NamedSession(session=session_named(conversation), history="new")
    return named_by(call, ask)


def _new(
    ask: ResponsesRequest,
    sent: ClientMessages,
    place: BranchLocation,
    once: IdempotentRequest | None,
) -> _Begun:
    uid = new_id() if once is None else once.uid
    asked = asked_for(ask)
    notes: dict[str, Any] = {"response": asked} | ({} if once is None else once.notes)
    if sent.lasting is not None:
        notes["lasting"] = sent.lasting
    head = ResponseHead(response_id(place.session.id, uid), clock.now_us() // 1_000_000, asked)
    return _Begun(head, anchored(place, uid, notes))


def _again(kept: StoredResponse) -> _Begun:
    """A response that was asked for before; one that came to nothing is tried again."""
    if kept.answer.whole:
        return _Begun(kept.head, BranchLocation(kept.branch, (), kept.end), kept.answer)
    return _Begun(kept.head, place_again(kept))


@routes.get(
    "/v1/responses/{response}",
    scope="read",
    summary="A response that is kept",
    answer=dict[str, Any],
)
async def retrieve(call: HTTPRequest) -> dict[str, Any]:
    """A response that is kept."""
    if b"stream=true" in call.http["query_string"].lower():
        raise bad("stream", "A kept response is not streamed again; leave 'stream' out.")
    kept = await _kept(call)
    answer = kept.answer
    if answer.messages:
        return kept.head.answered(answer)
    if await to_thread(is_under_way, RunRepository(kept.branch)):
        return kept.head.told("in_progress", [])
    return kept.head.failed(HTTPError(502, "server_error", "The model did not answer."), [])


async def _kept(call: HTTPRequest) -> StoredResponse:
    name = call.path["response"]
    found = await find_response(call.caller, name)
    if found is None:
        raise HTTPError(404, "not_found", f"There is no response {name[:100]!r}.")
    return found


class DeletedResponse(ResponseModel):
    """That a response is gone."""

    id: str
    object: str = "response"
    deleted: bool = True


@routes.delete(
    "/v1/responses/{response}", scope="write", summary="Erase a response", answer=DeletedResponse
)
async def delete(call: HTTPRequest) -> DeletedResponse:
    """Erase a response."""
    kept = await _kept(call)
    await to_thread(delete_response, call.caller, kept)
    return DeletedResponse(id=call.path["response"])


@routes.get(
    "/v1/responses/{response}/input_items",
    scope="read",
    summary="What was said for a response",
    query=ItemsQuery,
    answer=dict[str, Any],
)
async def input_items(call: HTTPRequest) -> dict[str, Any]:
    """List the input items of a response, page by page."""
    most = call.limits.answer_bytes
    return await to_thread(page, (await _kept(call)).said, call.query, most)
