"""Requests for one answer: the steps that chat completions, responses and /v1/messages share.

These APIs have no sessions and branches, so they are named in headers or in `metadata`, which
every client can send. Other metadata is the client's own and is stored with its messages. The id of
the first message is hashed from the Idempotency-Key: a retry finds it in the store, from any
process, and concurrent retries wait for each other.
"""

from __future__ import annotations

from asyncio import Lock, sleep, to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol
from urllib.parse import quote
from uuid import UUID

import msgspec

from sennit.errors import SennitError
from sennit.ids import new_id
from sennit.server.http.caches import BranchCache
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest, ok
from sennit.server.http.errors import PRIVATE, HTTPError, bad_param, error_for
from sennit.server.http.event_stream import EventStream, cancel_on_disconnect
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.chat_schemas import AnswerFormat as OutputFormat
from sennit.server.openai.chat_schemas import checked_values
from sennit.server.openai.derived_sessions import derived_id
from sennit.server.openai.locate import BranchLocation, Locator, NamedSession, begin_unstored
from sennit.server.openai.stored_responses import StoredResponse, locate_stored, stored_in
from sennit.server.openai.tool_schemas import Function
from sennit.server.openai.translate import (
    ClientMessages,
    ModelAnswer,
    check_calls,
    client_tools,
    output_schema,
)
from sennit.server.openai.turn import TurnOptions, find_model, run_turn, stream_turn
from sennit.sessions.run_repository import RunRepository
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
)
from sennit.turns.options import WhenBusy
from sennit.turns.result import Metrics, Return
from sennit.turns.subscription import has_active_run

_METADATA_KEYS = ("session", "branch", "history", "memory")
_MAX_HEADER_CHARS = 1000
_POLL_SECONDS = 0.1  # between checks of a run in another process
_BOOLEANS = {"true": True, "false": False}


class CheckedRequest(Protocol):
    """The body of a request that may have parameters without effect."""

    @property
    def without_effect(self) -> list[str]:
        """The parameters that are set and change nothing."""
        ...


class AnswerRequest(CheckedRequest, Protocol):
    """The body of a request for one answer, in any of the APIs."""

    model: str
    stream: bool | None
    store: bool | None

    @property
    def metadata(self) -> Mapping[str, str | None] | None:
        """The metadata of the client, which may name a session."""
        ...

    @property
    def params(self) -> dict[str, Any]:
        """The model parameters."""
        ...

    @property
    def client_functions(self) -> Sequence[Function]:
        """The functions that the model may call."""
        ...

    @property
    def format(self) -> OutputFormat | None:
        """The requested format of the answer."""
        ...

    @property
    def when_busy(self) -> WhenBusy:
        """The way to deal with another run on a branch that the request may not leave."""
        ...


def _parameter(request: HTTPRequest, body: AnswerRequest, name: str) -> str | None:
    """Return one of our parameters, from its header or from `metadata`."""
    header = request.header(f"x-sennit-{name}")
    if header is None:
        return (body.metadata or {}).get(name)
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def named_session(request: HTTPRequest, body: AnswerRequest) -> NamedSession | None:
    """Return the session that a request names; raise HTTPError 400 for an invalid combination."""
    session, branch = _parameter(request, body, "session"), _parameter(request, body, "branch")
    history = _parameter(request, body, "history")
    if history not in (None, "whole", "new"):
        message = f"'history' must be 'whole' or 'new', got {history[:100]!r}."
        raise bad_param("metadata.history", message)
    if session is None:
        if branch is not None or history is not None:
            raise bad_param("metadata.session", "'branch' and 'history' need a 'session'.")
        return None
    if not session:
        raise bad_param("metadata.session", "The name of a session must not be empty.")
    return NamedSession(session=session, branch=branch, history=history)


def _wants_memory(request: HTTPRequest, body: AnswerRequest) -> bool:
    """Return whether the request asks for memories in the prompt; raise HTTPError 400."""
    value = _parameter(request, body, "memory")
    if value is None:
        return False
    if value not in _BOOLEANS:
        raise bad_param(
            "metadata.memory", f"'memory' must be 'true' or 'false', got {value[:100]!r}."
        )
    return _BOOLEANS[value]


