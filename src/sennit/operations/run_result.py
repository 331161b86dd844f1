"""The value of an operation from the result of a run, or the error.

There is one turn loop; operations that use tools are calls of it. What it tells in a Return becomes
here what `communicate` gives and raises, so that a program can change from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

from sennit.errors import (
    AccessError,
    ConflictError,
    ModelError,
    OutputError,
    RunError,
    SennitError,
)
from sennit.messages.content import ActionRequestContent, InstructionContent
from sennit.messages.output_schema import ModelSchema, as_model, model_name, model_schema
from sennit.messages.unset import Unset
from sennit.operations.output_validation import fitted
from sennit.operations.structured_output import objection, problems_told, said_nothing, unfit
from sennit.services.models.protocol import shapes_output
from sennit.turns.conversation import ConversationSession
from sennit.turns.options import SessionOptions
from sennit.turns.request import Request
from sennit.turns.result import Return

if TYPE_CHECKING:
    from sennit.messages.message import Message
    from sennit.messages.output_schema import Model

_LIMITS = {one.name for one in fields(SessionOptions)} - {"process_tools", "on_cancel"}
_REFUSED: Mapping[str, type[SennitError]] = {"access": AccessError, "busy": ConflictError}


def parted(given: Mapping[str, Any]) -> tuple[SessionOptions, dict[str, Any]]:
    """The limits of a run, and the parameters of its model; raises for a limit that is none."""
    limits = {name: value for name, value in given.items() if name in _LIMITS}
    return SessionOptions(**limits), {key: given[key] for key in given if key not in _LIMITS}


def form_of(said: Message) -> Model | None:
    """The form an instruction asks its answer to have, if it asks for one."""
    content = said.content
    assert isinstance(content, InstructionContent)
    wanted = content.response_model
    return None if wanted is Unset else as_model(wanted, "response_model")


async def held_to(request: Request, wanted: Model | None) -> Request:
    """The same request, with each text in the form, if the model can be held to one."""
    if wanted is None or not await shapes_output(request.model):
        return request
    return replace(request, output=ModelSchema(model_name(wanted), model_schema(wanted)))


async def answered(request: Request, said: Message, options: SessionOptions, repairs: int) -> Any:
    """Return the answer to an instruction: text, or a value that fits its schema.

    Raises what the operations say that they raise.
    """
    wanted = form_of(said)
    if wanted is not None:
        return await _in_form(request, said, options, wanted, repairs)
    result = _sound(request, await ConversationSession(request).say(said, options))
    result.raise_for_error()
    if not result.answer:
        raise said_nothing(request.model_name, result.metrics.finish_reason)
    return result.answer


async def _in_form(
    request: Request, said: Message, options: SessionOptions, wanted: Model, repairs: int
) -> Any:
    asked = 1

    def check(answer: str, finish: str | None) -> str | None:
        nonlocal asked
        try:
            fitted(answer, wanted)
        except OutputError as error:
            if asked <= repairs:
                asked += 1
                return objection(problems_told(error, finish), wanted)
        return None

    ended = await ConversationSession(request).say(said, options, check=check)
    if _is_refused_for_its_form(request, ended):
        # What was said stands on the branch, and asks for the form in words as well.
        in_words = ConversationSession(replace(request, output=None))
        ended = await in_words.say((), options, check=check)
    result = _sound(request, ended)
    if not result.success and result.stop_reason != "length":
        result.raise_for_error()
    try:
        return fitted(result.answer, wanted)
    except OutputError as error:
        problems = problems_told(error, result.metrics.finish_reason)
        raise unfit(request.model_name, wanted, asked, problems, result.answer) from error


def _is_refused_for_its_form(request: Request, result: Return) -> bool:
    """Return whether it may be the schema that the provider does not take."""
    error = result.error
    held = request.output is not None
    return held and isinstance(error, ModelError) and error.kind == "bad_request"


def _sound(request: Request, result: Return) -> Return:
    """The Return of a run that came to an end; raises what kept it from one."""
    if result.stop_reason == "suspended":
        _raise_waiting(request, result)
    if isinstance(result.error, SennitError):
        raise result.error
    for notice in result.messages if result.stop_reason == "invalid" else ():
        if notice.code in _REFUSED:
            raise _REFUSED[notice.code](notice.text)
    return result


def _raise_waiting(request: Request, result: Return) -> NoReturn:
    waiting = (message.content for message in request.pending())
    calls = [one.call_id for one in waiting if isinstance(one, ActionRequestContent)]
    raise RunError(
        f"Tool calls wait for approval: {calls}. Call approve() or deny() on a conversation with "
        f"the same model and tools on branch {request.branch.name!r}; the run continues there.",
        result,
    )
