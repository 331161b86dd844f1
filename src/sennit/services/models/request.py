"""Model requests, the same for every provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

from sennit.errors import InvalidTypeError, NothingToAskError, ValidationError, short_repr
from sennit.messages.content import InstructionContent, MessageContent
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema, as_model, is_model, model_name, model_schema
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.messages.typescript import ToolSchema, tool_schema
from sennit.services.models.params import ModelParams, check_params
from sennit.services.tools.tool import Tool

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model.

    Raises NothingToAskError without messages: no provider accepts an empty list.
    """

    messages: Sequence[Mapping[str, Any]]
    """Chat messages as returned by `to_model_messages`: role, content, tool_calls, tool_call_id."""
    tools: tuple[ToolSchema, ...] = ()
    """The tools that the model may call."""
    output: ModelSchema | None = None
    """The JSON schema of the reply; only for models with `Model.supports_output_schema`."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The parameters: see PARAMS."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise NothingToAskError("There are no messages; a model needs at least one.")

    @property
    def forced(self) -> tuple[ToolSchema, ...]:
        """The tools of which one must be called; empty if no call is required.

        Raises ValidationError if `tool_choice` names a tool that is not offered.
        """
        choice = self.params.get("tool_choice")
        if choice is None:
            return ()
        forced_tools = tuple(
            tool for tool in self.tools if choice == "required" or tool.name in choice
        )
        names = {tool.name for tool in forced_tools}
        missing = [] if choice == "required" else [name for name in choice if name not in names]
        if missing or not forced_tools:
            offered = ", ".join(repr(tool.name) for tool in self.tools) or "none"
            raise ValidationError(
                f"tool_choice {short_repr(choice)} asks for a tool that is not offered; there are: "
                f"{offered}."
            )
        return forced_tools


MessageInput: TypeAlias = Message | MessageContent | Mapping[str, Any] | str
"""A message, its content, a dict of either, or the text of an instruction."""
ToolInput: TypeAlias = "Tool | ToolSchema | Mapping[str, Any] | type[BaseModel] | ModelSchema"
"""A tool, its schema, or a JSON schema or pydantic class of its parameters."""


def model_request(
    messages: MessageInput | Iterable[MessageInput],
    *,
    tools: Iterable[ToolInput] = (),
    output: type[BaseModel] | ModelSchema | Mapping[str, Any] | None = None,
    **params: Unpack[ModelParams],
) -> ModelRequest:
    """Return a request for messages and tools in any accepted form.

    `messages` are Messages, contents or texts, or else chat messages (dicts with a role), which are
    sent unchanged. `output` is a pydantic class or a JSON schema; for `params` see PARAMS.
    Raises InvalidTypeError for anything else.
    """
    return ModelRequest(
        messages=_chat_messages(messages),
        tools=tuple(map(offered_schema, tools)),
        output=None if output is None else _output_schema(output),
        params=check_params(params),
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
    raise InvalidTypeError(f"Expected a Tool or the schema of one, got {short_repr(tool)}.")


def _chat_messages(messages: Any) -> list[dict[str, Any]]:
    items = _as_list(messages)
    chat_messages = [
        dict(cast("Mapping[str, Any]", item)) for item in items if _is_chat_message(item)
    ]
    if not chat_messages:
        return to_model_messages([_as_message(item) for item in items])
    if len(chat_messages) < len(items):
        raise InvalidTypeError(
            f"{short_repr(chat_messages[0])} is a chat message, which is sent unchanged; it cannot "
            f"be mixed with messages and contents."
        )
    return chat_messages


def _as_list(messages: Any) -> list[Any]:
    if isinstance(messages, Message | MessageContent | Mapping | str):
        return [cast("Any", messages)]
    if not isinstance(messages, Iterable):
        raise InvalidTypeError(f"messages must be a list of messages, got {short_repr(messages)}.")
    items = list(cast("Iterable[Any]", messages))
    if not items:
        raise NothingToAskError("There are no messages; a model needs at least one.")
    return items


def _is_chat_message(item: Any) -> bool:
    return isinstance(item, Mapping) and "role" in item


def _as_message(item: Any) -> Message:
    if isinstance(item, Message):
        return item
    return Message(InstructionContent(instruction=item) if isinstance(item, str) else item)


def _output_schema(output: Any) -> ModelSchema:
    model = as_model(output, "output")
    return ModelSchema(model_name(model), model_schema(model))
