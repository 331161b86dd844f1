"""The MCP server over stdio and HTTP.

Over stdio it serves one owner, whoever started it; over HTTP it stands behind the gate of the
server like all else, and each request reaches what its own Caller reaches. It keeps no state
between requests, so any process can answer the next one. The package is loaded when the first
request comes: a server that nobody asks for it neither waits for it nor needs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as Misfit

from sennit.errors import MissingExtraError, SennitError, shown
from sennit.messages.codec import dumps
from sennit.server.http.endpoint import SMALL, check_values
from sennit.server.http.errors import HTTPError, internal, log_unforeseen, problem_of
from sennit.server.http.limits import read_body, replayed
from sennit.server.mcp.tools import OFFERS, McpScope, McpTool, offered

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        PaginatedRequestParams,
        Tool,
    )

    from sennit.server.http.callers import Caller
    from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Receive, Send
    from sennit.server.state import ServerState

    Context = ServerRequestContext[Any, Any]
    WhoAsks = Callable[[Context], McpScope]

_log = logging.getLogger(__name__)
_MOST_VALUES = 10_000  # in a body: the library decodes it on the event loop
_ABOUT = (
    "Sennit keeps this user's conversations with language models, in sessions that branch, and "
    "what is remembered of them. Search first; read_session and read_file show the whole of what "
    "was found. To try another way, fork_session rather than change what was said."
)


def mcp_server(who_asks: WhoAsks) -> Server[Any]:
    """The protocol's server; `who_asks` says what a request may reach."""
    try:
        from mcp.server.lowlevel import Server
        from mcp_types import ListToolsResult
    except ImportError as error:
        raise MissingExtraError.of("The MCP server", "mcp") from error

    async def list_tools(context: Context, _page: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_listed(tool) for tool in offered(who_asks(context))])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        return await _called(who_asks(context), params.name, params.arguments or {})

    return Server(
        "sennit",
        version=version("sennit"),
        title="Sennit",
        instructions=_ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _listed(tool: McpTool) -> Tool:
    from mcp_types import Tool, ToolAnnotations

    return Tool(
        name=tool.name,
        description=tool.about,
        input_schema=tool.takes.model_json_schema(),
        annotations=ToolAnnotations(
            read_only_hint=tool.reads_only, destructive_hint=False, open_world_hint=False
        ),
    )


async def _called(access: McpScope, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """Return the result of a tool; errors are reported to the model, which may try again."""
    try:
        tool = _wanted(access, name)
        parsed = tool.takes.model_validate(arguments)
        if access.check_quota is not None and not tool.reads_only:
            await access.check_quota()
        return _result(await tool.run(access, parsed))
    except Misfit as error:
        return _failed(f"{name} was not given what it takes: {_misfits(error)}")
    except (SennitError, HTTPError) as error:
        return _failed(str(error))
    except Exception as error:
        log_unforeseen(_log, f"the tool {name}", error)
        return _failed(internal().message)


def _wanted(access: McpScope, name: str) -> McpTool:
    allowed = {tool.name: tool for tool in offered(access)}
    if name in allowed:
        return allowed[name]
    if name in OFFERS and not access.may(OFFERS[name].scope):
        raise HTTPError(
            403, "scope", f"{name} needs a token with the scope {OFFERS[name].scope!r}."
        )
    raise HTTPError(
        404, "not_found", f"There is no tool {shown(name)}; there are: {', '.join(allowed)}."
    )


def _misfits(error: Misfit) -> str:
    messages = [
        f"{'.'.join(map(str, detail['loc'])) or 'arguments'}: {detail['msg']}, got {shown(detail['input'])}"
        for detail in error.errors(include_url=False)
    ]
    return "; ".join(messages[:10]) + "."


def _result(value: dict[str, Any]) -> CallToolResult:
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=dumps(value).decode())], structured_content=value)


def _failed(text: str) -> CallToolResult:
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=text)], is_error=True)


async def serve_stdio(reach: McpScope) -> None:
    """Serve one owner on standard input and output until the input ends."""
    server = mcp_server(lambda _context: reach)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class McpApp:
    """The MCP server over HTTP, as an app that is mounted behind the gate."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Be there; what was begun is ended with it."""
        try:
            yield
        finally:
            self._ended.set()
            if self._task is not None:
                await self._task

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            # A stream to listen on would stay empty: between requests there is nothing to tell.
            message = f"{scope['method']} is not allowed here; use POST."
            raise HTTPError(405, "method", message, headers={"allow": "POST"})
        caller: Caller = scope["state"]["caller"]
        limits = self._server.limits_of(caller)
        body = await read_body(dict(scope["headers"]), receive, limits)
        scope["state"]["body_bytes"] = len(body)
        if len(body) > SMALL:
            values = min(limits.values, _MOST_VALUES)
            await self._server.work.run(caller, check_values, body, values)
        try:
            app: ASGIApp = await self._app()
        except SennitError as error:
            app = problem_of(error).response()
        async with self._server.work.slot(caller, "mcp"):
            await app(scope, replayed(body, receive), send)

    async def _app(self) -> ASGIApp:
        async with self._starting:
            if self._manager is None:
                manager = await asyncio.to_thread(self._make)
                ready = asyncio.Event()
                self._task = asyncio.create_task(self._live(manager, ready), name="MCP")
                await ready.wait()
                self._manager = manager
            return self._manager.handle_request

    def _make(self) -> StreamableHTTPSessionManager:
        server = mcp_server(self._who_asks)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        return StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            max_request_body_size=self._server.limits_of(None).body_bytes,
        )

    async def _live(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        async with manager.run():  # entered and left in one task, as its cancel scopes demand
            ready.set()
            await self._ended.wait()

    def _who_asks(self, context: Context) -> McpScope:
        request: Any = context.request
        caller: Caller = request.scope["state"]["caller"]
        model = next(iter(self._server.models.values()), None)
        size: int = request.scope["state"]["body_bytes"]
        quota = partial(self._server.quotas.check, caller, size)
        return McpScope(caller.client, caller.scopes, model, self._server.runs, quota)
