"""A connection to an MCP server.

The SDK's cancel scopes must be entered and left in one task, while calls and `close` come from any
task; so each connection runs in its own task, and other tasks wait for its signals. A connection is
used once: after it is lost, a new one is created.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias, cast

from sennit.errors import MissingExtraError, ToolError
from sennit.services.tools.mcp_call import TASKS_EXTENSION, Ask, RemoteCall
from sennit.services.tools.mcp_results import result_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import Transport
    from mcp_types import ElicitResult

Listing: TypeAlias = list[dict[str, Any]]
"""Tools in the form in which a server lists them."""

_CONNECT_TIMEOUT_SECONDS = 30.0
_CLOSE_TIMEOUT_SECONDS = 10.0
_RELIST_INTERVAL_SECONDS = 0.1  # minimum between two listings, however often tools change
_RELISTEN_DELAY_SECONDS = 1.0  # before subscribing again after a disconnect
_MAX_PAGES = 50
_MAX_TOOLS = 500
_MAX_ERROR_CHARS = 400
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of an MCP server."""

    label: str
    """The program or host; the only part that is shown, since the rest may contain secrets."""
    command: tuple[str, ...] = field(default=(), repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)


class McpConnection:
    """One connection to a server, opened and closed in its own task."""

    def __init__(
        self, address: ServerAddress, on_tools: Callable[[Listing], None], ask: Ask
    ) -> None:
        self._address = address
        self._on_tools, self._ask = on_tools, ask
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Client] = self._loop.create_future()
        self._wakeup = asyncio.Event()
        self._changed = False
        self._lost = False
        self._stderr_tail = _StderrTail()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return not self._lost and self._task is not None and not self._task.done()

    def check_loop(self) -> Self:
        if self._loop is not asyncio.get_running_loop():
            raise ToolError(
                f"MCP server {self._address.label!r} was connected in another event loop; "
                f"connect() it in the one that calls it."
            )
        return self

    async def open(self) -> None:
        """Connect and list the tools; raises ToolError on failure or timeout."""
        self._task = asyncio.create_task(self._run(), name=f"MCP {self._address.label}")
        try:
            await asyncio.wait(
                {self._task, self._ready},
                timeout=_CONNECT_TIMEOUT_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not self._ready.done():
            raise await self._failure(self._task)

    async def _failure(self, task: asyncio.Task[None]) -> Exception:
        reason = f"no answer within {_CONNECT_TIMEOUT_SECONDS:g} seconds"
        cause = None
        if task.done() and not task.cancelled() and (cause := task.exception()) is not None:
            if isinstance(cause, MissingExtraError):
                return cause
            reason = _innermost_message(cause)
        await self.close()
        await asyncio.to_thread(self._stderr_tail.wait)
        error = ToolError(f"MCP server {self._address.label!r} cannot be used: {reason}.")
        error.__cause__ = cause
        if stderr := self._stderr_tail.summary():  # as a note, which models do not see
            error.add_note(stderr)
        return error

    async def close(self) -> None:
        """Close the connection in any state."""
        if self._task is None:
            return
        self.mark_lost()
        pending = {self._task}
        if self._ready.done():
            _, pending = await asyncio.wait(pending, timeout=_CLOSE_TIMEOUT_SECONDS)
        if pending:
            self._task.cancel()
            await asyncio.wait(pending, timeout=_CLOSE_TIMEOUT_SECONDS)
        with suppress(asyncio.CancelledError):
            self._task.exception()

    def mark_lost(self) -> None:
        """Mark the connection as lost and wake its task, which then closes it."""
        self._lost = True
        self._wakeup.set()

    async def finish(self, name: str, call: RemoteCall) -> Any:
        """Start a call of a tool, or continue one that is a task, and return its result."""
        from mcp import MCPError
        from mcp_types import CallToolResult

        session = self._ready.result().session
        try:
            result = CallToolResult.model_validate(await call.finish(session), by_name=False)
        except ToolError:
            raise
        except MCPError as error:
            raise self._call_error(name, error.message) from error
        except Exception as error:
            raise ToolError(
                f"MCP server {self._address.label!r} returned an invalid response to {name!r}: "
                f"{type(error).__name__}."
            ) from error
        return result_of(result.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _call_error(self, name: str, message: str) -> ToolError:
        if message == "Session terminated":  # the SDK's message for an expired session
            self.mark_lost()
        if self.alive:
            return ToolError(
                f"MCP server {self._address.label!r} failed to run {name!r}: {message}"
            )
        return ToolError(
            f"MCP server {self._address.label!r} was lost while {name!r} ran, which may or may not "
            f"have taken effect; the next call reconnects."
        )

    async def _run(self) -> None:
        """Connect, list the tools, relist them when they change, disconnect."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._create_client(stack))
                self._on_tools(await _list_tools(client))
                self._ready.set_result(client)
                await self._relist_on_change(client)
        finally:
            self._lost = True

    async def _create_client(self, stack: AsyncExitStack) -> Client:
        try:
            from mcp import Client
            from mcp.client import advertise
        except ImportError as error:
            raise MissingExtraError.of("Calling MCP tools", "mcp") from error
        transport = (
            self._http_transport(stack) if self._address.url else self._stdio_transport(stack)
        )
        observed = _observe_end(await transport, self.mark_lost)
        return Client(
            observed,
            cache=None,
            message_handler=self._on_message,
            elicitation_callback=self._on_elicitation,
            extensions=[advertise(TASKS_EXTENSION)],
        )

    async def _http_transport(self, stack: AsyncExitStack) -> Transport:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(_CONNECT_TIMEOUT_SECONDS, read=None)  # each call has its own limit
        http = httpx2.AsyncClient(headers=dict(self._address.headers or {}), timeout=timeout)
        await stack.enter_async_context(http)
        return streamable_http_client(self._address.url, http_client=http)

    async def _stdio_transport(self, stack: AsyncExitStack) -> Transport:
        from mcp import StdioServerParameters, stdio_client

        program, *args = self._address.command
        env = dict(self._address.env or {})
        parameters = StdioServerParameters(command=program, args=args, env=env)
        return stdio_client(parameters, errlog=stack.enter_context(self._stderr_tail.open_pipe()))

    async def _on_elicitation(self, context: Any, params: Any) -> ElicitResult:
        """Answer a question of servers before protocol version 2026."""
        del context
        return await self._ask(params)

    async def _on_message(self, message: Any) -> None:
        """Handle the change notification of servers before protocol version 2026."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._mark_changed()

    def _mark_changed(self) -> None:
        self._changed = True
        self._wakeup.set()

    async def _relist_on_change(self, client: Client) -> None:
        """List the tools again after each change, until the connection is lost."""
        listener = asyncio.create_task(self._listen(client))
        try:
            while not self._lost:
                await self._wakeup.wait()
                self._wakeup.clear()
                if self._changed and not self._lost:
                    self._changed = False
                    await self._relist(client)
        finally:
            listener.cancel()
            await asyncio.wait({listener})

    async def _relist(self, client: Client) -> None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                self._on_tools(await _list_tools(client))
        except Exception as error:  # the previous tools stay
            _log.warning("MCP server %r failed to list its tools: %r", self._address.label, error)
        await asyncio.sleep(_RELIST_INTERVAL_SECONDS)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, as servers since protocol version 2026 require."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        capability = client.server_capabilities.tools
        if capability is None or not capability.list_changed:
            return
        while not self._lost:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._mark_changed()  # changes before the subscription were missed
                    async for _ in changes:
                        self._mark_changed()
            except SubscriptionLost:
                pass  # perhaps closed by a proxy: subscribe again
            except (ListenNotSupportedError, MCPError, TimeoutError) as error:
                _log.debug("MCP server %r sends no changes: %r", self._address.label, error)
                return
            await asyncio.sleep(_RELISTEN_DELAY_SECONDS)


async def _list_tools(client: Client) -> Listing:
    """Return the tools of a server, page by page, up to _MAX_TOOLS."""
    tools: Listing = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [tool.model_dump(by_alias=True, mode="json") for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None or len(tools) >= _MAX_TOOLS:
            break
    return tools[:_MAX_TOOLS]


@asynccontextmanager
async def _observe_end(transport: Transport, on_end: Callable[[], None]) -> AsyncGenerator[Any]:
    """Wrap a transport to call `on_end` when its read stream ends, even if no call is waiting."""
    async with transport as (read, write):
        yield _ObservedStream(read, on_end), write


class _ObservedStream:
    """A stream that calls `on_end` when it ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._stream.__aexit__(*raised)


class _StderrTail:
    """The last lines of a program's stderr, which usually say why it failed."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=5)
        self._reader: Thread | None = None

    def open_pipe(self) -> TextIO:
        """Start reading a new pipe and return its write end; the caller closes it."""
        read, write = os.pipe()
        self._reader = Thread(target=self._read, args=(read,), name="sennit-mcp", daemon=True)
        self._reader.start()
        return os.fdopen(write, "w", encoding="utf-8", errors="replace")

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(1000):
                self._lines.append(line.strip())

    def wait(self) -> None:
        """Wait up to a second for the rest of the output."""
        if self._reader is not None:
            self._reader.join(1)

    def summary(self) -> str:
        text = "\n".join(filter(None, self._lines))
        return f"It wrote:\n{text}" if text else ""


def _innermost_message(error: BaseException) -> str:
    """Return type and message of the innermost exception of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    message = str(error)[:_MAX_ERROR_CHARS]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