def stored_metadata(body: AnswerRequest) -> dict[str, Any]:
    """Return the client's own metadata, as it is stored."""
    notes = {
        key: value
        for key, value in (body.metadata or {}).items()
        if key not in _METADATA_KEYS and value is not None
    }
    return {"client": notes} if notes else {}


class AnswerFormat(Protocol):
    """An answer in the format of one of the APIs, whole or as server-sent events."""

    end: bytes
    """The end of a stream."""

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an answer as one object."""
        ...

    def encode(self, event: AnyEvent) -> Iterator[bytes]:
        """Yield the encoded events for an event of the run; raise HTTPError if it failed."""
        ...

    def encode_error(self, problem: HTTPError) -> bytes:
        """Return the encoded event that ends a failed answer."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedAnswer:
    """An answer to generate at a location, or with its stored answer."""

    format: AnswerFormat
    location: BranchLocation
    answer: ModelAnswer | None = None


async def answer_history(
    request: HTTPRequest,
    body: AnswerRequest,
    sent: ClientMessages,
    format: Callable[[BranchLocation], AnswerFormat],
) -> Response:
    """Answer a request that brings its history, on the branch that has it.

    `format` returns the format of an answer at a location.
    """

    async def prepare(idempotent: IdempotentRequest | None) -> PreparedAnswer:
        named, notes = named_session(request, body), stored_metadata(body)
        if body.store is False:
            check_calls(sent.messages)
            location = begin_unstored(request.caller.client, sent)
            return PreparedAnswer(format(location), location)
        locator = Locator(
            request.caller,
            request.server.branch_cache,
            sent,
            named,
            always_append=idempotent is not None,
            uid=None if idempotent is None else idempotent.uid,
            notes=notes if idempotent is None else notes | idempotent.notes,
        )
        location, stored = await locate_once(idempotent, locator, locator.locate)
        answer = None if stored is None else stored.complete_answer
        return PreparedAnswer(format(location), location, answer)

    return await respond(request, body, prepare)


async def respond(
    request: HTTPRequest,
    body: AnswerRequest,
    prepare: Callable[[IdempotentRequest | None], Awaitable[PreparedAnswer]],
) -> Response:
    """Answer a request as it asks for it: as one object or as a stream."""
    options, idempotent = turn_options(request, body), idempotent_request(request, body)
    if body.stream:
        request.open_stream()
    async with AsyncExitStack() as stack:
        if idempotent is not None:
            await stack.enter_async_context(idempotent.lock)
        prepared = await prepare(idempotent)
        format, location, answer = prepared.format, prepared.location, prepared.answer
        headers = {} if answer is None else {"x-sennit-repeated": "true"}
        headers |= ignored_fields(request, body)
        if answer is None and not (body.stream and options.model.streams):
            work = run_turn(location, options)
            location, result = await cancel_on_disconnect(request.receive, work)
            answer = _answer_of(result, location)
        if location.is_stored:
            headers["x-sennit-session"] = str(location.session.id)
            headers["x-sennit-branch"] = str(location.branch.id)
        if answer is not None and not body.stream:
            return ok(format.whole(answer), headers={**PRIVATE, **headers})
        events = stream_turn(location, options) if answer is None else _replay(answer)
        chunks = _encode_events(events, format)
        return EventStream(chunks, request.limits, headers, resources=stack.pop_all())


def ignored_fields(request: HTTPRequest, body: CheckedRequest | None = None) -> dict[str, str]:
    """Return the header that names what was sent and changes nothing; empty without such fields."""
    names = [*request.ignored, *(() if body is None else body.without_effect)]
    if not names:
        return {}
    # Not every character may stand in a header.
    value = ", ".join(quote(name, safe="._- ") for name in names)[:_MAX_HEADER_CHARS]
    return {"x-ignored-fields": value}


def turn_options(request: HTTPRequest, body: AnswerRequest) -> TurnOptions:
    """Return the options of a turn; raise HTTPError 400 or 404 for invalid ones."""
    return TurnOptions(
        model=find_model(request.server, body.model),
        tools=tuple(client_tools(body.client_functions)),
        schema=output_schema(body.format),
        params=checked_values(body.params),
        use_memory=body.store is not False and _wants_memory(request, body),
        when_busy=body.when_busy,
    )


