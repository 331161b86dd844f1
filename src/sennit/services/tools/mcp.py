"""Tools of MCP servers, over stdio or HTTP.

When a server dies, every call under way fails at once; the next call connects anew, once. A call is
never made twice by itself: nobody can know what the first one did.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from sennit.errors import ExistsError, InvalidTypeError, ToolError, ValidationError, shown
from sennit.messages.image_url import http_host
from sennit.messages.json_values import text
from sennit.messages.typescript import ToolSchema
from sennit.services.registry import ServiceRegistry
from sennit.services.tools.backend import ToolBackend, ToolContext
from sennit.services.tools.mcp_connection import Listing, McpConnection, ServerAddress
from sennit.services.tools.mcp_content import schema_of
from sennit.services.tools.tool import Tool, ToolChanges, checked_tool_name, tool_options

_T = TypeVar("_T")
_CALL_SECONDS = 60.0
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
    """The tools of a server for the length of a block; see MCPServer."""
    async with MCPServer(server, headers=headers, env=env, prefix=prefix, **options) as connected:
        yield connected.tools


class MCPServer:
    """An MCP server whose tools are used like any other.

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
        **options: Unpack[ToolChanges],
    ) -> None:
        """A command to start (no shell is involved), or the "https://…" of one that runs.

        `headers` go with every HTTP request, `env` to a started program, which otherwise sees only
        a few harmless variables. With a prefix the tools are called "prefix_name". Options are
        those of every tool (see ToolOptions); unless told otherwise a call may take 60 seconds.
        """
        self._address = _address(server, headers, env)
        self._prefix = None if prefix is None else checked_tool_name(prefix)
        self._options: ToolChanges = {"timeout": _CALL_SECONDS, **options}
        tool_options(self._options)
        self._tools: dict[str, Tool] = {}
        self._refused: dict[str, str] = {}
        self._registries: list[ServiceRegistry] = []
        self._connection: McpConnection | None = None
        self._opening: asyncio.Task[McpConnection] | None = None
        self._closed = True

    @property
    def name(self) -> str:
        """A name for messages: the program or the host."""
        return self._address.label

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools it has now."""
        return tuple(self._tools.values())

    @property
    def refused(self) -> Mapping[str, str]:
        """The tools that are not offered, by the server's names, and why."""
        return dict(self._refused)

    async def connect(self) -> Self:
        """Start or reach the server and list its tools.

        Raises ToolError if that fails, MissingExtraError without the extra `mcp`.
        """
        self._closed = False
        try:
            await self._alive()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Take its tools out of the registries and end the connection, and the program with it."""
        self._closed = True
        for registry in self._registries:
            self._withdraw(registry, self._tools)
        self._registries.clear()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def close(self) -> None:
        """`aclose`, by a shorter name."""
        await self.aclose()

    def register(self, registry: ServiceRegistry) -> tuple[Tool, ...]:
        """Register its tools, all or none, and keep them up to date until it is closed.

        Raises ExistsError if another service has one of the names; a prefix helps.
        """
        registry.register_all(self.tools)
        if not any(registry is one for one in self._registries):
            self._registries.append(registry)
        return self.tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool by the server's own name for it; raises ToolError."""
        connection = await self._alive()
        return await connection.call(name, arguments)

    async def _alive(self) -> McpConnection:
        """The connection, made anew if it was lost: one attempt, however many calls wait for it."""
        if self._closed:
            raise ToolError(f"MCP server {self.name!r} is closed; connect() it first.")
        if self._connection is not None and self._connection.alive:
            return self._connection.of_this_loop()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await _shielded(self._opening)

    async def _open(self) -> McpConnection:
        if self._connection is not None:
            await self._connection.close()
        connection = McpConnection(self._address, self._offer)
        await connection.open()
        self._connection = connection
        return connection

    def _opened(self, opening: asyncio.Task[McpConnection]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; nobody may have

    def _offer(self, listing: Listing) -> None:
        """Make tools of what the server lists; those that did not change stay the same objects."""
        tools: dict[str, Tool] = {}
        self._refused = {}
        for listed in listing:
            try:
                tool = self._tool(listed)
                if tool.name in tools:
                    raise ValidationError(f"another tool is named {tool.name!r} too.")
                tools[tool.name] = tool
            except ValidationError as error:
                self._refused[str(listed.get("name"))[:100]] = str(error)
        if self._refused:
            _log.warning("MCP server %r has tools that are left out: %s", self.name, self._refused)
        before, self._tools = self._tools, tools
        for registry in self._registries:
            self._update(registry, before)

    def _tool(self, listed: Mapping[str, Any]) -> Tool:
        schema = schema_of(listed, self._prefix)
        known = self._tools.get(schema.name)
        if known is not None and known.schema == schema:
            return known
        return Tool(_MCPTarget(self, str(listed["name"]), schema), **self._options)

    def _update(self, registry: ServiceRegistry, before: Mapping[str, Tool]) -> None:
        changed = {name: tool for name, tool in before.items() if self._tools.get(name) is not tool}
        self._withdraw(registry, changed)
        for tool in self.tools:
            try:
                registry.register(tool)
            except ExistsError as error:
                _log.warning("A new tool of MCP server %r is left out: %s", self.name, error)

    def _withdraw(self, registry: ServiceRegistry, tools: Mapping[str, Tool]) -> None:
        for name, tool in tools.items():
            if registry.has(name) and registry.get(name) is tool:
                registry.unregister(name)

    async def __aenter__(self) -> Self:
        return await self.connect()

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
class _MCPTarget(ToolBackend):
    """One tool of a server. Its arguments are checked by the server, which knows best."""

    server: MCPServer
    remote: str
    """What the server calls it."""
    listed: ToolSchema

    @property
    def schema(self) -> ToolSchema:
        return self.listed

    def bind(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return arguments

    async def call(self, bound: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002
        return await self.server.call(self.remote, bound)


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValidationError(
            f"The command of an MCP server cannot be split into words, got {shown(command)}: "
            f"{error}."
        ) from None


def _address(server: Any, headers: Any, env: Any) -> ServerAddress:
    if isinstance(server, str) and "://" in server.split(" ")[0]:
        host = http_host(text(server, "server"))
        if host is None:  # what stands behind the scheme may hold a secret
            raise ValidationError(
                f"An MCP server is reached by http:// or https:// and a host, "
                f"got {shown(server.partition('://')[0] + '://…')}."
            )
        if env is not None:
            raise ValidationError("env= applies to a started program; for a URL, use headers=.")
        return ServerAddress(host, url=server, headers=headers)
    words = _split(server) if isinstance(server, str) else server
    if not isinstance(words, list | tuple) or not words:
        raise InvalidTypeError(
            f"An MCP server is a command, as text or as a list of words, or a URL, "
            f"got {shown(server)}."
        )
    command = tuple(text(word, "a word of the command") for word in cast("list[Any]", words))
    if headers is not None:
        raise ValidationError("headers= applies to a URL; for a started program, use env=.")
    plain_words = [os.path.basename(word) for word in command[:2] if not word.startswith("-")]
    return ServerAddress(" ".join(plain_words), command, env=env)


async def _shielded(task: asyncio.Task[_T]) -> _T:
    """Return the result of a shared task; cancelling one waiter does not cancel it for others."""
    await asyncio.wait({task})
    if task.cancelled():
        raise ToolError("The MCP server was closed while a call waited for it.")
    return task.result()
