"""The output of a run: a value that the answer must contain.

The model is told the schema by the instruction and, if it supports structured output, by the
provider. An answer that does not fit is sent back with its problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from sennit.errors import OutputError
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema, as_model, model_name, model_schema
from sennit.messages.output_validation import (
    output_form,
    repair_problems,
    repair_prompt,
    unfit_error,
    validate_output,
)
from sennit.messages.unset import Unset
from sennit.services.models.protocol import supports_output_schema
from sennit.services.models.request import ModelRequest
from sennit.sessions.grants import Needs

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model
    from sennit.turns.request import Request


class RunOutput(msgspec.Struct, frozen=True):
    """The schema of an output; `native` allows structured output of the provider."""

    schema: Any
    native: bool = True

    @classmethod
    def of(cls, output: Any) -> RunOutput | None:
        """Return the output for a class or JSON schema, None for None; or InvalidTypeError."""
        return None if output is None else cls(as_model(output, "output"))

    @classmethod
    def recorded(cls, notes: Mapping[str, Any]) -> RunOutput | None:
        """Return the output that a stored run was asked for, as its schema without the class."""
        note = notes.get("output")
        return note and cls(ModelSchema(note["name"], note["schema"]), note["native"])

    def note(self) -> dict[str, Any]:
        """Return the note of the output in the record of a run; `recorded` reads it."""
        schema = self.schema
        return {"name": model_name(schema), "schema": model_schema(schema), "native": self.native}

    @property
    def needs(self) -> Needs:
        """The capability that the branch needs, if it is fenced."""
        return Needs(passed_capabilities=frozenset({model_name(self.schema)}))


class OutputState:
    """The output of one run, and what the model has been told about it."""

    def __init__(self, output: RunOutput, repairs: int) -> None:
        self._schema: Model = output.schema
        self._attempts, self._max_attempts = 1, repairs + 1
        self.is_native: bool | None = None if output.native else False
        """Whether the provider is sent the schema; None until it is known."""
        self.has_form = False
        """True if the last prompt ends with the schema in words, which no later prompt has."""

    async def add_to(self, request: ModelRequest, asked: Request) -> ModelRequest:
        """Return the request with the schema: of the provider, or in words if it lacks them."""
        self.has_form = False
        if self.is_native is None:
            self.is_native = await supports_output_schema(asked.model)
        if self.is_native:
            schema = ModelSchema(model_name(self._schema), model_schema(self._schema))
            return replace(request, output=schema)
        newest = asked.newest_instruction()
        if newest is None or _describes_output(newest):
            return request
        form = {"role": "user", "content": output_form(self._schema)}
        self.has_form = True
        return replace(request, messages=[*request.messages, form])

    def objection(self, answer: str, finish: str | None) -> str | None:
        """Return what is wrong with an answer, for the model; None if it stands."""
        try:
            validate_output(answer, self._schema)
        except OutputError as error:
            if self._attempts < self._max_attempts:
                self._attempts += 1
                return repair_prompt(repair_problems(error, finish), self._schema)
        return None

    def value_in(self, answer: str, finish: str | None, model: str) -> Any:
        """Return the output in the last answer; raise OutputError if it does not fit."""
        try:
            return validate_output(answer, self._schema)
        except OutputError as error:
            problems = repair_problems(error, finish)
            raise unfit_error(model, self._schema, self._attempts, problems, answer) from error


def with_schema(messages: tuple[Message, ...], output: RunOutput | None) -> tuple[Message, ...]:
    """Return the messages with the schema in the last instruction, unless it has one."""
    if output is None or not messages:
        return messages
    *earlier, last = messages
    content = last.content
    if not isinstance(content, InstructionContent) or _describes_output(last):
        return messages
    told = Message(
        content.with_updates(response_model=output.schema),
        id=last.id,
        created_at=last.created_at,
        sender=last.sender,
        recipient=last.recipient,
        metadata=last.metadata,
    )
    return *earlier, told


def _describes_output(message: Message) -> bool:
    """Return whether an instruction, or a request to answer again, describes an output."""
    content = message.content
    described = isinstance(content, InstructionContent) and content.response_model is not Unset
    return described or "repair" in message.metadata
