"""Schemas of the tools that a client offers, and of its choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sennit.server.http.errors import bad_param


class Function(msgspec.Struct, frozen=True):
    """A function that a model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomTool(msgspec.Struct, frozen=True):
    """A tool whose input is a text; models call it as a function with one parameter."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None

    @property
    def as_function(self) -> Function:
        """The function; a grammar of the input is part of its description."""
        description = self.description or ""
        match self.format:
            case {"type": "grammar", **rest}:
                grammar: Any = rest.get("grammar", rest)
                description += f"\n\nThe input must follow this {grammar.get('syntax')} grammar:\n"
                description += str(grammar.get("definition"))
            case _:
                pass
        return Function(self.name, description.strip() or None, _CUSTOM_PARAMETERS)


_CUSTOM_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class ChatFunctionTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """A function tool, as chat completions wrap it."""

    function: Function


class ChatCustomTool(msgspec.Struct, frozen=True, tag_field="type", tag="custom"):
    """A custom tool, as chat completions wrap it."""

    custom: CustomTool

    @property
    def function(self) -> Function:
        """The function that stands for it."""
        return self.custom.as_function


class NamedFunction(msgspec.Struct, frozen=True):
    """A tool by its name."""

    name: str


class ChosenFunctionTool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """The function that the model must call."""

    function: NamedFunction


class ChosenCustomTool(msgspec.Struct, frozen=True, tag_field="type", tag="custom"):
    """The custom tool that the model must call."""

    custom: NamedFunction

    @property
    def function(self) -> NamedFunction:
        """The function that stands for it."""
        return self.custom


class AllowedTool(NamedFunction, frozen=True):
    """A tool that the model may call."""

    type: Literal["function", "custom"] = "function"


class AllowedTools(msgspec.Struct, frozen=True):
    """The tools of which the model may call some; it is offered only these."""

    mode: Literal["auto", "required"] = "auto"

    @property
    def names(self) -> list[str]:
        """The names of the tools."""
        raise NotImplementedError


class AllowedChatTool(msgspec.Struct, frozen=True):
    """A tool that the model may call, as chat completions wrap it."""

    function: NamedFunction | None = None
    custom: NamedFunction | None = None
    type: Literal["function", "custom"] = "function"


class AllowedChatTools(AllowedTools, frozen=True, kw_only=True):
    """The tools of which the model may call some, as chat completions wrap them."""

    tools: list[AllowedChatTool]

    @property
    def names(self) -> list[str]:
        """The names of the tools."""
        named = (tool.function or tool.custom for tool in self.tools)
        return [tool.name for tool in named if tool is not None]


class ChosenAmongChatTools(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    """The choice of some tools."""

    allowed_tools: AllowedChatTools


ToolChoice: TypeAlias = str | NamedFunction | AllowedTools | None


def offered_functions(choice: ToolChoice, functions: Sequence[Function]) -> list[Function]:
    """Return the functions that the model may call; raise HTTPError 400 for an unknown one."""
    if choice == "none":
        return []
    if not isinstance(choice, AllowedTools):
        return list(functions)
    by_name = {function.name: function for function in functions}
    for name in choice.names:
        if name not in by_name:
            message = f"'tool_choice' names {name[:100]!r}, which is not in 'tools'."
            raise bad_param("tool_choice", message)
    return [by_name[name] for name in dict.fromkeys(choice.names)]


def forced_choice(choice: ToolChoice, offered: Sequence[str]) -> str | list[str] | None:
    """Return our `tool_choice`; raise HTTPError 400 for a tool that is not offered."""
    if isinstance(choice, AllowedTools):
        choice, offered = choice.mode, choice.names
    if isinstance(choice, NamedFunction):
        if choice.name not in offered:
            message = f"'tool_choice' names {choice.name[:100]!r}, which is not in 'tools'."
            raise bad_param("tool_choice", message)
        return [choice.name]
    if choice != "required":
        return None
    if not offered:
        raise bad_param("tool_choice", "'tool_choice' is 'required', but 'tools' is empty.")
    return "required"
