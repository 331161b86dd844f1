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
from sennit.operations.output_validation import validate_output
from sennit.operations.structured_output import (
    empty_answer_error,
    repair_problems,
    repair_prompt,
    unfit_error,
)
from sennit.services.models.protocol import supports_output_schema
from sennit.turns.conversation import ConversationSession
from sennit.turns.options import SessionOptions
from sennit.turns.request import Request
from sennit.turns.result import Return

if TYPE_CHECKING:
    from sennit.messages.message import Message
    from sennit.messages.output_schema import Model

_LIMIT_NAMES = {option.name for option in fields(SessionOptions)} - {"process_tools", "on_cancel"}
_REFUSAL_ERRORS: Mapping[str, type[SennitError]] = {"access": AccessError, "busy": ConflictError}


def split_options(arguments: Mapping[str, Any]) -> tuple[SessionOptions, dict[str, Any]]:
    """The limits of a run, and the parameters of its model; raises for a limit that is none."""
    limits = {name: value for name, value in arguments.items() if name in _LIMIT_NAMES}
    return SessionOptions(**limits), {
        key: arguments[key] for key in arguments if key not in _LIMIT_NAMES
    }


def output_schema_of(message: Message) -> Model | None:
    """The form an instruction asks its answer to have, if it asks for one."""
    content = message.content
    assert isinstance(content, InstructionContent)
    response_model = content.response_model
    return None if response_model is Unset else as_model(response_model, "response_model")


async def with_output_schema(request: Request, schema: Model | None) -> Request:
    """The same request, with each text in the form, if the model can be held to one."""
    if schema is None or not await supports_output_schema(request.model):
        return request
    return replace(request, output=ModelSchema(model_name(schema), model_schema(schema)))


async def run_for_answer(
    request: Request, message: Message, options: SessionOptions, repairs: int
) -> Any:
    """Return the answer to an instruction: text, or a value that fits its schema.

    Raises what the operations say that they raise.
    """
    schema = output_schema_of(message)
    if schema is not None:
        return await _run_for_value(request, message, options, schema, repairs)
    result = _checked_result(request, await ConversationSession(request).say(message, options))
    result.raise_for_error()
    if not result.answer:
        raise empty_answer_error(request.model_name, result.metrics.finish_reason)
    return result.answer


async def _run_for_value(
    request: Request, message: Message, options: SessionOptions, schema: Model, repairs: int
) -> Any:
    attempts = 1

    def check(answer: str, finish: str | None) -> str | None:
        nonlocal attempts
        try:
            validate_output(answer, schema)
        except OutputError as error:
            if attempts <= repairs:
                attempts += 1
                return repair_prompt(repair_problems(error, finish), schema)
        return None

    outcome = await ConversationSession(request).say(message, options, check=check)
    if _is_schema_refused(request, outcome):
        # What was said stands on the branch, and asks for the form in words as well.
        conversation = ConversationSession(replace(request, output=None))
        outcome = await conversation.say((), options, check=check)
    result = _checked_result(request, outcome)
    if not result.success and result.stop_reason != "length":
        result.raise_for_error()
    try:
        return validate_output(result.answer, schema)
    except OutputError as error:
        problems = repair_problems(error, result.metrics.finish_reason)
        raise unfit_error(request.model_name, schema, attempts, problems, result.answer) from error


def _is_schema_refused(request: Request, result: Return) -> bool:
    """Return whether it may be the schema that the provider does not take."""
    error = result.error
    has_schema = request.output is not None
    return has_schema and isinstance(error, ModelError) and error.kind == "bad_request"


def _checked_result(request: Request, result: Return) -> Return:
    """The Return of a run that came to an end; raises what kept it from one."""
    if result.stop_reason == "suspended":
        _raise_approval_needed(request, result)
    if isinstance(result.error, SennitError):
        raise result.error
    for notice in result.messages if result.stop_reason == "invalid" else ():
        if notice.code in _REFUSAL_ERRORS:
            raise _REFUSAL_ERRORS[notice.code](notice.text)
    return result


def _raise_approval_needed(request: Request, result: Return) -> NoReturn:
    contents = (message.content for message in request.pending())
    calls = [content.call_id for content in contents if isinstance(content, ActionRequestContent)]
    raise RunError(
        f"Tool calls wait for approval: {calls}. Call approve() or deny() on a conversation with "
        f"the same model and tools on branch {request.branch.name!r}; the run continues there.",
        result,
    )
