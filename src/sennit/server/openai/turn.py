"""One turn for an OpenAI client: a run with one answer, streamed or not.

The tools are the client's: the model's calls go back to it, and it sends what came of them as what
it says next. A branch on which somebody else is busy, or was faster, is left by a fork, so that
every client sees exactly the conversation it sent. Whoever goes away stops the model, and what was
said until then is kept.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from sennit.errors import ModelError, NotFoundError, SennitError, ValidationError
from sennit.messages.output_schema import ModelSchema
from sennit.messages.unset import Unset
from sennit.server.active_runs import MemoryOptions, run_notes
from sennit.server.http.errors import HTTPError, problem_of
from sennit.server.openai.chat_schemas import bad
from sennit.server.openai.locate import BranchLocation, aside, asked_in_form
from sennit.server.state import ServerState
from sennit.services.models.protocol import Model, shapes_output
from sennit.services.tools.tool import Tool
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent, RunEnded
from sennit.turns.options import SessionOptions
from sennit.turns.request import RequestDraft
from sennit.turns.result import Return

ONE_ANSWER = SessionOptions(process_tools=False, max_turns=1, summarize_at=None)
"""One provider turn; a conversation that is too long is refused, as its client has to know."""

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
_REFUSED: Mapping[str, int] = {"access": 403, "busy": 409, "empty": 400}


class TurnOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answers, its tools and options."""

    model: Model
    tools: tuple[Tool, ...] = ()
    form: ModelSchema | None = None
    params: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    remembers: bool = False
    """Whether the model is told what is remembered."""


def known_model(server: ServerState, name: str) -> Model:
    """The model of that name; raises HTTPError 404."""
    model = server.models.get(name)
    if model is None:
        names = ", ".join(map(repr, server.models))
        message = f"There is no model {name[:200]!r} here; there are: {names}."
        raise HTTPError(404, "model_not_found", message, param="model")
    return model


async def answered(location: BranchLocation, options: TurnOptions) -> tuple[BranchLocation, Return]:
    """The end of a run that was not watched, and where it ran; raises Problem if it failed."""
    while True:
        location, conversation = await _prepared(location, options)
        if location.resumes:
            result = await conversation.resume(ONE_ANSWER)
        else:
            result = await conversation.say(location.say, ONE_ANSWER, at=location.at, last=location.last)
        if not _elsewhere(result, location):
            _note(location, result)
            return location, sound(result)
        location = await _moved(location)


async def watched(location: BranchLocation, options: TurnOptions) -> AsyncGenerator[AnyEvent]:
    """A run as it happens; closing it stops the run and keeps what was said.

    Raises Problem if the run cannot begin, AccessError if it may not.
    """
    while True:
        location, conversation = await _prepared(location, options)
        result = Return()
        start: dict[str, Any] = (
            {"resume": True} if location.resumes else {"at": location.at, "last": location.last}
        )
        stream = conversation.events(ONE_ANSWER, say=location.say or None, **start)
        async with stream as events:
            async for event in events:
                if isinstance(event, RunEnded):
                    result = event.result
                    if _elsewhere(result, location):
                        break
                    _note(location, result)
                yield event
            else:
                return
        location = await _moved(location)


async def _prepared(
    location: BranchLocation, options: TurnOptions
) -> tuple[BranchLocation, ConversationSession]:
    """Return the conversation; raises AccessError, HTTPError 400 for what a model cannot take."""
    contexts: Iterable[Any] = ()
    if options.remembers:
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
        raise bad(None, str(error)) from None
    memory = MemoryOptions(recalled=options.remembers, other_sessions=False)
    request = draft.on(location.branch, run_notes(options.params, memory))
    if location.system is not Unset:
        request = replace(request, system=location.system)
    if options.form is None:
        return location, ConversationSession(request)
    if not await shapes_output(request.model):
        return asked_in_form(location, options.form), ConversationSession(request)
    return location, ConversationSession(replace(request, output=options.form))


async def _moved(location: BranchLocation) -> BranchLocation:
    """Return the fork to continue on, because the branch is busy or has moved on.

    What is not there any more, or may have been changed, is looked for once more.
    """
    if location.again is not None:
        return await location.again()
    fork = await aside(location, location.branch.system_id if location.system is Unset else location.system)
    if fork.story is not None:
        fork.story.moves_to(fork.branch)
    return fork


def _note(location: BranchLocation, result: Return) -> None:
    """Remember what was answered, by which the conversation is found when it goes on."""
    if location.story is not None:
        location.story.ended(location.branch, result.body.interactions[len(location.say) :])


def _elsewhere(result: Return, location: BranchLocation) -> bool:
    """Return whether it has to be tried elsewhere: the branch is not, or not any more, this
    history's.
    """
    if isinstance(result.error, NotFoundError) and not result.body.interactions:
        return location.again is not None
    rejected = result.stop_reason == "invalid" and location.at is not None
    return rejected and result.messages[0].code in ("busy", "moved")


def sound(result: Return) -> Return:
    """The same if there is an answer, cut off or not; raises Problem if there is none."""
    if result.stop_reason in ("stable", "length"):
        return result
    raise problem_in(result)


def problem_in(result: Return) -> HTTPError:
    """Return the HTTP error for a failed run."""
    if result.stop_reason == "cancelled":
        return HTTPError(503, "cancelled", "The answer was stopped; the text so far is kept.")
    error, notice = result.error, result.messages[-1]
    if isinstance(error, ModelError):
        status, code = _STATUSES.get(error.kind, (502, "model"))
        retry_after = None if error.retry_after is None else str(max(1, round(error.retry_after)))
        headers = {} if retry_after is None else {"retry-after": retry_after}
        return HTTPError(status, code, str(error), headers=headers)
    if isinstance(error, SennitError):
        return problem_of(error)
    return HTTPError(_REFUSED.get(notice.code, 502), notice.code, notice.text)
