"""operate: communicate with tools, as one run of the turn loop.

Unlike `communicate`, it acts on the way. What was said and done stands on the branch as it happens,
and stays there if the run fails: a tool that was called has been called.
"""

from __future__ import annotations

from typing import Any

from sennit.messages.content import InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.operations.context import OperationContext
from sennit.operations.instruction import instruction_message
from sennit.operations.run_result import (
    output_schema_of,
    run_for_answer,
    split_options,
    with_output_schema,
)
from sennit.operations.structured_output import DEFAULT_REPAIRS, checked_repairs
from sennit.services.models.protocol import Model
from sennit.turns.request import Request


async def operate(
    where: OperationContext,
    /,
    *,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    tools: Any = (),
    context: Any = None,
    images: Any = None,
    image_detail: Any = None,
    response_model: Any = None,
    sender: SenderRecipient | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **limits_and_params: Any,
) -> Any:
    """The answer to an instruction, with tools called on the way: text, or a `response_model`.

    Limits are those of SessionOptions (`max_turns`, `max_tool_passes`, `budget`, …), what else is
    named goes to the model. Raises ModelError, OutputError if no answer fits after `repairs` more,
    ConflictError if another run holds the branch, and RunError if the run stopped before the end:
    at a limit, or because a tool needs approval.
    """
    checked_repairs(repairs)
    options, params = split_options(limits_and_params)
    request = Request.of(where.branch, model=imodel, tools=where.tools(tools), **params)
    message, _ = instruction_message(
        where,
        instruction,
        sender=sender,
        context=context,
        images=images,
        image_detail=image_detail,
        response_model=response_model,
    )
    return await run_for_answer(
        await with_output_schema(request, output_schema_of(message)), message, options, repairs
    )
