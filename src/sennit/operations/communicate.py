"""communicate: say something on a branch and have the model's reply stored behind it.

Instruction and reply are stored together, in one step, once the reply is there and fits. A model
that fails or never answers in the form asked for leaves the branch as it was.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from sennit.errors import ExistsError, InvalidTypeError, ModelError, ValidationError, shown
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.models import as_model
from sennit.messages.native import model_messages
from sennit.messages.unset import Unset
from sennit.operations.context import OperationContext
from sennit.operations.structured import REPAIRS, Answer, ask, ask_for, checked_repairs
from sennit.services.model import Model
from sennit.services.params import checked_params
from sennit.services.request import ModelRequest


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
    repairs: int = REPAIRS,
    **params: Any,
) -> Any:
    """The reply to an instruction: its text, or a value of the `response_model`, checked.

    An instruction that is not given as text has its own context, images, response model and, if it
    is a Message, sender. `params` are those of the model. Raises ModelError, and OutputError if no
    answer fits after `repairs` further attempts; the branch is then as it was.
    """
    model = where.model(imodel)
    checked_repairs(repairs)
    asked, content = _asked(
        where,
        instruction,
        sender=sender,
        context=context,
        images=images,
        image_detail=image_detail,
        response_model=response_model,
    )
    request = ModelRequest(
        messages=model_messages(where.session.messages, where.branch, content),
        params=checked_params(params),
    )
    answer = await _answer(model, request, content.response_model, repairs)
    name = imodel if isinstance(imodel, str) else model.name
    told = _told(where, asked, answer, name)
    await _to_the_end(where.session.aadd_messages([asked, told], branches=where.branch))
    return answer.value


def _asked(
    where: OperationContext, given: Any, *, sender: SenderRecipient | None, **fields: Any
) -> tuple[Message, InstructionContent]:
    """The instruction as a new message; `fields` are for one that is given as text."""
    if isinstance(given, str):
        given = InstructionContent.create(instruction=given, **fields)
    elif named := [name for name, value in fields.items() if value is not None]:
        raise InvalidTypeError(
            f"{', '.join(named)} can be named beside an instruction that is a text; put them into "
            f"the InstructionContent."
        )
    if isinstance(given, Message) and sender is not None:
        raise InvalidTypeError("A Message has its own sender; leave sender out.")
    content = given.content if isinstance(given, Message) else given
    if not isinstance(content, InstructionContent):
        raise InvalidTypeError(f"communicate needs an instruction, got {shown(content)}.")
    if not isinstance(given, Message):
        return Message(content, sender=where.session.user if sender is None else sender), content
    if given in where.session.messages:
        raise ExistsError(
            f"Message {given.id} is in the session already; clone() it to say it again, or use "
            f"the operation 'generate' to have it answered."
        )
    return given, content


async def _answer(model: Model, request: ModelRequest, wanted: Any, repairs: int) -> Answer:
    if wanted is not Unset:
        return await ask_for(model, request, as_model(wanted, "response_model"), repairs)
    reply = await ask(model, request)
    if not reply.text:
        raise ModelError(
            f"Model {model.name!r} said nothing (it ended with {reply.finish!r}); ask again, or "
            f"with more max_tokens.",
            kind="malformed",
        )
    return Answer(reply.text, reply, reply.usage)


def _told(where: OperationContext, asked: Message, answer: Answer, name: str) -> Message:
    """The reply as a message; it names the model it was asked of."""
    reply = answer.reply
    try:
        content = AssistantResponseContent(
            assistant_response=reply.text, reasoning=reply.reasoning or Unset
        )
    except ValidationError as error:
        raise ModelError(
            f"Model {name!r} said what cannot be kept: {error}", kind="malformed"
        ) from error
    return Message(
        content,
        sender=where.session.agent,
        recipient=asked.sender,
        metadata={
            "model": name,
            "answered_by": reply.model or name,
            "finish_reason": reply.finish,
            "usage": answer.usage.noted(),
        },
    )


async def _to_the_end(storing: Coroutine[Any, Any, Any]) -> None:
    """Await what is being stored; a cancel that comes meanwhile comes too late.

    Otherwise the store might keep what the caller believes not to have happened.
    """
    import asyncio  # takes long, and only async callers need it

    task = asyncio.ensure_future(storing)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    task.result()
