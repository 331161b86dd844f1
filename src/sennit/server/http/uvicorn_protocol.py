"""The uvicorn protocol with a header timeout and our error shape.

uvicorn waits as long as it takes for the head of a request; whoever opens many connections and says
nothing would keep them all, and so would whoever asks for much and reads nothing of it. What is not
HTTP at all never reaches the app, so it is answered here, and so is a body cut into chunks so small
that taking it apart would keep everyone waiting. And uvicorn sends the head of an answer and its
body apart, which costs twice what it has to.
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

_MOST_HELD = 65_536  # bytes
_LEAST_READ = 65_536  # bytes that a client has to take in time, unless there are fewer
_FREE_CHUNKS = 2_000  # of any size; beyond that they count
_SMALL_CHUNK = 64  # bytes that chunks have on average at least


class BufferedTransport:
    """A transport that sends in one piece what is written without a pause.

    It is dropped if the client leaves what was sent unread for too long.
    """

    def __init__(self, transport: Any, loop: AbstractEventLoop, send_seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, send_seconds
        self._held: list[bytes] = []
        self._size = self._written = 0
        self._looking: TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this soon; a lot of it at once, so that whoever writes too fast is slowed down."""
        if not self._held:
            self._loop.call_soon(self._send)
        self._held.append(data)
        self._size += len(data)
        if self._size > _MOST_HELD:
            self._send()

    def close(self) -> None:
        """Close once all is sent."""
        self._send()
        self._transport.close()
        self.expect_reading()

    def expect_reading(self) -> None:
        """Drop the connection unless the client takes what it was sent in time."""
        unread = self._transport.get_write_buffer_size()
        if unread and self._looking is None:
            read, due = self._written - unread, min(unread, _LEAST_READ)
            self._looking = self._loop.call_later(self._seconds, self._look, read + due)

    def stop_looking(self) -> None:
        """Expect nothing more: the connection is gone."""
        if self._looking is not None:
            self._looking.cancel()

    def _look(self, due: int) -> None:
        self._looking = None
        if self._written - self._transport.get_write_buffer_size() < due:
            self._transport.abort()
        else:
            self.expect_reading()

    def _send(self) -> None:
        if self._held:
            buffer, self._held, self._size = self._held, [], 0
            data = b"".join(buffer)
            self._written += len(data)
            self._transport.write(data)


class Chunked(h11.Connection):
    """The state of a connection, which refuses a body in many tiny chunks."""

    _chunks = _bytes = 0

    def next_event(self) -> Any:
        """The next event; raises RemoteProtocolError for what is no HTTP, or too many chunks."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data) and event.chunk_end:
            self._chunks, self._bytes = self._chunks + 1, self._bytes + len(event.data)
            if self._chunks - _FREE_CHUNKS > self._bytes // _SMALL_CHUNK:
                raise h11.RemoteProtocolError("The chunks of the body are too small.")
        return event


class HeaderTimeoutProtocol(H11Protocol):
    """A connection that is closed when no request comes in time, or no answer is read."""

    head_seconds = 30.0
    send_seconds = 60.0
    _free_since = 0.0
    _looking: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there; it has to say something."""
        self._together = BufferedTransport(transport, self.loop, self.send_seconds)
        self.conn = Chunked(h11.SERVER, self.conn._max_incomplete_event_size)  # pyright: ignore[reportPrivateUsage]
        super().connection_made(self._together)  # pyright: ignore[reportArgumentType]
        self._free_since = self.loop.time()
        self._look_in(self.head_seconds)

    def on_response_complete(self) -> None:
        """The next request has to come in time, too."""
        super().on_response_complete()
        self._free_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody to wait for."""
        super().connection_lost(exc)
        self._together.stop_looking()
        if self._looking is not None:
            self._looking.cancel()

    def pause_writing(self) -> None:
        """More was sent than the client has taken; it has to go on reading."""
        super().pause_writing()
        self._together.expect_reading()

    def _look_in(self, seconds: float) -> None:
        self._looking = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Close it if nothing has come for too long; once a request has begun, its limits count."""
        remaining = self._free_since + self.head_seconds - self.loop.time()
        if not self._between():
            self._look_in(self.head_seconds)
        elif remaining > 0:
            self._look_in(remaining)
        else:
            self.transport.close()

    def _between(self) -> bool:
        """Return whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def send_400_response(self, msg: str) -> None:
        """Say that this was no HTTP, unless something was answered already."""
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
            self.cycle.disconnected = True  # whatever the app has to say comes too late
        self.transport.close()