def _answer_of(result: Return, location: BranchLocation) -> ModelAnswer:
    """Return the model's answer in the result of a run at a location."""
    interactions = result.body.interactions
    last = location.new_messages[-1].id if location.new_messages else location.last
    start = next((at for at, message in enumerate(interactions, 1) if message.id == last), 0)
    return ModelAnswer(tuple(interactions[start:]))


async def _replay(answer: ModelAnswer) -> AsyncGenerator[AnyEvent]:
    """Yield the events of a run with a complete answer."""
    run: dict[str, Any] = {"run_id": new_id(), "seq": 0}
    yield RunStarted(**run, model="")
    for message in answer.messages:
        part = ModelAnswer((message,))
        if part.reasoning:
            yield ReasoningAdded(**run, message_id=message.id, text=part.reasoning)
        if part.text:
            yield TextAdded(**run, message_id=message.id, text=part.text)
        yield (ToolCalled if part.calls else MessageCompleted)(**run, message=message)
    metrics = Metrics(usage=answer.usage, finish_reason=answer.finish_reason)
    yield RunEnded(**run, result=Return(stop_reason="stable", metrics=metrics))


async def _encode_events(
    events: AsyncGenerator[AnyEvent], format: AnswerFormat
) -> AsyncGenerator[bytes]:
    """Yield the events of a run encoded for the client; an error becomes the last event."""
    try:
        async with aclosing(events):
            async for event in events:
                if chunk := b"".join(format.encode(event)):
                    yield chunk
        yield format.end
    except HTTPError as problem:
        yield format.encode_error(problem)
    except SennitError as error:
        yield format.encode_error(error_for(error))


async def locate_once(
    idempotent: IdempotentRequest | None,
    locator: Locator,
    locate: Callable[[], Awaitable[BranchLocation]],
) -> tuple[BranchLocation, StoredResponse | None]:
    """Return where a request continues, and the stored response to an idempotent request."""
    if idempotent is None:
        return await locate(), None
    if (stored := await idempotent.find_stored(locator)) is not None:
        return await to_thread(locate_stored, stored), stored
    location = await locate()
    idempotent.record(location.session.id)
    return location, None


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with an Idempotency-Key, which is answered once."""

    uid: UUID
    """The id of its first message."""
    digest: str
    """The hash of its body: another body under the same key is an error."""
    lock: Lock
    """Serializes the retries within this process; those of others meet in the store."""
    caller: Caller
    cache: BranchCache

    def record(self, session: UUID) -> None:
        """Cache the session of the request."""
        self.cache.add_request(self.caller.client, self.uid, session, self.digest)

    async def find_stored(self, locator: Locator) -> StoredResponse | None:
        """Return the stored response, waiting while another process answers the request.

        Raises HTTPError 422 if the key was used for another request.
        """
        record = self.cache.find_request(self.caller.client, self.uid)
        if record is not None:
            self.check(record[1])
        ended = False
        while True:
            stored = await to_thread(self._find_stored, locator)
            if stored is None:
                return None
            self.check(stored.first.metadata.get("request"))
            if ended or stored.answer.is_complete:
                return stored
            ended = not await to_thread(has_active_run, RunRepository(stored.branch))
            if not ended:
                await sleep(_POLL_SECONDS)

    def _find_stored(self, locator: Locator) -> StoredResponse | None:
        sessions = locator.sessions_with(self.uid)
        return next(filter(None, (stored_in(session, self.uid) for session in sessions)), None)

    def check(self, digest: Any) -> None:
        """Raise HTTPError 422 if the key was used for another request."""
        if digest != self.digest:
            message = "This Idempotency-Key was used for another request; send a new key with each."
            raise HTTPError(422, "idempotency_key_reused", message)

    @property
    def notes(self) -> dict[str, Any]:
        """The metadata stored with the messages."""
        return {"request": self.digest}


def idempotent_request(request: HTTPRequest, body: AnswerRequest) -> IdempotentRequest | None:
    """Return the request with its idempotency key; None if the client sent no key."""
    key = request.header("idempotency-key")
    if not key:
        return None
    uid = derived_id(request.caller.client, "once", request.http["path"], key)
    headers = [request.header(f"x-sennit-{name}") for name in _METADATA_KEYS]
    payload = msgspec.json.encode([headers, body] if any(headers) else body)
    digest = blake2b(payload, digest_size=16).hexdigest()
    cache = request.server.branch_cache
    return IdempotentRequest(uid, digest, cache.lock(uid), request.caller, cache)
