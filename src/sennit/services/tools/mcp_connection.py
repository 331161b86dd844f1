"""A connection to an MCP server; the only module that imports `mcp`.

It must be entered and left in one task (its cancel scopes demand it), while calls come from any
task and `close` from yet another; so each connection lives in a task of its own, and the others
only wait for what it tells them. It is used once: when it is lost, another one is made.
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
from sennit.services.tools.mcp_content import MAX_TOOLS, result_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import Transport

Listing: TypeAlias = list[dict[str, Any]]
"""Tools as a server lists them."""

_CONNECT_SECONDS = 30.0
_CLOSE_SECONDS = 10.0
_CALM_SECONDS = 0.1  # between two listings, however often a server says that something changed
_LISTEN_SECONDS = 1.0  # before listening again to a server that hung up
_MAX_PAGES = 50
_MAX_SAID = 400
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of an MCP server."""

    label: str
    """Enough to recognise it by, and all that is shown: the rest may hold secrets."""
    command: tuple[str, ...] = field(default=(), repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)


class McpConnection:
    """One life of a connection, in one task from beginning to end."""

    def __init__(self, address: ServerAddress, offer: Callable[[Listing], None]) -> None:
        self._address = address
        self._offer = offer
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Client] = self._loop.create_future()
        self._woken = asyncio.Event()
        self._changed = False
        self._lost = False
        self._last_words = _LastWords()
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return not self._lost and self._task is not None and not self._task.done()

    def of_this_loop(self) -> Self:
        if self._loop is not asyncio.get_running_loop():
            raise ToolError(
                f"MCP server {self._address.label!r} was connected in another event loop; "
                f"connect() it in the one that calls it."
            )
        return self

    async def open(self) -> None:
        """Connect and list; raises ToolError if it does not come to that."""
        self._task = asyncio.create_task(self._live(), name=f"MCP {self._address.label}")
        try:
            await asyncio.wait(
                {self._task, self._ready},
                timeout=_CONNECT_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not self._ready.done():
            raise await self._failure(self._task)

    async def _failure(self, task: asyncio.Task[None]) -> Exception:
        said = f"no answer within {_CONNECT_SECONDS:g} seconds"
        cause = None
        if task.done() and not task.cancelled() and (cause := task.exception()) is not None:
            if isinstance(cause, MissingExtraError):
                return cause
            said = _innermost(cause)
        await self.close()
        await asyncio.to_thread(self._last_words.wait)
        error = ToolError(f"MCP server {self._address.label!r} cannot be used: {said}.")
        error.__cause__ = cause
        if words := self._last_words.quoted():  # for people: a model must not see what it logs
            error.add_note(words)
        return error

    async def close(self) -> None:
        """End it, whatever state it is in."""
        if self._task is None:
            return
        self.lose()
        pending = {self._task}
        if self._ready.done():
            _, pending = await asyncio.wait(pending, timeout=_CLOSE_SECONDS)
        if pending:
            self._task.cancel()
            await asyncio.wait(pending, timeout=_CLOSE_SECONDS)
        with suppress(asyncio.CancelledError):
            self._task.exception()

    def lose(self) -> None:
        """No more calls: it is over, or about to be."""
        self._lost = True
        self._woken.set()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        from mcp import MCPError
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        params = CallToolRequestParams(name=name, arguments=dict(arguments))
        session = self._ready.result().session
        try:
            # Not `call_tool`, which would run the server's own output schema, patterns included,
            # over the result: a stranger's regular expression can take forever.
            answer = await session.send_request(CallToolRequest(params=params), CallToolResult)
        except MCPError as error:
            raise self._refusal(name, error.message) from error
        except Exception as error:
            raise ToolError(
                f"MCP server {self._address.label!r} returned an invalid response to {name!r}: "
                f"{type(error).__name__}."
            ) from error
        return result_of(answer.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _refusal(self, name: str, said: str) -> ToolError:
        if said == "Session terminated":  # how the SDK words a session the server forgot
            self.lose()
        if self.alive:
            return ToolError(f"MCP server {self._address.label!r} failed to run {name!r}: {said}")
        return ToolError(
            f"MCP server {self._address.label!r} was lost while {name!r} ran, which may or may not "
            f"have taken effect; the next call reconnects."
        )

    async def _live(self) -> None:
        """The whole life: connect, list, attend to changes, leave."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack))
                self._offer(await _listing(client))
                self._ready.set_result(client)
                await self._attend(client)
        finally:
            self._lost = True

    async def _client(self, stack: AsyncExitStack) -> Client:
        try:
            from mcp import Client
        except ImportError as error:
            raise MissingExtraError.of("Calling MCP tools", "mcp") from error
        transport = self._over_http(stack) if self._address.url else self._over_stdio(stack)
        watched = _watched(await transport, self.lose)
        return Client(watched, cache=None, message_handler=self._heard)

    async def _over_http(self, stack: AsyncExitStack) -> Transport:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=None)  # each call has its own limit
        http = httpx2.AsyncClient(headers=dict(self._address.headers or {}), timeout=timeout)
        await stack.enter_async_context(http)
        return streamable_http_client(self._address.url, http_client=http)

    async def _over_stdio(self, stack: AsyncExitStack) -> Transport:
        from mcp import StdioServerParameters, stdio_client

        program, *rest = self._address.command
        env = dict(self._address.env or {})
        parameters = StdioServerParameters(command=program, args=rest, env=env)
        return stdio_client(parameters, errlog=stack.enter_context(self._last_words.listening()))

    async def _heard(self, message: Any) -> None:
        """Servers of before 2026 say in passing that their tools changed."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._note_change()

    def _note_change(self) -> None:
        self._changed = True
        self._woken.set()

    async def _attend(self, client: Client) -> None:
        """List again whenever the tools changed, until it is over."""
        listening = asyncio.create_task(self._listen(client))
        try:
            while not self._lost:
                await self._woken.wait()
                self._woken.clear()
                if self._changed and not self._lost:
                    self._changed = False
                    await self._list_again(client)
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _list_again(self, client: Client) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                self._offer(await _listing(client))
        except Exception as error:  # the tools known so far stay
            _log.warning("MCP server %r does not list its tools: %r", self._address.label, error)
        await asyncio.sleep(_CALM_SECONDS)

    async def _listen(self, client: Client) -> None:
        """Servers since 2026 tell of changes only to those who listen."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        while not self._lost:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._note_change()  # what was missed while nobody listened
                    async for _ in changes:
                        self._note_change()
            except SubscriptionLost:
                pass  # a proxy hung up, perhaps: listen again
            except (ListenNotSupportedError, MCPError, TimeoutError) as error:
                _log.debug("MCP server %r tells of no changes: %r", self._address.label, error)
                return
            await asyncio.sleep(_LISTEN_SECONDS)


async def _listing(client: Client) -> Listing:
    """All tools of a server, page by page, as many as anyone can use."""
    found: Listing = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [one.model_dump(by_alias=True, mode="json") for one in page.tools]
        cursor = page.next_cursor
        if cursor is None or len(found) >= MAX_TOOLS:
            break
    return found[:MAX_TOOLS]


@asynccontextmanager
async def _watched(transport: Transport, lose: Callable[[], None]) -> AsyncGenerator[Any]:
    """A transport that tells when nothing more will come, even if nobody is waiting for it."""
    async with transport as (read, write):
        yield _Watched(read, lose), write


class _Watched:
    """A stream that calls `lose` when it ends."""

    def __init__(self, stream: Any, lose: Callable[[], None]) -> None:
        self._stream = stream
        self._lose = lose

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._lose()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._stream.__aexit__(*raised)


class _LastWords:
    """The last lines a program wrote to its stderr: why it died, most likely."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=5)
        self._reader: Thread | None = None

    def listening(self) -> TextIO:
        """A file for the program to write to; it is closed at the end of the block."""
        read, write = os.pipe()
        self._reader = Thread(target=self._read, args=(read,), name="sennit-mcp", daemon=True)
        self._reader.start()
        return os.fdopen(write, "w")

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, errors="replace") as lines:
            while line := lines.readline(1000):
                self._lines.append(line.strip())

    def wait(self) -> None:
        """Until all was read that a program wrote before it ended; not for long."""
        if self._reader is not None:
            self._reader.join(1)

    def quoted(self) -> str:
        said = "\n".join(filter(None, self._lines))
        return f"It wrote:\n{said}" if said else ""


def _innermost(error: BaseException) -> str:
    """Return the innermost exception of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    message = str(error)[:_MAX_SAID]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
