"""Tools loaded from the command line: built-in ones, or functions of a file or module.

What is named is what is loaded: a file's own functions, none that it only imports. Each tool says
by itself whether a person is asked before it is called; the chat can ask always, or never.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING

from sennit.cli.builtin_tools import BUILT_IN
from sennit.cli.load import function_named, module_named
from sennit.cli.text import nearest
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.services.tools.tool import Tool

if TYPE_CHECKING:
    from sennit.services.tools.mcp import MCPServer


def tools_named(places: Iterable[str], ask: bool | None = None) -> tuple[Tool, ...]:
    """The tools at some places, in order; `ask` overrides whether people are asked first.

    Raises ExistsError if two have the same name.
    """
    found: dict[str, Tool] = {}
    for place in places:
        for tool in tools_at(place):
            if tool.name in found:
                raise ExistsError(f"Duplicate tool name {tool.name!r}; rename one of the tools.")
            found[tool.name] = tool if ask is None else tool.with_options(needs_approval=ask)
    return tuple(found.values())


def servers_named(places: Iterable[str], ask: bool | None = None) -> tuple[MCPServer, ...]:
    """MCP servers, not yet connected; what strangers wrote asks first unless told otherwise."""
    if not (commands := list(places)):
        return ()
    from sennit.services.tools.mcp import MCPServer

    return tuple(MCPServer(one, needs_approval=ask is not False) for one in commands)


def tools_at(place: str) -> list[Tool]:
    """The tools at "FILE.py", "FILE.py:FUNCTION" or "MODULE:FUNCTION", or one of our own by name.

    Importing runs the code there. Raises ValidationError or NotFoundError.
    """
    if place in BUILT_IN:
        return [Tool(BUILT_IN[place])]
    if place.endswith(".py"):
        return _all_in(module_named(place, f"tool {place!r}"), place)
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise ValidationError(
            f"A tool is FILE.py, FILE.py:FUNCTION, MODULE:FUNCTION or one of "
            f"{', '.join(BUILT_IN)}; got {place!r}.{nearest(place, list(BUILT_IN))}"
        )
    found = function_named(place, "tool", Tool)
    return [found if isinstance(found, Tool) else Tool(found)]


def _all_in(module: ModuleType, place: str) -> list[Tool]:
    """The tools and functions a module has of its own; names with an underscore are private."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    tools = [value for value in own.values() if isinstance(value, Tool)]
    for name, value in own.items():
        if isfunction(value) and value.__module__ == module.__name__:
            try:
                tools.append(Tool(value))
            except InvalidTypeError as error:
                raise InvalidTypeError(
                    f"{name!r} in {place!r} cannot be a tool: {error} If it is not meant to be "
                    f"one, begin its name with an underscore, or pass {place}:FUNCTION."
                ) from error
    if not tools:
        raise NotFoundError(f"There is no function in {place!r}; a tool is a typed function.")
    return tools
