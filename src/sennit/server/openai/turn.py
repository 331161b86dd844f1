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
    found = server.models.get(name)
    if found is None:
        there = ", ".join(map(repr, server.models))
        told = f"There is no model {name[:200]!r} here; there are: {there}."
        raise HTTPError(404, "model_not_found", told, param="model")
    return found


async def answered(place: BranchLocation, wanted: TurnOptions) -> tuple[BranchLocation, Return]:
    """The end of a run that was not watched, and where it ran; raises Problem if it failed."""
    while True:
        place, conversation = await _prepared(place, wanted)
        if place.resumes:
            result = await conversation.resume(ONE_ANSWER)
        else:
            result = await conversation.say(place.say, ONE_ANSWER, at=place.at, last=place.last)
        if not _elsewhere(result, place):
            _note(place, result)
            return place, sound(result)
        place = await _moved(place)


async def watched(place: BranchLocation, wanted: TurnOptions) -> AsyncGenerator[AnyEvent]:
    """A run as it happens; closing it stops the run and keeps what was said.

    Raises Problem if the run cannot begin, AccessError if it may not.
    """
    while True:
        place, conversation = await _prepared(place, wanted)
        result = Return()
        how: dict[str, Any] = (
            {"resume": True} if place.resumes else {"at": place.at, "last": place.last}
        )
        begun = conversation.events(ONE_ANSWER, say=place.say or None, **how)
        async with begun as watch:
            async for event in watch:
                if isinstance(event, RunEnded):
                    result = event.result
                    if _elsewhere(result, place):
                        break
                    _note(place, result)
                yield event
            else:
                return
        place = await _moved(place)


async def _prepared(
    place: BranchLocation, wanted: TurnOptions
) -> tuple[BranchLocation, ConversationSession]:
    """Return the conversation; raises AccessError, HTTPError 400 for what a model cannot take."""
    contexts: Iterable[Any] = ()
    if wanted.remembers:
        from sennit.memory.retrieval.prompt_context import MemoryContext

        contexts = [MemoryContext(place.session.memory)]
    try:
        draft = RequestDraft.of(
            place.session.services,
            model=wanted.model,
            tools=wanted.tools,
            contexts=contexts,
            **wanted.params,
        )
    except ValidationError as error:
        raise bad(None, str(error)) from None
    memory = MemoryOptions(recalled=wanted.remembers, other_sessions=False)
    request = draft.on(place.branch, run_notes(wanted.params, memory))
    if place.system is not Unset:
        request = replace(request, system=place.system)
    if wanted.form is None:
        return place, ConversationSession(request)
    if not await shapes_output(request.model):
        return asked_in_form(place, wanted.form), ConversationSession(request)
    return place, ConversationSession(replace(request, output=wanted.form))


async def _moved(place: BranchLocation) -> BranchLocation:
    """Return the fork to continue on, because the branch is busy or has moved on.

    What is not there any more, or may have been changed, is looked for once more.
    """
    if place.again is not None:
        return await place.again()
    beside = await aside(place, place.branch.system_id if place.system is Unset else place.system)
    if beside.story is not None:
        beside.story.moves_to(beside.branch)
    return beside


def _note(place: BranchLocation, result: Return) -> None:
    """Remember what was answered, by which the conversation is found when it goes on."""
    if place.story is not None:
        place.story.ended(place.branch, result.body.interactions[len(place.say) :])


def _elsewhere(result: Return, place: BranchLocation) -> bool:
    """Return whether it has to be tried elsewhere: the branch is not, or not any more, this
    history's.
    """
    if isinstance(result.error, NotFoundError) and not result.body.interactions:
        return place.again is not None
    refused = result.stop_reason == "invalid" and place.at is not None
    return refused and result.messages[0].code in ("busy", "moved")


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
        after = None if error.retry_after is None else str(max(1, round(error.retry_after)))
        headers = {} if after is None else {"retry-after": after}
        return HTTPError(status, code, str(error), headers=headers)
    if isinstance(error, SennitError):
        return problem_of(error)
    return HTTPError(_REFUSED.get(notice.code, 502), notice.code, notice.text)
