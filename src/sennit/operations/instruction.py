"""The instruction of an operation, as a message."""

from __future__ import annotations

from typing import Any

from sennit.errors import ExistsError, InvalidTypeError, short_repr
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.operations.context import OperationContext


def instruction_message(
    where: OperationContext, instruction: Any, *, sender: SenderRecipient | None, **fields: Any
) -> tuple[Message, InstructionContent]:
    """The instruction as a new message; `fields` are for one that is given as text.

    Raises InvalidTypeError for what is no instruction, ExistsError for one said already.
    """
    if isinstance(instruction, str):
        instruction = InstructionContent.create(instruction=instruction, **fields)
    elif names := [name for name, value in fields.items() if value is not None]:
        raise InvalidTypeError(
            f"{', '.join(names)} can be passed only with a text instruction; put them into the "
            f"InstructionContent."
        )
    if isinstance(instruction, Message) and sender is not None:
        raise InvalidTypeError("A Message has its own sender; leave sender out.")
    content = instruction.content if isinstance(instruction, Message) else instruction
    if not isinstance(content, InstructionContent):
        raise InvalidTypeError(f"An instruction is needed, got {short_repr(content)}.")
    if not isinstance(instruction, Message):
        return Message(content, sender=where.session.user if sender is None else sender), content
    if instruction in where.session.messages:
        raise ExistsError(
            f"Message {instruction.id} is already in the session; clone() it to send it again, or "
            f"use the operation 'generate' to have it answered."
        )
    return instruction, content
