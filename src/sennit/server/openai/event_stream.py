"""Server-sent events for OpenAI clients; the run ends when the client disconnects.

The response headers are sent as soon as a request is accepted, before the model's first token.
Errors after that are events of the stream.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, Task, create_task, ensure_future, timeout, wait
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

from sennit.errors import SennitError
from sennit.messages.codec import dumps
from sennit.server.http.disconnects import wait_for_disconnect
from sennit.server.http.errors import HTTPError, error_for
from sennit.server.http.starlette_imports import HttpScope, Receive, Response, Send
from sennit.server.settings import Limits
from sennit.turns.events import AnyEvent

DONE = b"data: [DONE]\n\n"
_HEARTBEAT = b": still here\n\n"


def sse_event(value: Any, event: str | None = None) -> bytes:
    """Encode a value as one server-sent event."""
    prefix = b"" if event is None else b"event: " + event.encode() + b"\n"
    return prefix + b"data: " + dumps(value) + b"\n\n"


async def encode_events(
    events: AsyncGenerator[AnyEvent],
    encode: Callable[[AnyEvent], Iterator[bytes]],
    encode_error: Callable[[HTTPError], bytes],
    end: bytes = b"",
) -> AsyncGenerator[bytes]:
    """Yield the events of a run encoded for the client; an error becomes the last event."""
    try:
        async with aclosing(events):
            async for event in events:
                if chunk := b"".join(encode(event)):
                    yield chunk
        yield end
    except HTTPError as problem:
        yield encode_error(problem)
    except SennitError as error:
        yield encode_error(error_for(error))


class ChunkStream(Response):
    """A streaming response with heartbeats, which closes its generator when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        resources: AsyncExitStack,
        limits: Limits,
        headers: Mapping[str, str],
    ) -> None:
        """Stream `chunks`; at the end or on a disconnect, close them, then `resources`."""
        super().__init__(None, headers={"cache-control": "no-store", **headers})
        del self.headers["content-length"]
        self._chunks, self._resources, self._limits = chunks, resources, limits

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        disconnect = create_task(wait_for_disconnect(receive))
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            await self._send_all(disconnect, send)
        except TimeoutError:  # the client does not read
            pass
        finally:
            disconnect.cancel()
            await self._chunks.aclose()
            await self._resources.aclose()

    async def _send_all(self, disconnect: Task[None], send: Send) -> None:
        while (chunk := await self._next_chunk(disconnect, send)) is not None:
            await self._send(send, chunk)
        if not disconnect.done():
            await self._send(send, b"", more=False)

    async def _next_chunk(self, disconnect: Task[None], send: Send) -> bytes | None:
        """Return the next chunk, with heartbeats meanwhile; None at the end or on a disconnect."""
        upcoming = ensure_future(anext(self._chunks, None))
        try:
            while not upcoming.done() and not disconnect.done():
                await wait(
                    {upcoming, disconnect},
                    timeout=self._limits.heartbeat,
                    return_when=FIRST_COMPLETED,
                )
                if not upcoming.done() and not disconnect.done():
                    await self._send(send, _HEARTBEAT)
            return None if disconnect.done() else upcoming.result()
        finally:
            if not upcoming.done():
                upcoming.cancel()
                await wait({upcoming})

    async def _send(self, send: Send, chunk: bytes, *, more: bool = True) -> None:
        async with timeout(self._limits.send_seconds):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
