"""One turn for an OpenAI client: a run with a single model call, streamed or not.

The tools are the client's: tool calls are returned to it, and it sends the results with its next
request. If the branch is busy or has moved on, the run continues on a fork, so every client sees
exactly the conversation it sent. A client disconnect cancels the run; the text so far is stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from sennit.errors import (
    ModelError,
    NotFoundError,
    SennitError,
    ValidationError,
    did_you_mean,
    listed,
)
from sennit.messages.output_schema import ModelSchema
from sennit.messages.unset import Unset
from sennit.server.active_runs import MemoryOptions, run_notes
from sennit.server.http.errors import HTTPError, bad_param, error_for
from sennit.server.openai.locate import BranchLocation, fork_location, with_schema
from sennit.server.state import ServerState
from sennit.services.models.protocol import Model, supports_output_schema
from sennit.services.tools.tool import Tool
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent, RunEnded
from sennit.turns.options import SessionOptions, WhenBusy
from sennit.turns.request import RequestDraft
from sennit.turns.result import Return

ONE_ANSWER = SessionOptions(process_tools=False, max_turns=1, summarize_at=None)
"""One model call, without summarizing: the client must learn that its context is too long."""

_STATUSES: Mapping[str, tuple[int, str]] = {
    "auth": (502, "model_auth"),
    "bad_request": (400, "model_refused_request"),
    "not_found": (404, "model_not_found"),
    "context": (400, "context_length_exceeded"),
    "rate_limit": (429, "rate_limit_exceeded"),
    "overloaded": (503, "overloaded"),
    "timeout": (504, "timeout"),
    "network": (502, "network"),
    "busy": (503, "overloaded"),
}
_CONTEXT_EXCEEDED = (
    "This model's maximum context length is exceeded: the prompt is too long; "
    "shorten the conversation."
)
"""The words by which clients of OpenAI and of Anthropic and gateways recognise the error."""
_REJECTION_STATUSES: Mapping[str, int] = {"access": 403, "busy": 409, "empty": 400}


class TurnOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answers, its tools and options."""

    model: Model
    tools: tuple[Tool, ...] = ()
    schema: ModelSchema | None = None
    params: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    use_memory: bool = False
    """Whether memories are added to the prompt."""
    when_busy: WhenBusy = "error"
    """What happens if another run is active on a branch that the request may not leave."""

    @property
    def run_options(self) -> SessionOptions:
        """The options of the run."""
        return replace(ONE_ANSWER, when_busy=self.when_busy)


def find_model(server: ServerState, name: str) -> Model:
    """Return the model with a name; raise HTTPError 404 if there is none."""
    model = server.models.get(name)
    if model is None:
        names, hint = listed(server.models), did_you_mean(name, server.models)
        message = f"There is no model {name[:200]!r}; available: {names}.{hint}"
        raise HTTPError(404, "model_not_found", message, param="model")
    return model


async def run_turn(location: BranchLocation, options: TurnOptions) -> tuple[BranchLocation, Return]:
    """Run a turn, and return where it ran and its result; raise HTTPError if it failed."""
    while True:
        location, conversation = await _prepare(location, options)
        if location.resumes:
            result = await conversation.aresume(options.run_options)
        else:
            result = await conversation.asay(
                location.new_messages,
                _run_options(location, options),
                at=location.at,
                last=location.last,
            )
        if not _must_move(result, location):
            _record_answer(location, result)
            return location, raise_for_failure(result)
        location = await _move(location)


async def stream_turn(
    location: BranchLocation, options: TurnOptions, *, pieces: bool = True
) -> AsyncGenerator[AnyEvent]:
    """Run a turn and yield its events; closing the generator cancels the run.

    Without `pieces` text arrives in whole messages, and the model need not stream. Raises HTTPError
    if the run cannot start, AccessError if it is not allowed.
    """
    while True:
        location, conversation = await _prepare(location, options)
        result = Return()
        start: dict[str, Any] = (
            {"resume": True} if location.resumes else {"at": location.at, "last": location.last}
        )
        run_options = _run_options(location, options)
        stream = conversation.events(
            location.new_messages or None, run_options, pieces=pieces, **start
        )
        async with stream as events:
            async for event in events:
                if isinstance(event, RunEnded):
                    result = event.result
                    if _must_move(result, location):
                        break
                    _record_answer(location, result)
                yield event
            else:
                return
        location = await _move(location)


async def _prepare(
    location: BranchLocation, options: TurnOptions
) -> tuple[BranchLocation, ConversationSession]:
    """Return the conversation to run; raise HTTPError 400 for params that the model rejects.

    Raises AccessError for a model or tool that the branch was not granted.
    """
    contexts: Iterable[Any] = ()
    if options.use_memory:
        from sennit.memory.retrieval.prompt_context import MemoryContext

        contexts = [MemoryContext(location.session.memory)]
    try:
        draft = RequestDraft.of(
            location.session.services,
            model=options.model,
            tools=options.tools,
            contexts=contexts,
            **options.params,
        )
    except ValidationError as error:
        raise bad_param(None, str(error)) from None
    memory = MemoryOptions(recalled=options.use_memory, other_sessions=False)
    request = draft.on(location.branch, run_notes(options.params, memory))
    if location.system is not Unset:
        request = replace(request, system=location.system)
    if options.schema is None:
        return location, ConversationSession(request)
    if not await supports_output_schema(request.model):
        return with_schema(location, options.schema), ConversationSession(request)
    return location, ConversationSession(replace(request, output=options.schema))


async def _move(location: BranchLocation) -> BranchLocation:
    """Return another location, because the branch is busy, has moved on or is gone."""
    if location.locator is None:
        return await fork_location(location)
    return await location.locator.move(location)


def _run_options(location: BranchLocation, options: TurnOptions) -> SessionOptions:
    """Return the options of a run: where the request may fork, a busy branch is left at once."""
    return ONE_ANSWER if location.at is not None else options.run_options


def _record_answer(location: BranchLocation, result: Return) -> None:
    """Cache the answer, by which the next request finds the conversation."""
    if location.locator is not None:
        answer = result.body.interactions[len(location.new_messages) :]
        location.locator.record(location.branch, answer)


def _must_move(result: Return, location: BranchLocation) -> bool:
    """Return whether to retry on another branch: this one is busy, has moved on or is gone."""
    if isinstance(result.error, NotFoundError) and not result.body.interactions:
        return location.may_be_stale
    rejected = result.stop_reason == "invalid" and location.at is not None
    return rejected and result.notices[0].code in ("busy", "moved")


def raise_for_failure(result: Return) -> Return:
    """Return the result if it has an answer, complete or truncated; else raise HTTPError."""
    if result.stop_reason in ("stable", "length"):
        return result
    raise error_of(result)


def error_of(result: Return) -> HTTPError:
    """Return the HTTP error for a failed run."""
    if result.stop_reason == "cancelled":
        return HTTPError(503, "cancelled", "The answer was cancelled; the text so far is stored.")
    error, notice = result.error, result.notices[-1]
    if isinstance(error, ModelError):
        status, code = _STATUSES.get(error.kind, (502, "model"))
        retry_after = None if error.retry_after is None else str(max(1, round(error.retry_after)))
        headers = {} if retry_after is None else {"retry-after": retry_after}
        message = f"{_CONTEXT_EXCEEDED} {error}" if error.kind == "context" else str(error)
        return HTTPError(status, code, message, headers=headers)
    if isinstance(error, SennitError):
        return error_for(error)
    return HTTPError(_REJECTION_STATUSES.get(notice.code, 502), notice.code, notice.text)
