"""HTTP as uvicorn speaks it, with a limit to its patience and errors in our shape.

uvicorn waits as long as it takes for the head of a request; whoever opens many connections and says
nothing would keep them all. What is not HTTP at all never reaches the app, so it is answered here.
And uvicorn sends the head of an answer and its body apart, which costs twice what it has to.
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
from sennit.server.problems import Problem

__all__ = ["PatientProtocol", "uvicorn"]

_MOST_HELD = 65_536  # bytes


class Together:
    """A transport that sends in one piece what is written without a pause."""

    def __init__(self, transport: Any, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []
        self._size = 0

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

    def _send(self) -> None:
        if self._held:
            pieces, self._held, self._size = self._held, [], 0
            self._transport.write(b"".join(pieces))


class PatientProtocol(H11Protocol):
    """A connection that is closed when no request comes in time."""

    head_seconds = 30.0
    _free_since = 0.0
    _looking: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there; it has to say something."""
        super().connection_made(Together(transport, self.loop))  # pyright: ignore[reportArgumentType]
        self._free_since = self.loop.time()
        self._look_in(self.head_seconds)

    def on_response_complete(self) -> None:
        """The next request has to come in time, too."""
        super().on_response_complete()
        self._free_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody to wait for."""
        super().connection_lost(exc)
        if self._looking is not None:
            self._looking.cancel()

    def _look_in(self, seconds: float) -> None:
        self._looking = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Close it if nothing has come for too long; once a request has begun, its limits count."""
        left = self._free_since + self.head_seconds - self.loop.time()
        if not self._between():
            self._look_in(self.head_seconds)
        elif left > 0:
            self._look_in(left)
        else:
            self.transport.close()

    def _between(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def send_400_response(self, msg: str) -> None:
        """Say that this was no HTTP."""
        told = dumps(Problem(400, "malformed", msg).to_dict())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(told)).encode()),
            (b"connection", b"close"),
        ]
        answer = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=told),
            h11.EndOfMessage(),
        )
        for event in answer:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
