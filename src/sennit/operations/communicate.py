"""communicate: add an instruction to a branch and store the model's reply.

Instruction and reply are stored together, in one step, once the reply is there and fits. A model
that fails or never answers in the form asked for leaves the branch as it was.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from sennit.errors import ModelError, ValidationError
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.output_schema import as_model
from sennit.messages.prompt.tool_chat import model_messages
from sennit.messages.unset import Unset
from sennit.operations.context import OperationContext
from sennit.operations.instruction import instruction_message
from sennit.operations.structured_output import (
    DEFAULT_REPAIRS,
    StructuredAnswer,
    ask,
    ask_for_value,
    checked_repairs,
    empty_answer_error,
)
from sennit.services.models.params import check_params
from sennit.services.models.protocol import Model
from sennit.services.models.request import ModelRequest
from sennit.turns.prompt_history import prompt_ids


async def communicate(
    where: OperationContext,
    /,
    *,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    context: Any = None,
    images: Any = None,
    image_detail: Any = None,
    response_model: Any = None,
    sender: SenderRecipient | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **params: Any,
) -> Any:
    """The reply to an instruction: its text, or a value of the `response_model`, checked.

    An instruction that is not given as text has its own context, images, response model and, if it
    is a Message, sender. `params` are those of the model. Raises ModelError, and OutputError if no
    answer fits after `repairs` further attempts; the branch is then as it was.
    """
    model = where.model(imodel)
    checked_repairs(repairs)
    message, content = instruction_message(
        where,
        instruction,
        sender=sender,
        context=context,
        images=images,
        image_detail=image_detail,
        response_model=response_model,
    )
    request = ModelRequest(
        messages=model_messages(where.session.messages, prompt_ids(where.branch), content),
        params=check_params(params),
    )
    answer = await _ask(model, request, content.response_model, repairs)
    name = imodel if isinstance(imodel, str) else model.name
    reply_message = _reply_message(where, message, answer, name)
    await _finish_despite_cancel(
        where.session.aadd_messages([message, reply_message], branches=where.branch)
    )
    return answer.value


async def _ask(
    model: Model, request: ModelRequest, response_model: Any, repairs: int
) -> StructuredAnswer:
    if response_model is not Unset:
        return await ask_for_value(
            model, request, as_model(response_model, "response_model"), repairs
        )
    reply = await ask(model, request)
    if not reply.text:
        raise empty_answer_error(model.name, reply.finish)
    return StructuredAnswer(reply.text, reply, reply.usage)


def _reply_message(
    where: OperationContext, instruction: Message, answer: StructuredAnswer, name: str
) -> Message:
    """The reply as a message; it names the model it was asked of."""
    reply = answer.reply
    try:
        content = AssistantResponseContent(
            assistant_response=reply.text, reasoning=reply.reasoning or Unset
        )
    except ValidationError as error:
        raise ModelError(
            f"Model {name!r} returned a reply that cannot be stored: {error}", kind="malformed"
        ) from error
    return Message(
        content,
        sender=where.session.agent,
        recipient=instruction.sender,
        metadata={
            "model": name,
            "answered_by": reply.model or name,
            "finish_reason": reply.finish,
            "usage": answer.usage.to_metadata(),
        },
    )


async def _finish_despite_cancel(work: Coroutine[Any, Any, Any]) -> None:
    """Await what is being stored; a cancel that comes meanwhile comes too late.

    Otherwise the store might keep what the caller believes not to have happened.
    """
    import asyncio  # takes long, and only async callers need it

    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    task.result()
