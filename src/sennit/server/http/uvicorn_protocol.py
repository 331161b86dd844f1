"""A uvicorn protocol with header and write timeouts, buffered writes and our error shape.

uvicorn has no timeout for request headers, nor for clients that do not read, so idle connections
could use up all sockets. Invalid HTTP never reaches the app and is answered here, as is a body in
so many tiny chunks that parsing it would block the event loop. uvicorn also writes headers and body
separately; here they share one system call.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
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

_MAX_BUFFERED_BYTES = 65_536  # bytes
_MIN_READ_BYTES = 65_536  # that a client must read in time, unless fewer are pending
_UNCOUNTED_CHUNKS = 2_000  # before the mean size is checked
_MIN_MEAN_CHUNK_BYTES = 64


class BufferedTransport:
    """A transport that joins the writes of one event-loop iteration.

    The connection is aborted if the client does not read in time.
    """

    def __init__(self, transport: Any, loop: AbstractEventLoop, send_seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, send_seconds
        self._buffer: list[bytes] = []
        self._size = self._written = 0
        self._timer: TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Buffer data until the next iteration; flush a full buffer now, for flow control."""
        if not self._buffer:
            self._loop.call_soon(self._send)
        self._buffer.append(data)
        self._size += len(data)
        if self._size > _MAX_BUFFERED_BYTES:
            self._send()

    def close(self) -> None:
        """Flush the buffer, and close after the data is sent."""
        self._send()
        self._transport.close()
        self.start_timer()

    def start_timer(self) -> None:
        """Start the write timeout, if there is unread data."""
        unread = self._transport.get_write_buffer_size()
        if unread and self._timer is None:
            read, due = self._written - unread, min(unread, _MIN_READ_BYTES)
            self._timer = self._loop.call_later(self._seconds, self._look, read + due)

    def cancel_timer(self) -> None:
        """Cancel the write timeout."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, due: int) -> None:
        self._timer = None
        if self._written - self._transport.get_write_buffer_size() < due:
            self._transport.abort()
        else:
            self.start_timer()

    def _send(self) -> None:
        if self._buffer:
            buffer, self._buffer, self._size = self._buffer, [], 0
            data = b"".join(buffer)
            self._written += len(data)
            self._transport.write(data)


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

    def connection_made(self, transport: Any) -> None:
        """Start the header timeout of a new connection."""
        self._buffered = BufferedTransport(transport, self.loop, self.send_seconds)
        self.conn = ChunkLimitedConnection(h11.SERVER, self.conn._max_incomplete_event_size)  # pyright: ignore[reportPrivateUsage]
        super().connection_made(self._buffered)  # pyright: ignore[reportArgumentType]
        self._idle_since = self.loop.time()
        self._check_in(self.head_seconds)

    def on_response_complete(self) -> None:
        """Restart the header timeout for the next request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts."""
        super().connection_lost(exc)
        self._buffered.cancel_timer()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """Start the write timeout: the client reads too slowly."""
        super().pause_writing()
        self._buffered.start_timer()

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
