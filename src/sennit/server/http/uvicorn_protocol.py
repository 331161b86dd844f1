"""A uvicorn protocol with header and write timeouts and our error shape.

uvicorn has no timeout for request headers, nor for clients that do not read, so idle connections
could use up all sockets. Invalid HTTP never reaches the app and is answered here, as is a body in
so many tiny chunks that parsing it would block the event loop.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Any

from sennit.errors import MissingExtraError

try:
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError.of("sennit serve", "server") from error

from sennit.messages.codec import dumps
from sennit.server.http.errors import HTTPError

__all__ = ["HeaderTimeoutProtocol", "uvicorn"]

_MIN_READ_BYTES = 65_536  # that a client must read in time, unless fewer are pending
_UNCOUNTED_CHUNKS = 2_000  # before the mean size is checked
_MIN_MEAN_CHUNK_BYTES = 64


class ChunkLimitedConnection(h11.Connection):
    """An h11 connection that rejects a body in too many tiny chunks."""

    _chunks = _bytes = 0

    def next_event(self) -> Any:
        """Return the next event; raise RemoteProtocolError for invalid HTTP or tiny chunks."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data) and event.chunk_end:
            self._chunks, self._bytes = self._chunks + 1, self._bytes + len(event.data)
            if self._chunks - _UNCOUNTED_CHUNKS > self._bytes // _MIN_MEAN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("The chunks of the body are too small.")
        return event


class HeaderTimeoutProtocol(H11Protocol):
    """A connection with a timeout for request headers and one for unread responses."""

    head_seconds = 30.0
    send_seconds = 60.0
    _idle_since = 0.0
    _timer: TimerHandle | None = None
    _write_timer: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the header timeout of a new connection."""
        self.conn = ChunkLimitedConnection(h11.SERVER, self.conn._max_incomplete_event_size)  # pyright: ignore[reportPrivateUsage]
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._check_in(self.head_seconds)

    def on_response_complete(self) -> None:
        """Restart the header timeout for the next request, and the write timeout."""
        super().on_response_complete()
        self._idle_since = self.loop.time()
        self._watch_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts."""
        super().connection_lost(exc)
        self._cancel_timers()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the WebSocket protocol, which has timeouts of its own."""
        self._cancel_timers()
        super().handle_websocket_upgrade(event)

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Start the write timeout: the client reads too slowly."""
        super().pause_writing()
        self._watch_unread()

    def _watch_unread(self) -> None:
        """Start the write timeout again, if there is unread data."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        if unread := self.transport.get_write_buffer_size():
            due = max(0, unread - _MIN_READ_BYTES)
            self._write_timer = self.loop.call_later(self.send_seconds, self._check_unread, due)

    def _check_unread(self, due: int) -> None:
        """Abort the connection if more than `due` bytes are unread, and none were added since."""
        stalled = self._is_idle() or self.flow.write_paused
        if stalled and self.transport.get_write_buffer_size() > due:
            self.transport.abort()
        else:
            self._watch_unread()

    def _check_in(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Close an idle connection after the header timeout; a request has its own limits."""
        remaining = self._idle_since + self.head_seconds - self.loop.time()
        if not self._is_idle():
            self._check_in(self.head_seconds)
        elif remaining > 0:
            self._check_in(remaining)
        else:
            self.transport.close()

    def _is_idle(self) -> bool:
        """Return whether no request is active."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def send_400_response(self, msg: str) -> None:
        """Send a 400 response in our error shape, unless a response has started, and close."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = dumps(HTTPError(400, "malformed", msg).to_dict())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        answer = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in answer:
            self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:  # pyright: ignore[reportUnnecessaryComparison]
            self.cycle.disconnected = True  # drops the response of the app
        self.transport.close()
        self._watch_unread()
