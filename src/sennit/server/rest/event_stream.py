"""Server-sent events of a branch, resumable by `Last-Event-ID`.

A stream has no state of its own: it reads the events of the branch after a sequence number, live
from a run of this process, else from the store. So a client that reconnects with its last number
misses none and sees none twice, even after a restart, and a slow reader costs no memory. Comments
serve as heartbeats.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, CancelledError, Task, create_task, timeout, wait
from contextlib import suppress
from typing import Any

import msgspec

from sennit.server.http.disconnects import wait_for_disconnect
from sennit.server.http.starlette_imports import HttpScope, Receive, Response, Send
from sennit.server.rest.event_schemas import event_shape
from sennit.server.settings import Limits
from sennit.server.state import OpenStream
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.events import AnyEvent
from sennit.turns.subscription import Subscription

MEDIA = "text/event-stream"
_RETRY_FIELD = b"retry: 1000\n\n"
_HEARTBEAT = b": alive\n\n"

_encoder = msgspec.json.Encoder()


def frame(event: AnyEvent, branch: Branch) -> bytes:
    """Encode one event as a server-sent event."""
    data = _encoder.encode(event_shape(event, branch))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)


class EventStreamResponse(Response):
    """A streaming response with the events of a branch after a sequence number."""

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
        """Subscribe to a branch; `streams` are the open streams, which shutdown ends."""
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(None, 200, headers, MEDIA)
        del self.headers["content-length"]
        self._branch, self._limits, self._streams = branch, limits, streams
        self._subscription = Subscription(RunRepository(branch), after, follow=follow)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        self._disconnect = disconnect = create_task(wait_for_disconnect(receive))
        self._streams.add(self)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send_chunk(send, _RETRY_FIELD)
            async with self._subscription:
                await self._send_events(send, disconnect)
            if disconnect.cancelled() or not disconnect.done():
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            pass  # the client does not read; it can reconnect
        finally:
            self._streams.discard(self)
            disconnect.cancel()

    def stop(self) -> None:
        """End the stream; the client reconnects with the number of its last event."""
        self._disconnect.cancel()

    async def _send_events(self, send: Send, disconnect: Task[None]) -> None:
        """Send events until there are no more, or the client disconnects."""
        upcoming = create_task(self._subscription.batch())
        try:
            while True:
                awaited: set[Task[Any]] = {upcoming, disconnect}
                await wait(awaited, timeout=self._limits.heartbeat, return_when=FIRST_COMPLETED)
                if disconnect.done():
                    return
                if not upcoming.done():
                    await self._send_chunk(send, _HEARTBEAT)
                    continue
                if not (events := upcoming.result()):
                    return
                chunk = b"".join(frame(event, self._branch) for event in events)
                await self._send_chunk(send, chunk)
                upcoming = create_task(self._subscription.batch())
        finally:
            upcoming.cancel()
            with suppress(CancelledError):
                await upcoming

    async def _send_chunk(self, send: Send, data: bytes) -> None:
        async with timeout(self._limits.send_seconds):
            await send({"type": "http.response.body", "body": data, "more_body": True})
