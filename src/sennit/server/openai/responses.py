"""/v1/responses: create, continue, read and delete responses."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import MutableMapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from sennit import clock
from sennit.api.session import Session
from sennit.ids import new_id
from sennit.messages.content import InstructionContent, MessageRole
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes, ok
from sennit.server.http.errors import PRIVATE, HTTPError, bad_param
from sennit.server.http.event_stream import cancel_on_disconnect
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat_schemas import refuse_unsupported
from sennit.server.openai.compaction import compaction_item, user_messages
from sennit.server.openai.conversations import (
    find_conversation,
    is_conversation_id,
    lasting_system,
    main_branch,
    session_name,
)
from sennit.server.openai.item_references import has_references, resolve_references
from sennit.server.openai.item_schemas import ResponsesRequest
from sennit.server.openai.items import items_of, parse_input
from sennit.server.openai.locate import BranchLocation, Locator, NamedSession, with_first_id
from sennit.server.openai.pagination import ItemsQuery, page
from sennit.server.openai.requests import (
    IdempotentRequest,
    PreparedAnswer,
    idempotent_request,
    ignored_fields,
    locate_once,
    named_session,
    respond,
    turn_options,
)
from sennit.server.openai.response_builder import ResponseEvents, ResponseHead, echoed_params, usage
from sennit.server.openai.stored_responses import (
    StoredResponse,
    copy_branch,
    delete_response,
    find_response,
    locate_next,
    parse_response_id,
    response_id,
    stored_in,
)
from sennit.server.openai.translate import (
    ClientMessages,
    ModelAnswer,
    client_tools,
    output_schema,
)
from sennit.server.openai.turn import error_of, find_model, run_turn, stream_turn
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import estimate_tokens
from sennit.sessions.run_repository import RunRepository
from sennit.sessions.segments import tail_of
from sennit.turns.events import RunEnded
from sennit.turns.recovery import events_of
from sennit.turns.special.definition import summarize
from sennit.turns.subscription import has_active_run

routes: Final = Routes()


@routes.post("/v1/responses", scope="run")
async def create(request: HTTPRequest, body: ResponsesRequest) -> Response:
    """Create a response, as in OpenAI's API."""
    _check_supported(body)
    request.check_count(_count(body), request.limits.items, "input")
    if body.background:
        headers = {**PRIVATE, **ignored_fields(request, body)}
        return ok(await _create_in_background(request, body), headers=headers)

    async def prepare(idempotent: IdempotentRequest | None) -> PreparedAnswer:
        prepared = await _prepare(request, body, idempotent)
        return PreparedAnswer(ResponseEvents(prepared.head), prepared.location, prepared.answer)

    return await respond(request, body, prepare)


async def _create_in_background(request: HTTPRequest, body: ResponsesRequest) -> dict[str, Any]:
    """Start a response that goes on without its client, and return it in progress."""
    for name, value in (("store", body.store is False), ("stream", body.stream)):
        if value:
            message = f"A response in the background is read by its id; leave out {name!r}."
            raise bad_param(name, message)
    request.server.runs.check(request.caller)  # before a branch is created for the run
    options, idempotent = turn_options(request, body), idempotent_request(request, body)
    async with idempotent.lock if idempotent is not None else nullcontext():
        prepared = await _prepare(request, body, idempotent)
        head = prepared.head
        if prepared.answer is not None:
            return head.with_answer(prepared.answer)
        streams = await to_thread(lambda: options.model.streams)
        events = stream_turn(prepared.location, options, pieces=streams)
        await request.server.runs.detach(head.id, events, caller=request.caller)
    return head.build("in_progress", [])


def _check_supported(body: ResponsesRequest) -> None:
    refuse_unsupported(body)
    if body.previous_response_id is not None and body.conversation is not None:
        raise bad_param("conversation", "Send 'conversation' or 'previous_response_id', not both.")
    if "message.output_text.logprobs" in (body.include or ()):
        raise bad_param(
            "include", "Logprobs are not supported; leave them out of 'include'.", "unsupported"
        )


@dataclass(frozen=True, slots=True)
class _PreparedResponse:
    """A response to generate at a location, or with its stored answer."""

    head: ResponseHead
    location: BranchLocation
    answer: ModelAnswer | None = None


