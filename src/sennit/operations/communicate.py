"""generate, parse and communicate: operations that call a model directly.

`generate` stores nothing. `communicate` stores the instruction and the reply together, in one step,
after the reply has been validated: if the model fails or its answer never fits the schema, the
branch is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Unpack

from sennit.errors import InvalidTypeError, ModelError, OutputError, ValidationError, short_repr
from sennit.messages.content import AssistantResponseContent, ImageDetail, InstructionContent
from sennit.messages.media import Files
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.output_schema import as_model
from sennit.messages.output_validation import DEFAULT_REPAIRS, validate_output
from sennit.messages.prompt.tool_chat import model_messages
from sennit.messages.unset import Unset
from sennit.numbers import count
from sennit.operations.context import OperationContext, instruction_message
from sennit.operations.params import Schema, Tools
from sennit.operations.structured_output import (
    StructuredAnswer,
    ask,
    ask_for_value,
    empty_answer_error,
)
from sennit.services.models import traced_call
from sennit.services.models.params import ModelParams, check_params
from sennit.services.models.protocol import Model, supports_output_schema
from sennit.services.models.reply import Reply
from sennit.services.models.request import MessageInput, ModelRequest, model_request
from sennit.sessions.blobs import with_blobs
from sennit.turns.prompt_history import check_answerable, prompt_ids


async def generate(
    where: OperationContext,
    /,
    *,
    imodel: str | Model,
    messages: MessageInput | Iterable[MessageInput] | None = None,
    tools: Tools = (),
    response_model: Schema = None,
    **params: Unpack[ModelParams],
) -> Reply:
    """Return the model's reply to messages, by default to the current prompt of the branch.

    The `response_model` is sent only to a model that supports structured output. The reply is not
    validated (see parse and communicate), and its tool calls are not run. Raises ModelError.
    """
    model = where.model(imodel)
    if messages is None:
        messages = model_messages(where.session.messages, prompt_ids(where.branch))
        check_answerable(where.branch, messages)
    if response_model is not None and not await supports_output_schema(model):
        response_model = None
    request = model_request(messages, tools=where.tools(tools), output=response_model, **params)
    request = await with_blobs(where.session, request)
    return await traced_call.ask(model, request, where.session.id)


async def parse(
    where: OperationContext,
    /,
    *,
    text: str,
    response_model: Schema,
    imodel: str | Model | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **params: Unpack[ModelParams],
) -> Any:
    """Return the value in a text: an instance of a pydantic class, or plain data.

    JSON is found in code fences and prose, and common mistakes are tolerated. If no value fits, the
    model (`imodel`) is asked to convert the text; without one, or if it fails too, raises
    OutputError.
    """
    schema = as_model(response_model, "response_model")
    count(repairs, "repairs", 0)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"text must be a string, got {short_repr(text)}.")
    try:
        return validate_output(text, schema)
    except OutputError:
        if imodel is None:
            raise
    instruction = InstructionContent(
        instruction="Write the contents of this text in the form below.",
        context=[text],
        response_model=schema,
    )
    request = model_request(instruction, **params)
    return (await ask_for_value(where.model(imodel), request, schema, repairs)).value


async def communicate(
    where: OperationContext,
    /,
    *,
    instruction: str | InstructionContent | Message,
    imodel: str | Model,
    context: list[object] | None = None,
    images: list[str] | None = None,
    image_detail: ImageDetail | None = None,
    files: Files | None = None,
    response_model: Schema = None,
    sender: SenderRecipient | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **params: Unpack[ModelParams],
) -> Any:
    """Return the reply to an instruction: its text, or a validated value of the `response_model`.

    An instruction that is not a string has its own context, images, files, response model and, if
    it is a Message, sender. `params` are those of the model. Raises ModelError, and OutputError if
    no answer fits after `repairs` further attempts; the branch is then unchanged.
    """
    model = where.model(imodel)
    count(repairs, "repairs", 0)
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
    request = ModelRequest(
        messages=model_messages(where.session.messages, prompt_ids(where.branch), content),
        params=check_params(params),
    )
    request = await with_blobs(where.session, request)
    answer = await _ask(model, request, content.response_model, repairs)
    name = imodel if isinstance(imodel, str) else model.name
    reply_message = _reply_message(where, message, answer, name)
    await _store(where, [message, reply_message])
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
    """Return the reply as a message, with the model's name in its metadata."""
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


async def _store(where: OperationContext, messages: list[Message]) -> None:
    """Store the messages to completion; a cancellation in the meantime has no effect.

    Otherwise the store might hold messages although the caller sees the operation as cancelled.
    """
    from asyncio import CancelledError, ensure_future  # late: slow to import

    from sennit.finish_uncancelled import finish_uncancelled

    storing = ensure_future(where.session.aadd_messages(messages, branches=where.branch))
    with suppress(CancelledError):
        await finish_uncancelled(storing)
    storing.result()
