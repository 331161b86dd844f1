"""Tools of MCP servers, over stdio or HTTP.

When a server dies, all running calls fail at once, and the next call reconnects once. A call is
never repeated automatically, because the first attempt may have taken effect; only one that became
a task goes on with the next connection. Servers are not
trusted: a tool whose name or schema cannot be offered to a model is left out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from sennit.blocking import run_blocking
from sennit.errors import ExistsError, InvalidTypeError, ToolError, ValidationError, short_repr
from sennit.messages.codec import dumps
from sennit.messages.image_url import http_host
from sennit.messages.json_values import plain_dict, validate_text
from sennit.messages.typescript import ToolSchema
from sennit.services.registry import ServiceRegistry
from sennit.services.tools.backend import ToolBackend, ToolContext
from sennit.services.tools.mcp_call import ElicitationHandler, RemoteCall, answer_elicitation
from sennit.services.tools.mcp_connection import Listing, McpConnection, ServerAddress
from sennit.services.tools.tool import Tool, ToolChanges, checked_tool_name, tool_options

_T = TypeVar("_T")
_CALL_TIMEOUT_SECONDS = 60.0
_MAX_TASK_RECONNECTS = 5
_MAX_NAME_CHARS = 64
_MAX_DESCRIPTION_CHARS = 10_000
_MAX_SCHEMA_BYTES = 100_000
_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_log = logging.getLogger(__name__)


@asynccontextmanager
async def mcp_tools(
    server: str | Sequence[str],
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    prefix: str | None = None,
    **options: Unpack[ToolChanges],
) -> AsyncGenerator[tuple[Tool, ...]]:
    """Connect to a server for the length of a block and yield its tools; see MCPServer."""
    async with MCPServer(server, headers=headers, env=env, prefix=prefix, **options) as connected:
        yield connected.tools


class MCPServer:
    """An MCP server and its tools.

    async with MCPServer("python server.py", prefix="files") as server:
        server.register(session.services)
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        prefix: str | None = None,
        on_elicitation: ElicitationHandler | None = None,
        **options: Unpack[ToolChanges],
    ) -> None:
        """Take a command to start (without a shell), or the "https://…" URL of a running server.

        `headers` are sent with every HTTP request. `env` is passed to the started program, which
        otherwise inherits only a few harmless variables. With a `prefix` the tools are named
        "prefix_name". `on_elicitation` answers the questions that the server asks the user during a
        call; without it they are declined. `options` apply to every tool (see ToolOptions); the
        timeout is 60 seconds by default, including the time for answers.
        """
        self._address = _parse_server(server, headers, env)
        self._prefix = None if prefix is None else checked_tool_name(prefix)
        self._ask = partial(answer_elicitation, self._address.label, on_elicitation)
        self._options: ToolChanges = {"timeout": _CALL_TIMEOUT_SECONDS, **options}
        tool_options(self._options)
        self._tools: dict[str, Tool] = {}
        self._refused: dict[str, str] = {}
        self._registries: list[ServiceRegistry] = []
        self._connection: McpConnection | None = None
        self._opening: asyncio.Task[McpConnection] | None = None
        self._closed = True

    @property
    def name(self) -> str:
        """The name shown in messages: the program or the host."""
        return self._address.label

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The current tools."""
        return tuple(self._tools.values())

    @property
    def refused(self) -> Mapping[str, str]:
        """The tools that are left out, by the server's names, with the reason."""
        return dict(self._refused)

    def connect(self) -> Self:
        """`aconnect` for programs without an event loop."""
        return run_blocking(self.aconnect(), "await aconnect()")

    async def aconnect(self) -> Self:
        """Start or connect to the server and list its tools.

        Raises ToolError if that fails, MissingExtraError without the extra `mcp`.
        """
        self._closed = False
        try:
            await self._live_connection()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Unregister the tools and close the connection; a started program ends with it."""
        self._closed = True
        for registry in self._registries:
            self._unregister(registry, self._tools)
        self._registries.clear()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def close(self) -> None:
        """`aclose` for programs without an event loop."""
        run_blocking(self.aclose(), "await aclose()")

    def register(self, registry: ServiceRegistry) -> tuple[Tool, ...]:
        """Register all tools or none, and keep them up to date until the server is closed.

        Raises ExistsError if another service has one of the names; use a prefix then.
        """
        registry.register_all(self.tools)
        if not any(registry is registered for registered in self._registries):
            self._registries.append(registry)
        return self.tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """`acall` for programs without an event loop."""
        return run_blocking(self.acall(name, arguments), "await acall()")

    async def acall(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool by the server's own name for it; raises ToolError."""
        call = RemoteCall(self.name, name, arguments, self._ask)
        reconnects = 0
        while True:
            connection = await self._live_connection()
            try:
                return await connection.finish(name, call)
            except ToolError:
                # A task goes on without the connection; any other call may have taken effect.
                reconnects += 1
                if not call.is_task or connection.alive or reconnects > _MAX_TASK_RECONNECTS:
                    raise

    async def _live_connection(self) -> McpConnection:
        """Return the connection; if it was lost, reconnect once for all waiting calls."""
        if self._closed:
            raise ToolError(f"MCP server {self.name!r} is closed; connect() it first.")
        if self._connection is not None and self._connection.alive:
            return self._connection.check_loop()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._on_opened)
        return await _await_shared(self._opening)

    async def _open(self) -> McpConnection:
        if self._connection is not None:
            await self._connection.close()
        connection = McpConnection(self._address, self._on_tools, self._ask)
        await connection.open()
        self._connection = connection
        return connection

    def _on_opened(self, opening: asyncio.Task[McpConnection]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # retrieved, so that asyncio does not log it if no call waited

    def _on_tools(self, listing: Listing) -> None:
        """Replace the tools by those listed; unchanged tools stay the same objects."""
        tools: dict[str, Tool] = {}
        self._refused = {}
        for listed in listing:
            try:
                tool = self._create_tool(listed)
                if tool.name in tools:
                    raise ValidationError(f"another tool is named {tool.name!r} too.")
                tools[tool.name] = tool
            except ValidationError as error:
                self._refused[str(listed.get("name"))[:100]] = str(error)
        if self._refused:
            _log.warning("Tools of MCP server %r were left out: %s", self.name, self._refused)
        previous, self._tools = self._tools, tools
        for registry in self._registries:
            self._update(registry, previous)

    def _create_tool(self, listed: Mapping[str, Any]) -> Tool:
        schema = schema_of(listed, self._prefix)
        existing = self._tools.get(schema.name)
        if existing is not None and existing.schema == schema:
            return existing
        return Tool(_McpBackend(self, str(listed["name"]), schema), **self._options)

    def _update(self, registry: ServiceRegistry, previous: Mapping[str, Tool]) -> None:
        changed = {
            name: tool for name, tool in previous.items() if self._tools.get(name) is not tool
        }
        self._unregister(registry, changed)
        for tool in self.tools:
            try:
                registry.register(tool)
            except ExistsError as error:
                _log.warning("A new tool of MCP server %r was left out: %s", self.name, error)

    def _unregister(self, registry: ServiceRegistry, tools: Mapping[str, Tool]) -> None:
        for name, tool in tools.items():
            if registry.has(name) and registry.get(name) is tool:
                registry.unregister(name)

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await self.aconnect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"MCPServer({self.name!r}, {len(self._tools)} tools)"


@dataclass(frozen=True, slots=True)
class _McpBackend(ToolBackend):
    """One tool of a server, which validates the arguments itself."""

    server: MCPServer
    remote_name: str
    """The server's own name for the tool."""
    listed_schema: ToolSchema

    @property
    def schema(self) -> ToolSchema:
        return self.listed_schema

    def bind(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    async def call(self, bound: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002
        return await self.server.acall(self.remote_name, bound)


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValidationError(
            f"The command of an MCP server cannot be split into words, got {short_repr(command)}: "
            f"{error}."
        ) from None


def _parse_server(server: Any, headers: Any, env: Any) -> ServerAddress:
    if isinstance(server, str) and "://" in server.split(" ")[0]:
        host = http_host(validate_text(server, "server"))
        if host is None:  # the rest of the URL is not shown, as it may contain a secret
            raise ValidationError(
                f"An MCP server is reached by http:// or https:// and a host, "
                f"got {short_repr(server.partition('://')[0] + '://…')}."
            )
        if env is not None:
            raise ValidationError("env= applies to a started program; for a URL, use headers=.")
        return ServerAddress(host, url=server, headers=headers)
    words = _split_command(server) if isinstance(server, str) else server
    if not isinstance(words, list | tuple) or not words:
        raise InvalidTypeError(
            f"An MCP server is a command, as text or as a list of words, or a URL, "
            f"got {short_repr(server)}."
        )
    command = tuple(
        validate_text(word, "a word of the command") for word in cast("list[Any]", words)
    )
    if headers is not None:
        raise ValidationError("headers= applies to a URL; for a started program, use env=.")
    plain_words = [os.path.basename(word) for word in command[:2] if not word.startswith("-")]
    return ServerAddress(" ".join(plain_words), command, env=env)


async def _await_shared(task: asyncio.Task[_T]) -> _T:
    """Return the result of a shared task; cancelling one waiter does not cancel it for others."""
    await asyncio.wait({task})
    if task.cancelled():
        raise ToolError("The MCP server was closed while a call waited for it.")
    return task.result()


def schema_of(listed: Mapping[str, Any], prefix: str | None) -> ToolSchema:
    """Return the schema of a listed tool, under a name that providers accept.

    Raises ValidationError if the tool cannot be offered to a model.
    """
    parameters = plain_dict(listed.get("inputSchema"), "its schema")
    if parameters.get("type") != "object":
        raise ValidationError("its schema is not that of an object.")
    if (size := len(dumps(parameters))) > _MAX_SCHEMA_BYTES:
        raise ValidationError(
            f"its schema has {size:,} bytes, and {_MAX_SCHEMA_BYTES:,} are allowed."
        )
    name = str(listed.get("name") or "")
    if not name:
        raise ValidationError("it has no name.")
    tool_name = _INVALID_NAME_CHARS.sub("_", f"{prefix}_{name}" if prefix else name)
    if len(tool_name) > _MAX_NAME_CHARS:
        raise ValidationError(f"its name is longer than {_MAX_NAME_CHARS} characters.")
    return ToolSchema(tool_name, _description(listed), parameters)


def _description(listed: Mapping[str, Any]) -> str:
    text = str(listed.get("description") or listed.get("title") or "")
    clean = text.encode(errors="replace").decode().replace("\0", "")
    return clean if len(clean) <= _MAX_DESCRIPTION_CHARS else f"{clean[:_MAX_DESCRIPTION_CHARS]}…"
