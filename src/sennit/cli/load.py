"""Functions and tools loaded from a file or module named on the command line.

Loading executes the file; names from the store are never loaded. A file offers the functions it
defines as tools, not those it imports. Each tool declares whether it needs approval; --ask and
--yes override that.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from os.path import expanduser
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sennit.cli.builtin_tools import BUILT_IN
from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    did_you_mean,
)
from sennit.paths import nearest_path
from sennit.services.tools.tool import Tool

if TYPE_CHECKING:
    from sennit.services.tools.mcp import MCPServer


def load_function(spec: str, kind: str, *others: type) -> Any:
    """Return the callable, or one of `others`, named by "FILE.py:FUNCTION" or "MODULE:FUNCTION".

    `kind` is used in error messages. Raise ValidationError or NotFoundError.
    """
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise ValidationError(f"A {kind} is FILE.py:FUNCTION or MODULE:FUNCTION, got {spec!r}.")
    module = _load_module(source, f"{kind} {spec!r}")
    function = getattr(module, name, None)
    if not callable(function) and not isinstance(function, others):
        raise NotFoundError(
            f"There is no function {name!r} in {source!r}.{did_you_mean(name, _functions(module))}"
        )
    return function


def _functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value)]


def _load_module(source: str, purpose: str) -> ModuleType:
    """Import a module by name or file; raise NotFoundError, which names `purpose`."""
    try:
        if source.endswith(".py"):
            return _load_file(Path(expanduser(source)))
        return import_module(source)
    except NotFoundError:
        raise
    except Exception as error:  # the user's own code may do anything
        message = f"The {purpose} could not be loaded: {type(error).__name__}: {error}"
        raise NotFoundError(message) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotFoundError(f"There is no file {str(path)!r}.{nearest_path(path)}")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - it ends with ".py"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        return _tools_of_module(_load_module(spec, f"tool {spec!r}"), spec)
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise ValidationError(
            f"A tool is FILE.py, FILE.py:FUNCTION, MODULE:FUNCTION or one of "
            f"{', '.join(BUILT_IN)}; got {spec!r}.{did_you_mean(spec, BUILT_IN)}"
        )
    function = load_function(spec, "tool", Tool)
    return [function if isinstance(function, Tool) else Tool(function)]


def _tools_of_module(module: ModuleType, spec: str) -> list[Tool]:
    """Return the Tool objects of a module, and its own public functions as tools."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    tools: list[Tool] = [value for value in own.values() if isinstance(value, Tool)]
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
