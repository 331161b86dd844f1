"""operate and react: operations that are calls of the turn loop.

Unlike `communicate`, they call tools. Messages and tool results are stored on the branch as they
happen and stay there if the run fails, because a tool that was called has taken effect. The Return
of the run becomes the value or the error that `communicate` has, so that a program can change from
one to the other.
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
    ValidationError,
)
from sennit.messages.content import ActionRequestContent, InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.output_schema import ModelSchema, as_model, model_name, model_schema
from sennit.messages.unset import Unset
from sennit.numbers import count
from sennit.operations.context import OperationContext, instruction_message
from sennit.operations.output_validation import validate_output
from sennit.operations.structured_output import (
    DEFAULT_REPAIRS,
    empty_answer_error,
    repair_problems,
    repair_prompt,
    unfit_error,
)
from sennit.services.models.protocol import Model, supports_output_schema
from sennit.turns.conversation import ConversationSession
from sennit.turns.options import SessionOptions
from sennit.turns.request import Request
from sennit.turns.result import Return

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model as Schema

GUIDANCE = (
    "Work in steps. In each step first say in a sentence or two what you know and what you still "
    "need to find out; then call one tool, and look at its result before the next step. When you "
    "know enough, answer without calling a tool."
)
_ANSWER_FORM_NOTE = " The form below is that of the answer alone."
_REACT_LIMITS = {"max_turns": 16, "max_tool_passes": 15}
_LIMIT_NAMES = {option.name for option in fields(SessionOptions)} - {"process_tools", "on_cancel"}
_REFUSAL_ERRORS: Mapping[str, type[SennitError]] = {"access": AccessError, "busy": ConflictError}


async def operate(
    where: OperationContext,
    /,
    *,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    tools: Any = (),
    **options: Any,
) -> Any:
    """Return the answer to an instruction, after tool calls: text, or a value of `response_model`.

    `options` are those of `communicate` (`context`, `response_model`, `repairs`, …), limits of
    SessionOptions (`max_turns`, `budget`, …) and parameters of the model. Raises ModelError,
    OutputError if no answer fits after `repairs` further attempts, ConflictError if another run
    holds the branch, and RunError if the run stopped early: at a limit, or because a tool needs
    approval.
    """
    return await _operate(where, instruction, imodel, where.tools(tools), **options)


async def react(
    where: OperationContext,
    /,
    *,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    tools: Any,
    **options: Any,
) -> Any:
    """Return the answer to an instruction, found by reasoning and acting in steps.

    It takes and raises what `operate` does, and asks the model to reason in words before each step.
    So the steps have no output schema, which would leave no room for words; only the answer is
    validated. The limit is 16 turns unless `max_turns` and `max_tool_passes` are given.
    """
    if not (tool_list := where.tools(tools)):
        raise ValidationError("react needs tools; without tools, use communicate.")
    options = {**_REACT_LIMITS, **options}
    return await _operate(where, instruction, imodel, tool_list, in_steps=True, **options)


async def _operate(
    where: OperationContext,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    tools: list[Any],
    *,
    in_steps: bool = False,
    context: Any = None,
    images: Any = None,
    image_detail: Any = None,
    response_model: Any = None,
    sender: SenderRecipient | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **limits_and_params: Any,
) -> Any:
    count(repairs, "repairs", 0)
    limits = {name: limits_and_params.pop(name) for name in _LIMIT_NAMES & limits_and_params.keys()}
    options = SessionOptions(**limits)
    request = Request.of(where.branch, model=imodel, tools=tools, **limits_and_params)
    message, content = instruction_message(
        where,
        instruction,
        sender=sender,
        context=context,
        images=images,
        image_detail=image_detail,
        response_model=response_model,
    )
    schema = None
    if content.response_model is not Unset:
        schema = as_model(content.response_model, "response_model")
    if in_steps:
        message = _with_guidance(message, content)
    elif schema is not None and await supports_output_schema(request.model):
        request = replace(request, output=ModelSchema(model_name(schema), model_schema(schema)))
    if schema is not None:
        return await _run_for_value(request, message, options, schema, repairs)
    result = _checked_result(request, await ConversationSession(request).asay(message, options))
    result.raise_for_error()
    if not result.answer:
        raise empty_answer_error(request.model_name, result.metrics.finish_reason)
    return result.answer


def _with_guidance(message: Message, content: InstructionContent) -> Message:
    """Return the instruction with the request to work in steps in its context."""
    guidance = GUIDANCE + ("" if content.response_model is Unset else _ANSWER_FORM_NOTE)
    context = [*(content.context or ()), guidance]
    return Message(
        content.with_updates(context=context),
        id=message.id,
        sender=message.sender,
        recipient=message.recipient,
        metadata=message.metadata,
    )


async def _run_for_value(
    request: Request, message: Message, options: SessionOptions, schema: Schema, repairs: int
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

    outcome = await ConversationSession(request).asay(message, options, check=check)
    if _is_schema_refused(request, outcome):
        # The instruction is on the branch already, and describes the schema in words as well.
        conversation = ConversationSession(replace(request, output=None))
        outcome = await conversation.asay((), options, check=check)
    result = _checked_result(request, outcome)
    if not result.success and result.stop_reason != "length":
        result.raise_for_error()
    try:
        return validate_output(result.answer, schema)
    except OutputError as error:
        problems = repair_problems(error, result.metrics.finish_reason)
        raise unfit_error(request.model_name, schema, attempts, problems, result.answer) from error


def _is_schema_refused(request: Request, result: Return) -> bool:
    """Return whether the provider may have rejected the schema."""
    error = result.error
    has_schema = request.output is not None
    return has_schema and isinstance(error, ModelError) and error.kind == "bad_request"


def _checked_result(request: Request, result: Return) -> Return:
    """Return the result of a run that ended; raises the error of one that did not."""
    if result.stop_reason == "suspended":
        _raise_approval_needed(request, result)
    if isinstance(result.error, SennitError):
        raise result.error
    for notice in result.notices if result.stop_reason == "invalid" else ():
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
