"""Model requests, the same for every provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from sennit.errors import InvalidTypeError, NothingToAskError, ValidationError, shown
from sennit.messages.content import InstructionContent, MessageContent
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema, as_model, is_model, model_name, model_schema
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.messages.typescript import ToolSchema, tool_schema
from sennit.services.models.params import checked_params
from sennit.services.tools.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model, with all it needs to answer.

    Raises NothingToAskError without any message: no provider takes an empty list.
    """

    messages: Sequence[Mapping[str, Any]]
    """Chat messages as `to_model_messages` gives them: role, content, tool_calls, tool_call_id."""
    tools: tuple[ToolSchema, ...] = ()
    """The tools it may call."""
    output: ModelSchema | None = None
    """The JSON schema its answer has to follow; asked for only where `Model.shapes_output`."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How to answer: see PARAMS."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise NothingToAskError("There are no messages; a model needs at least one.")

    @property
    def forced(self) -> tuple[ToolSchema, ...]:
        """The tools of which one has to be called; none if the model may choose not to.

        Raises ValidationError for a `tool_choice` that no tool on offer fits.
        """
        choice = self.params.get("tool_choice")
        if choice is None:
            return ()
        found = tuple(one for one in self.tools if choice == "required" or one.name in choice)
        names = {one.name for one in found}
        missing = [] if choice == "required" else [one for one in choice if one not in names]
        if missing or not found:
            there = ", ".join(repr(one.name) for one in self.tools) or "none"
            raise ValidationError(
                f"tool_choice {shown(choice)} asks for a tool that is not offered; there are: "
                f"{there}."
            )
        return found


Said: TypeAlias = Message | MessageContent | Mapping[str, Any] | str
"""Something said: a message, its content, a dict of either kind, or the text of an instruction."""
Offered: TypeAlias = "Tool | ToolSchema | Mapping[str, Any] | type[Any]"
"""A tool on offer: the tool, its schema, or a JSON schema or pydantic class of its parameters."""


def model_request(
    messages: Said | Iterable[Said],
    *,
    tools: Iterable[Offered] = (),
    output: Any = None,
    **params: Any,
) -> ModelRequest:
    """A request from whatever a program has at hand.

    `messages` are messages, contents or texts, or else chat messages (dicts with a role), which go
    as they are. `output` is a pydantic class or a JSON schema, `params` are those of PARAMS.
    Raises InvalidTypeError for anything else.
    """
    return ModelRequest(
        messages=_chat(messages),
        tools=tuple(map(offered_schema, tools)),
        output=None if output is None else _output(output),
        params=checked_params(params),
    )


def offered_schema(tool: Any) -> ToolSchema:
    """Return the schema of a tool for a model; raises InvalidTypeError for other objects."""
    if isinstance(tool, ToolSchema):
        return tool
    if isinstance(tool, Tool):
        return tool.schema
    if is_model(tool):
        return tool_schema(model_schema(tool), model_name(tool))
    if isinstance(tool, Mapping):
        return tool_schema(cast("Mapping[str, Any]", tool))
    raise InvalidTypeError(f"Expected a Tool or the schema of one, got {shown(tool)}.")


def _chat(messages: Any) -> list[dict[str, Any]]:
    said = _listed(messages)
    ready = [dict(cast("Mapping[str, Any]", one)) for one in said if _is_chat(one)]
    if not ready:
        return to_model_messages([_message(one) for one in said])
    if len(ready) < len(said):
        raise InvalidTypeError(
            f"{shown(ready[0])} is a chat message, which is sent unchanged; it cannot be mixed "
            f"with messages and contents."
        )
    return ready


def _listed(messages: Any) -> list[Any]:
    if isinstance(messages, Message | MessageContent | Mapping | str):
        return [cast("Any", messages)]
    if not isinstance(messages, Iterable):
        raise InvalidTypeError(f"messages must be a list of messages, got {shown(messages)}.")
    said = list(cast("Iterable[Any]", messages))
    if not said:
        raise NothingToAskError("There are no messages; a model needs at least one.")
    return said


def _is_chat(said: Any) -> bool:
    return isinstance(said, Mapping) and "role" in said


def _message(said: Any) -> Message:
    if isinstance(said, Message):
        return said
    return Message(InstructionContent(instruction=said) if isinstance(said, str) else said)


def _output(output: Any) -> ModelSchema:
    model = as_model(output, "output")
    return ModelSchema(model_name(model), model_schema(model))