async def _prepare(
    request: HTTPRequest, body: ResponsesRequest, idempotent: IdempotentRequest | None
) -> _PreparedResponse:
    """Locate a new response, or find the stored one of an idempotent request."""
    previous = await _previous(request, body)
    conversation = await _conversation(request, body)
    lasting = None if previous is None else previous.lasting
    if conversation is not None:
        lasting = lasting_system(conversation)
    named = _named_session(request, body, previous)
    items = body.items
    if not isinstance(items, str) and has_references(items):
        cache = request.server.branch_cache
        items = await to_thread(resolve_references, request.caller, cache, named, items)
    sent = await request.build(_count(body), parse_input, items, body.instructions, lasting)
    uid, params = new_id() if idempotent is None else idempotent.uid, echoed_params(body)
    notes: dict[str, Any] = {"response": params} | ({} if idempotent is None else idempotent.notes)
    if sent.lasting is not None:
        notes["lasting"] = sent.lasting
    stored, remembered = None, _unstored_sessions(request)
    if body.store is False:
        location = with_first_id(_copy(request, previous, conversation, sent), uid, notes)
        remembered[response_id(location.session.id, uid)] = location.session
    elif previous is not None and body.previous_response_id in remembered:
        message = "The previous response was not stored; send 'store': false with this one too."
        raise bad_param("store", message)
    else:
        if conversation is not None:  # instructions of earlier responses do not apply
            sent = replace(sent, system=sent.system or "")
        cache = request.server.branch_cache
        locator = Locator(
            request.caller, cache, sent, named, always_append=True, uid=uid, notes=notes
        )

        async def locate() -> BranchLocation:
            if previous is None:
                return await locator.locate()
            return with_first_id(await locate_next(previous, sent, cache), uid, notes)

        location, stored = await locate_once(idempotent, locator, locate)
    if stored is not None:
        return _PreparedResponse(stored.head, location, stored.complete_answer)
    name, created = response_id(location.session.id, uid), clock.now_us() // 1_000_000
    head = ResponseHead(name, created, params, with_state=body.keeps_state)
    return _PreparedResponse(head, location)


def _copy(
    request: HTTPRequest,
    previous: StoredResponse | None,
    conversation: Session | None,
    sent: ClientMessages,
) -> BranchLocation:
    """Copy the history that a response continues into a session that is not stored."""
    client = request.caller.client
    if previous is not None:
        return copy_branch(client, previous.branch, previous.end, sent)
    main = None if conversation is None else main_branch(conversation)
    return copy_branch(client, main, 0 if main is None else tail_of(main).total, sent)


def _count(body: ResponsesRequest) -> int:
    return 1 if isinstance(body.items, str) else len(body.items)


async def _previous(request: HTTPRequest, body: ResponsesRequest) -> StoredResponse | None:
    name = body.previous_response_id
    if name is None:
        return None
    session, ids = _unstored_sessions(request).get(name), parse_response_id(name)
    if session is not None and ids is not None:
        stored = stored_in(session, ids[1])
        stored = None if stored is None or not stored.answer.messages else stored  # it failed
    else:
        stored = await find_response(request.caller, name)
    if stored is None:
        message = f"There is no response {name[:100]!r}; it was deleted, or not stored."
        raise bad_param("previous_response_id", message, "previous_response_not_found")
    return stored


def _unstored_sessions(request: HTTPRequest) -> MutableMapping[str, Session]:
    """Return the sessions of responses that are not stored, as far as a WebSocket keeps them."""
    return request.http["state"].get("unstored", {})


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


@routes.post("/v1/responses/compact", scope="run")
async def compact(request: HTTPRequest, body: ResponsesRequest) -> dict[str, Any]:
    """Return a conversation as its user messages and a summary of the rest; nothing is stored."""
    _check_supported(body)
    request.check_count(_count(body), request.limits.items, "input")
    location = await _unstored(request, body)
    history = location.session.messages.pick(location.branch)
    ask = Message(
        InstructionContent(instruction=summarize().instruction or ""), sender=MessageRole.USER
    )
    asked = structs.replace(location, new_messages=(*location.new_messages, ask))
    options = structs.replace(turn_options(request, body), tools=(), schema=None)
    work = run_turn(asked, options)
    _, result = await cancel_on_disconnect(request.receive, work)
    uid = new_id()
    kept = user_messages([*history, *location.new_messages])
    items = [item for message in kept for item in items_of(message)]
    return {
        "id": response_id(location.session.id, uid),
        "object": "response.compaction",
        "created_at": clock.now_us() // 1_000_000,
        "output": [*items, compaction_item(uid, result.answer)],
        "usage": usage(result.metrics.usage),
    }


