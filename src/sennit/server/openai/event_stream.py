"""Server-sent events for OpenAI clients; the run ends when the client disconnects.

The head of an answer is sent as soon as a request is accepted: whoever waits knows that it is being
worked on, also while a slow model reads. What goes wrong later is an event of the stream.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, Task, create_task, ensure_future, timeout, wait
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

from sennit.errors import SennitError
from sennit.messages.codec import dumps
from sennit.server.http.disconnects import gone
from sennit.server.http.errors import HTTPError, problem_of
from sennit.server.http.starlette_imports import HttpScope, Receive, Response, Send
from sennit.server.settings import Limits
from sennit.turns.events import AnyEvent

DONE = b"data: [DONE]\n\n"
_ALIVE = b": still here\n\n"


def data(value: Any, event: str | None = None) -> bytes:
    """A value as one event."""
    prefix = b"" if event is None else b"event: " + event.encode() + b"\n"
    return prefix + b"data: " + dumps(value) + b"\n\n"


async def told(
    events: AsyncGenerator[AnyEvent],
    encode: Callable[[AnyEvent], Iterator[bytes]],
    encode_error: Callable[[HTTPError], bytes],
    end: bytes = b"",
) -> AsyncGenerator[bytes]:
    """The events of a run as a client gets them; what goes wrong on the way is told there too."""
    try:
        async with aclosing(events):
            async for event in events:
                if chunk := b"".join(encode(event)):
                    yield chunk
        yield end
    except HTTPError as problem:
        yield encode_error(problem)
    except SennitError as error:
        yield encode_error(problem_of(error))


class ChunkStream(Response):
    """Sends pieces as they come, signs of life in between, and ends the run at the end."""

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        resources: AsyncExitStack,
        limits: Limits,
        headers: Mapping[str, str],
    ) -> None:
        """The pieces are closed when nobody listens any more, and then what is held meanwhile."""
        super().__init__(None, headers={"cache-control": "no-store", **headers})
        del self.headers["content-length"]
        self._pieces, self._held, self._limits = chunks, resources, limits

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        disconnect = create_task(gone(receive))
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            await self._send_all(disconnect, send)
        except TimeoutError:  # they do not read what they are sent
            pass
        finally:
            disconnect.cancel()
            await self._pieces.aclose()
            await self._held.aclose()

    async def _send_all(self, disconnect: Task[None], send: Send) -> None:
        while (chunk := await self._next(disconnect, send)) is not None:
            await self._send(send, chunk)
        if not disconnect.done():
            await self._send(send, b"", more=False)

    async def _next(self, disconnect: Task[None], send: Send) -> bytes | None:
        """The next piece; None when there is no more, or nobody who wants it."""
        upcoming = ensure_future(anext(self._pieces, None))
        try:
            while not upcoming.done() and not disconnect.done():
                await wait(
                    {upcoming, disconnect},
                    timeout=self._limits.heartbeat,
                    return_when=FIRST_COMPLETED,
                )
                if not upcoming.done() and not disconnect.done():
                    await self._send(send, _ALIVE)
            return None if disconnect.done() else upcoming.result()
        finally:
            if not upcoming.done():
                upcoming.cancel()
                await wait({upcoming})

    async def _send(self, send: Send, chunk: bytes, *, more: bool = True) -> None:
        async with timeout(self._limits.send_seconds):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
