"""operate and react: operations that are calls of the turn loop.

Unlike `communicate`, they call tools. Messages and tool results are stored on the branch as they
happen and stay there if the run fails, because a tool that was called has taken effect. The Return
of the run becomes the value or the error that `communicate` has, so that a program can change from
one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NoReturn

from sennit.errors import (
    AccessError,
    ConflictError,
    RunError,
    SennitError,
    ValidationError,
)
from sennit.messages.content import ActionRequestContent, InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.output_schema import as_model
from sennit.messages.output_validation import DEFAULT_REPAIRS
from sennit.messages.unset import Unset
from sennit.numbers import count
from sennit.operations.context import OperationContext, instruction_message
from sennit.operations.params import Tools
from sennit.operations.structured_output import empty_answer_error
from sennit.services.models.protocol import Model
from sennit.turns.options import RunInput, SessionOptions
from sennit.turns.output import RunOutput
from sennit.turns.request import Request
from sennit.turns.result import Return
from sennit.turns.runner import Runner

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
    tools: Tools = (),
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
    tools: Tools,
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
    files: Any = None,
    response_model: Any = None,
    sender: SenderRecipient | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **limits_and_params: Any,
) -> Any:
    count(repairs, "repairs", 0)
    limits = {name: limits_and_params.pop(name) for name in _LIMIT_NAMES & limits_and_params.keys()}
    options = replace(SessionOptions(**limits), repairs=repairs)
    request = Request.of(where.branch, model=imodel, tools=tools, **limits_and_params)
    message, content = instruction_message(
        where,
        instruction,
        sender=sender,
        context=context,
        images=images,
        image_detail=image_detail,
        files=files,
        response_model=response_model,
    )
    output = None
    if content.response_model is not Unset:
        schema = as_model(content.response_model, "response_model")
        output = RunOutput(schema, native=not in_steps)
    if in_steps:
        message = _with_guidance(message, content)
    run_input = RunInput(say=(message,), output=output)
    runner = Runner(request, (), greets=False)
    result = await runner.run(options, None, lambda _: None, run_input=run_input)
    _raise_service_error(request, result)
    if output is not None:
        return result.output
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


def _raise_service_error(request: Request, result: Return) -> None:
    """Raise the error of a run that failed or waits for approval as `communicate` would."""
    if result.stop_reason == "suspended":
        _raise_approval_needed(request, result)
    if isinstance(result.error, SennitError):
        raise result.error
    for notice in result.notices if result.stop_reason == "invalid" else ():
        if notice.code in _REFUSAL_ERRORS:
            raise _REFUSAL_ERRORS[notice.code](notice.text)


def _raise_approval_needed(request: Request, result: Return) -> NoReturn:
    contents = (message.content for message in request.pending())
    calls = [content.call_id for content in contents if isinstance(content, ActionRequestContent)]
    raise RunError(
        f"Tool calls wait for approval: {calls}. Call approve() or deny() on a conversation with "
        f"the same model and tools on branch {request.branch.name!r}; the run continues there.",
        result,
    )
