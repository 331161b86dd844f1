"""parse: text to a validated value, with a model's help where needed."""

from __future__ import annotations

from typing import Any

from sennit.errors import InvalidTypeError, OutputError, short_repr
from sennit.messages.content import InstructionContent
from sennit.messages.output_schema import as_model
from sennit.operations.context import OperationContext
from sennit.operations.output_validation import validate_output
from sennit.operations.structured_output import DEFAULT_REPAIRS, ask_for_value, checked_repairs
from sennit.services.models.protocol import Model
from sennit.services.models.request import model_request


async def parse(
    where: OperationContext,
    /,
    *,
    text: str,
    response_model: Any,
    imodel: str | Model | None = None,
    repairs: int = DEFAULT_REPAIRS,
    **params: Any,
) -> Any:
    """The value in a text, checked: an instance of a pydantic class, or plain data.

    JSON is found in fences and prose and with the usual slips. If there is none that fits, the
    model (`imodel`) is asked to write the text's contents in that form; without one, or if it
    fails too, raises OutputError.
    """
    schema = as_model(response_model, "response_model")
    checked_repairs(repairs)
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
