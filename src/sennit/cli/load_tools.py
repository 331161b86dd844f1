"""Tools loaded from the command line: built-in ones, or functions of a file or module.

A file offers the functions it defines, not those it imports. Each tool declares whether it needs
approval; --ask and --yes override that.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING

from sennit.cli.builtin_tools import BUILT_IN
from sennit.cli.load import load_function, load_module
from sennit.cli.text import suggestion
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.services.tools.tool import Tool

if TYPE_CHECKING:
    from sennit.services.tools.mcp import MCPServer


def load_tools(specs: Iterable[str], ask: bool | None = None) -> tuple[Tool, ...]:
    """Load tools in order; `ask` overrides whether they need approval.

    Raise ExistsError for a duplicate name.
    """
    tools: dict[str, Tool] = {}
    for spec in specs:
        for tool in load_tools_from(spec):
            if tool.name in tools:
                raise ExistsError(f"Duplicate tool name {tool.name!r}; rename one of the tools.")
            tools[tool.name] = tool if ask is None else tool.with_options(needs_approval=ask)
    return tuple(tools.values())


def mcp_servers(specs: Iterable[str], ask: bool | None = None) -> tuple[MCPServer, ...]:
    """Return unconnected MCP servers; their tools need approval unless `ask` is False."""
    if not (commands := list(specs)):
        return ()
    from sennit.services.tools.mcp import MCPServer

    return tuple(MCPServer(command, needs_approval=ask is not False) for command in commands)


def load_tools_from(spec: str) -> list[Tool]:
    """Load the tools of "FILE.py", "FILE.py:FUNCTION" or "MODULE:FUNCTION", or a built-in one.

    Importing executes the file. Raise ValidationError or NotFoundError.
    """
    if spec in BUILT_IN:
        return [Tool(BUILT_IN[spec])]
    if spec.endswith(".py"):
        return _tools_of_module(load_module(spec, f"tool {spec!r}"), spec)
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise ValidationError(
            f"A tool is FILE.py, FILE.py:FUNCTION, MODULE:FUNCTION or one of "
            f"{', '.join(BUILT_IN)}; got {spec!r}.{suggestion(spec, list(BUILT_IN))}"
        )
    function = load_function(spec, "tool", Tool)
    return [function if isinstance(function, Tool) else Tool(function)]


def _tools_of_module(module: ModuleType, spec: str) -> list[Tool]:
    """Return the Tool objects of a module, and its own public functions as tools."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    tools = [value for value in own.values() if isinstance(value, Tool)]
    for name, value in own.items():
        if isfunction(value) and value.__module__ == module.__name__:
            try:
                tools.append(Tool(value))
            except InvalidTypeError as error:
                raise InvalidTypeError(
                    f"{name!r} in {spec!r} cannot be a tool: {error} If it is not meant to be "
                    f"one, begin its name with an underscore, or pass {spec}:FUNCTION."
                ) from error
    if not tools:
        raise NotFoundError(f"There is no function in {spec!r}; a tool is a typed function.")
    return tools
