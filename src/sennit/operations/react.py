"""react: reason, act and observe, until the answer is known.

It is `operate` with a model that is asked to think in words before each step. So it is not held to
a form on the way, which would leave it no words; the form is that of the answer alone, and checked.
"""

from __future__ import annotations

from typing import Any

from sennit.errors import ValidationError
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.unset import Unset
from sennit.operations.context import OperationContext
from sennit.operations.instruction import instruction_message
from sennit.operations.run_result import run_for_answer, split_options
from sennit.operations.structured_output import DEFAULT_REPAIRS, checked_repairs
from sennit.services.models.protocol import Model
from sennit.turns.request import Request

GUIDANCE = (
    "Work in steps. In each step first say in a sentence or two what you know and what you still "
    "need to find out; then call one tool, and look at its result before the next step. When you "
    "know enough, answer without calling a tool."
)
_ANSWER_FORM_NOTE = " The form below is that of the answer alone."
_DEFAULT_LIMITS = {"max_turns": 16, "max_tool_passes": 15}


async def react(
    where: OperationContext,
    /,
    *,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    tools: Any,
    context: Any = None,
    images: Any = None,
    image_detail: Any = None,
    response_model: Any = None,
    sender: SenderRecipient | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **limits_and_params: Any,
) -> Any:
    """The answer to an instruction, found step by step with tools; takes and raises as `operate`.

    The steps stand on the branch: what the model thought, what it called and what came of it.
    It may take 16 turns unless `max_turns` and `max_tool_passes` say otherwise.
    """
    checked_repairs(repairs)
    tool_list = where.tools(tools)
    if not tool_list:
        raise ValidationError("react needs tools; without tools, use communicate.")
    options, params = split_options({**_DEFAULT_LIMITS, **limits_and_params})
    request = Request.of(where.branch, model=imodel, tools=tool_list, **params)
    message, content = instruction_message(
        where,
        instruction,
        sender=sender,
        context=context,
        images=images,
        image_detail=image_detail,
        response_model=response_model,
    )
    return await run_for_answer(request, _with_guidance(message, content), options, repairs)


def _with_guidance(message: Message, content: InstructionContent) -> Message:
    """The instruction with a word on how to go about it."""
    guidance = GUIDANCE + ("" if content.response_model is Unset else _ANSWER_FORM_NOTE)
    context = [*(content.context or ()), guidance]
    return Message(
        content.with_updates(context=context),
        id=message.id,
        sender=message.sender,
        recipient=message.recipient,
        metadata=message.metadata,
    )
