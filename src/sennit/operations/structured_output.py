"""Structured output: repeat a request until the answer fits the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sennit.errors import ModelError, OutputError
from sennit.messages.output_schema import ModelSchema, model_name, model_schema
from sennit.messages.output_validation import (
    repair_problems,
    repair_prompt,
    unfit_error,
    validate_output,
)
from sennit.services.models import traced_call
from sennit.services.models.protocol import Model as AnyModel
from sennit.services.models.protocol import supports_output_schema
from sennit.services.models.reply import Reply, Usage
from sennit.services.models.request import ModelRequest

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """A value that fits the schema."""

    value: Any
    reply: Reply
    """The reply that contains it."""
    usage: Usage
    """The usage of all attempts."""


async def ask(model: AnyModel, request: ModelRequest) -> Reply:
    """Return the whole reply of a model; raises ModelError, also if the reply is incomplete."""
    reply = await traced_call.ask(model, request)
    if reply.finish == "error":
        raise ModelError(f"Model {model.name!r} stopped before its answer was complete; ask again.")
    return reply


async def ask_for_value(
    model: AnyModel, request: ModelRequest, schema: Model, repairs: int
) -> StructuredAnswer:
    """Ask a model for a value; raises OutputError if the last attempt does not fit either.

    After an answer that does not fit, the model is sent that answer and its validation errors, at
    most `repairs` times. None of these messages are stored.
    """
    if await supports_output_schema(model):
        request = replace(request, output=ModelSchema(model_name(schema), model_schema(schema)))
    remaining = repairs
    usage = Usage()
    while True:
        reply, request = await _ask_with_schema_fallback(model, request)
        usage += reply.usage
        try:
            return StructuredAnswer(validate_output(reply.text, schema), reply, usage)
        except OutputError as error:
            problems = repair_problems(error, reply.finish)
            if not remaining:
                raise unfit_error(model.name, schema, repairs + 1, problems, reply.text) from error
        remaining -= 1
        request = replace(
            request, messages=_with_repair_prompt(request.messages, reply, problems, schema)
        )


async def _ask_with_schema_fallback(
    model: AnyModel, request: ModelRequest
) -> tuple[Reply, ModelRequest]:
    """Return the reply, without the schema if the provider rejects it, and the request sent.

    Providers reject different schemas, such as recursive ones. The prompt describes the schema as
    well, and the answer is validated in any case.
    """
    try:
        return await ask(model, request), request
    except ModelError as error:
        if error.kind != "bad_request" or request.output is None:
            raise
    request = replace(request, output=None)
    return await ask(model, request), request


def empty_answer_error(model: str, finish: str | None) -> ModelError:
    """Return the error for an empty answer."""
    return ModelError(
        f"Model {model!r} returned an empty answer (finish reason {finish!r}); ask again, or raise "
        f"max_tokens.",
        kind="malformed",
    )


def _with_repair_prompt(
    messages: Sequence[Mapping[str, Any]], reply: Reply, problems: list[str], schema: Model
) -> list[Mapping[str, Any]]:
    return [
        *messages,
        {"role": "assistant", "content": reply.text or "(nothing)"},
        {"role": "user", "content": repair_prompt(problems, schema)},
    ]