async def _unstored(request: HTTPRequest, body: ResponsesRequest) -> BranchLocation:
    """Return the history and the new input of a request, in a session that is not stored."""
    previous, conversation = await _previous(request, body), await _conversation(request, body)
    lasting = None if previous is None else previous.lasting
    goes_on = previous is not None or conversation is not None  # then it needs nothing new
    sent = await request.build(
        _count(body), parse_input, body.items, body.instructions, lasting, goes_on
    )
    return _copy(request, previous, conversation, sent)


class InputTokens(ResponseModel):
    """The number of tokens of a request."""

    input_tokens: int
    object: str = "response.input_tokens"


@routes.post("/v1/responses/input_tokens", scope="run")
async def count_input_tokens(request: HTTPRequest, body: ResponsesRequest) -> InputTokens:
    """Estimate the input tokens of a response, with those of the history that it continues."""
    _check_supported(body)
    find_model(request.server, body.model)
    request.check_count(_count(body), request.limits.items, "input")
    location = await _unstored(request, body)
    history = location.session.messages.pick(location.branch)
    return InputTokens(await to_thread(_estimate, body, [*history, *location.new_messages]))


def _estimate(body: ResponsesRequest, messages: Sequence[Message]) -> int:
    tools = tuple(tool.schema for tool in client_tools(body.client_functions))
    chat, output = to_model_messages(messages), output_schema(body.format)
    return estimate_tokens(ModelRequest(messages=chat, tools=tools, output=output))


@routes.get("/v1/responses/{response}", scope="read")
async def retrieve(request: HTTPRequest) -> dict[str, Any]:
    """Read a stored response.

    Raises HTTPError 404 if there is none.
    """
    if b"stream=true" in request.http["query_string"].lower():
        raise bad_param("stream", "A stored response is not streamed; leave 'stream' out.")
    return await _current(request)


async def _current(request: HTTPRequest) -> dict[str, Any]:
    """Return a stored response with its answer, in progress, cancelled or failed."""
    stored = await _find_stored(request)
    if not stored.answer.is_final:
        if await to_thread(has_active_run, RunRepository(stored.branch)):
            return stored.head.build("in_progress", [])
        stored = await _find_stored(request)  # the run may have ended after the first look
    return await to_thread(_ended, stored)


def _ended(stored: StoredResponse) -> dict[str, Any]:
    """Return a response whose run has ended."""
    if stored.answer.messages:
        return stored.head.with_answer(stored.answer)
    runs = RunRepository(stored.branch)
    last = runs.last()
    ended = next(reversed(events_of(runs, last)), None) if last is not None else None
    if not isinstance(ended, RunEnded) or ended.result.stop_reason == "stable":
        return stored.head.fail(HTTPError(502, "server_error", "The model did not answer."), [])
    if ended.result.stop_reason == "cancelled":
        return stored.head.build("cancelled", [])
    return stored.head.fail(error_of(ended.result), [])


@routes.post("/v1/responses/{response}/cancel", scope="run", stops=True)
async def cancel(request: HTTPRequest) -> dict[str, Any]:
    """Cancel a response that is generated in the background; its text so far stays.

    Raises HTTPError 409 if another server process generates it.
    """
    stored = await _find_stored(request)
    if not stored.head.params.get("background"):
        raise bad_param("response", "Only responses with 'background' can be cancelled.")
    await request.server.runs.cancel_detached(stored.head.id)
    answer = await _current(request)
    if answer["status"] == "in_progress":
        message = "Another server process generates this response; only that can stop it."
        raise HTTPError(409, "elsewhere", message)
    return answer


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


@routes.delete("/v1/responses/{response}", scope="write")
async def delete(request: HTTPRequest) -> DeletedResponse:
    """Erase a response."""
    stored = await _find_stored(request)
    await to_thread(delete_response, request.caller, stored)
    return DeletedResponse(id=request.path["response"])


@routes.get("/v1/responses/{response}/input_items", scope="read")
async def input_items(request: HTTPRequest, query: ItemsQuery) -> dict[str, Any]:
    """List the input items of a response."""
    stored = await _find_stored(request)
    answer_bytes = request.limits.answer_bytes
    return await to_thread(page, stored.session, stored.input_messages, query, answer_bytes)
