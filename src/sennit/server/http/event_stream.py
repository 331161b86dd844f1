"""Server-sent events: one streaming response for all APIs, and client disconnects.

The headers are sent at once, before the first event. Comments serve as heartbeats. The generator of
the events is closed when the client disconnects or does not read, when its token is revoked, and,
if it asks for it, when the server shuts down; a run behind it then ends or goes on, as it decides.
"""

from __future__ import annotations

from asyncio import (
    FIRST_COMPLETED,
    CancelledError,
    Task,
    create_task,
    current_task,
    ensure_future,
    timeout,
    wait,
)
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from sennit.messages.codec import dumps
from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import HttpScope, Receive, Response, Send
from sennit.server.settings import Limits

MEDIA = "text/event-stream"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_HEARTBEAT = b": alive\n\n"
_T = TypeVar("_T")


def sse_event(data: Any, event: str | None = None, number: int | None = None) -> bytes:
    """Encode data as one server-sent event, with its type and number if it has them."""
    lines = [b"data: " + dumps(data), b"", b""]
    if event is not None:
        lines.insert(0, b"event: " + event.encode())
    if number is not None:
        lines.insert(0, b"id: %d" % number)
    return b"\n".join(lines)


class EventStream(Response):
    """A streaming response with heartbeats, which closes its generator at the end."""

    media_type = MEDIA

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        *,
        resources: AsyncExitStack | None = None,
        open_streams: set[EventStream] | None = None,
    ) -> None:
        """Stream `chunks`; at the end close them, then `resources`.

        The stream is in `open_streams` while it is sent.
        """
        super().__init__(None, headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._chunks, self._limits = chunks, limits
        self._resources = AsyncExitStack() if resources is None else resources
        self._open_streams: set[EventStream] = set() if open_streams is None else open_streams
        self._watch: Task[None] | None = None

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        self._watch = watch = create_task(wait_for_disconnect(receive))
        scope["state"]["share"].attach(self)
        self._open_streams.add(self)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (chunk := await self._next_chunk(watch, send)) is not None:
                await self._send(send, chunk)
            if watch.cancelled() or not watch.done():  # the client is still connected
                await self._send(send, b"", more=False)
        except TimeoutError:  # the client does not read
            pass
        finally:
            self._open_streams.discard(self)
            watch.cancel()
            await self._chunks.aclose()
            await self._resources.aclose()

    def stop(self) -> None:
        """End the stream; the client gets a complete response."""
        if self._watch is not None:
            self._watch.cancel()

    async def _next_chunk(self, watch: Task[None], send: Send) -> bytes | None:
        """Return the next chunk, with heartbeats meanwhile; None at the end of the stream."""
        upcoming = ensure_future(anext(self._chunks, None))
        try:
            while not upcoming.done() and not watch.done():
                waiting = {upcoming, watch}
                seconds = self._limits.heartbeat
                done, _ = await wait(waiting, timeout=seconds, return_when=FIRST_COMPLETED)
                if not done:
                    await self._send(send, _HEARTBEAT)
            return None if watch.done() else upcoming.result()
        finally:
            if not upcoming.done():
                upcoming.cancel()
                await wait({upcoming})

    async def _send(self, send: Send, chunk: bytes, *, more: bool = True) -> None:
        async with timeout(self._limits.send_seconds):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def cancel_on_disconnect(receive: Receive, work: Awaitable[_T]) -> _T:
    """Return the result of the work; on a disconnect cancel it and raise HTTPError 499."""
    task, watch = current_task(), create_task(wait_for_disconnect(receive))
    assert task is not None

    def cancel(watch: Task[None]) -> None:
        if not watch.cancelled():
            task.cancel()

    watch.add_done_callback(cancel)
    try:
        return await work
    except CancelledError:
        if not watch.done():
            raise
        task.uncancel()
        message = "The client disconnected; the request was cancelled."
        raise HTTPError(499, "gone", message) from None
    finally:
        watch.remove_done_callback(cancel)
        watch.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
