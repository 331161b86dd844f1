"""Server-sent events of a branch, resumable by `Last-Event-ID`.

Nothing is kept for a stream: it reads the journal of the branch from a number on, live where a run
is in this process, from the store otherwise. So a client that comes back with the number of the
last event it saw (`Last-Event-ID`) misses none and sees none twice, also after a restart; and one
that reads too slowly costs no memory. A comment now and then shows that the stream is alive.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, CancelledError, Task, create_task, timeout, wait
from contextlib import suppress
from typing import Any

import msgspec

from sennit.server.http.disconnects import gone
from sennit.server.http.starlette_imports import HttpScope, Receive, Response, Send
from sennit.server.rest.event_schemas import event_shape
from sennit.server.settings import Limits
from sennit.server.state import OpenStream
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.events import AnyEvent
from sennit.turns.subscription import Subscription

MEDIA = "text/event-stream"
_HELLO = b"retry: 1000\n\n"
_ALIVE = b": alive\n\n"

_encoder = msgspec.json.Encoder()


def frame(event: AnyEvent, branch: Branch) -> bytes:
    """One event as it is sent."""
    data = _encoder.encode(event_shape(event, branch))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)


class EventStreamResponse(Response):
    """The events of a branch past a number, as they come."""

    media_type = MEDIA

    def __init__(
        self,
        branch: Branch,
        after: int,
        *,
        follow: bool,
        limits: Limits,
        streams: set[OpenStream],
    ) -> None:
        """`streams` are all that are open, so that they can be ended."""
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, MEDIA)
        del self.headers["content-length"]
        self._branch, self._limits, self._streams = branch, limits, streams
        self._joined = Subscription(RunRepository(branch), after, follow=follow)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        self._gone = disconnect = create_task(gone(receive))
        self._streams.add(self)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._piece(send, _HELLO)
            async with self._joined:
                await self._tell(send, disconnect)
            if disconnect.cancelled() or not disconnect.done():
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            pass  # it has not read for so long that nobody is there; it can come back
        finally:
            self._streams.discard(self)
            disconnect.cancel()

    def stop(self) -> None:
        """End the stream; the client comes back elsewhere, with the number of its last event."""
        self._gone.cancel()

    async def _tell(self, send: Send, disconnect: Task[None]) -> None:
        """Send events until there are no more, or nobody to send them to."""
        upcoming = create_task(self._joined.batch())
        try:
            while True:
                awaited: set[Task[Any]] = {upcoming, disconnect}
                await wait(awaited, timeout=self._limits.heartbeat, return_when=FIRST_COMPLETED)
                if disconnect.done():
                    return
                if not upcoming.done():
                    await self._piece(send, _ALIVE)
                    continue
                if not (events := upcoming.result()):
                    return
                await self._piece(send, b"".join(frame(event, self._branch) for event in events))
                upcoming = create_task(self._joined.batch())
        finally:
            upcoming.cancel()
            with suppress(CancelledError):
                await upcoming

    async def _piece(self, send: Send, data: bytes) -> None:
        async with timeout(self._limits.send_seconds):
            await send({"type": "http.response.body", "body": data, "more_body": True})
