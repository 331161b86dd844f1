"""Limits per token and per owner, as ASGI middleware, and the reading of request bodies.

Rates are limited by token buckets. Bytes are charged after the transfer, so their bucket may go
below zero; later requests are then rejected until it has refilled. Requests without a caller
(public paths such as /api/health) are not counted, so that no client can make a healthy server look
dead.

An event stream is counted before it starts, and ends when its token is revoked or its entry in the
token file changes.
"""

from __future__ import annotations

from asyncio import timeout
from collections import Counter
from collections.abc import Hashable
from math import ceil
from typing import Any, Protocol

from sennit import clock
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Message, Receive, Send
from sennit.server.http.tokens import TokenFile
from sennit.server.settings import Limits

_CLOSE = {"connection": "close"}
_RETRY_AFTER = {"retry-after": "2"}


class TokenBuckets:
    """A token bucket per token and one per owner, `factor` times as large; unlimited without rate.

    A negative level blocks until the bucket has refilled.
    """

    def __init__(self, rate: float | None, burst: float, factor: int) -> None:
        self._rate, self._sizes = rate, ((1, burst), (factor, burst * factor))
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def wait_for(self, caller: Caller, amount: float) -> float:
        """Return the seconds until both buckets hold an amount; 0 if they do now."""
        rate = self._rate
        if rate is None:
            return 0.0
        waits = (
            (amount - level) / (rate * factor)
            for level, (factor, _) in zip(self._current(caller, rate), self._sizes, strict=True)
        )
        return max(0.0, *waits)

    def take(self, caller: Caller, amount: float) -> None:
        """Take an amount, even if a level becomes negative."""
        if self._rate is not None:
            levels = self._current(caller, self._rate)
            for key, level in zip(_keys(caller), levels, strict=True):
                self._levels[key] = (level - amount, clock.monotonic())

    def _current(self, caller: Caller, rate: float) -> list[float]:
        now, levels = clock.monotonic(), list[float]()
        for key, (factor, burst) in zip(_keys(caller), self._sizes, strict=True):
            level, then = self._levels.get(key, (burst, now))
            levels.append(min(burst, level + (now - then) * rate * factor))
        return levels


class ActiveCounts:
    """Counts of active requests, streams or runs per token and owner, except the local user.

    Without a caller nothing is counted.
    """

    def __init__(self, unit: str, limit: int, factor: int) -> None:
        self._unit, self._limit, self._factor = unit, limit, factor
        self._counts: Counter[Hashable] = Counter()

    def check(self, caller: Caller | None) -> None:
        """Raise HTTPError 429 if the token or the owner has reached its limit."""
        keys = _keys(caller)
        for key, factor, whose in zip(keys, (1, self._factor), ("token", "user"), strict=False):
            if self._counts[key] >= self._limit * factor:
                reached = f"This {whose} has {self._limit * factor} {self._unit}, the maximum"
                message, code = f"{reached}; end some of them first.", self._unit.replace(" ", "_")
                raise HTTPError(429, code, message, headers=_RETRY_AFTER)

    def add(self, caller: Caller | None) -> None:
        """Count one more; raise HTTPError 429 at the limit."""
        self.check(caller)
        self._counts.update(_keys(caller))

    def remove(self, caller: Caller | None) -> None:
        """Count one less."""
        for key in _keys(caller):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


class Stoppable(Protocol):
    """An event stream or a WebSocket."""

    def stop(self) -> None:
        """End it."""


class CallerShare:
    """A request as its caller's limits count it."""

    def __init__(self, limiter: LimitsMiddleware, caller: Caller) -> None:
        self._limiter, self.caller = limiter, caller
        self.streams = False
        self._stream: Stoppable | None = None
        self._ended = False

    def open_stream(self) -> None:
        """Count the request as an event stream until it ends; raise HTTPError 429."""
        if not self.streams:
            self._limiter.add_stream(self)
            self.streams = True

    def attach(self, stream: Stoppable) -> None:
        """Stop this stream when its token is revoked or changed."""
        self._stream = stream
        if self._ended:
            stream.stop()

    def end(self) -> None:
        """End the stream: its token was revoked or changed."""
        self._ended = True
        if self._stream is not None:
            self._stream.stop()


class LimitsMiddleware:
    """ASGI middleware that enforces the limits of callers."""

    def __init__(self, app: ASGIApp, limits: Limits, tokens: TokenFile) -> None:
        self._app, self._limits, self._tokens = app, limits, tokens
        factor = limits.owner_factor
        self._requests = TokenBuckets(limits.rate, limits.burst, factor)
        self._bytes = TokenBuckets(limits.byte_rate, limits.byte_burst, factor)
        self._active = 0
        self._active_requests = ActiveCounts("requests under way", limits.token_requests, factor)
        self._active_streams = ActiveCounts("streams open", limits.token_streams, factor)
        self._streams: set[CallerShare] = set()

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope["state"]["caller"]
        if caller is None:
            await self._app(scope, receive, send)
            return
        limit = self._limits.requests
        if self._active >= limit:
            message = f"The server has {limit} active requests, the maximum; try again shortly."
            raise HTTPError(503, "full", message, headers=_RETRY_AFTER)
        self._check_rates(caller)
        self._active_requests.add(caller)
        self._active += 1
        share = scope["state"]["share"] = CallerShare(self, caller)
        try:
            await self._count_bytes(caller, scope, receive, send)
        finally:
            self._active -= 1
            self._active_requests.remove(caller)
            if share.streams:
                self._streams.discard(share)
                self._active_streams.remove(caller)

    async def _count_bytes(
        self, caller: Caller, scope: HttpScope, receive: Receive, send: Send
    ) -> None:
        """Run the app, and charge the bytes that it receives and sends to its token."""
        if caller.token is None:
            await self._app(scope, receive, send)
            return
        transferred = 0

        async def counting_receive() -> Message:
            nonlocal transferred
            message = await receive()
            transferred += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            nonlocal transferred
            transferred += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, counting_receive, counting_send)
        finally:
            self._bytes.take(caller, transferred)

    def _check_rates(self, caller: Caller) -> None:
        if caller.token is None:
            return
        if seconds := self._requests.wait_for(caller, 1):
            rate = f"{self._limits.rate:g} per second are allowed"
            raise _rate_limited("rate_limit", f"Too many requests: {rate} for a token.", seconds)
        if seconds := self._bytes.wait_for(caller, 0):
            rate = f"{self._limits.byte_rate:,.0f} bytes per second are allowed for a token"
            message = f"Too much data was sent or received: {rate}. Ask for smaller pages."
            raise _rate_limited("byte_limit", message, seconds)
        self._requests.take(caller, 1)

    def add_stream(self, share: CallerShare) -> None:
        """Count an event stream; raise HTTPError 429 if its token or owner has too many."""
        self._active_streams.add(share.caller)
        self._streams.add(share)

    def end_revoked(self) -> None:
        """End the streams whose tokens were revoked or changed since they started."""
        for share in self._streams:
            if share.caller.token is not None and not self._tokens.has(share.caller.token):
                share.end()


def _keys(caller: Caller | None) -> tuple[Hashable, ...]:
    """Return the keys of a caller's token and owner; none for the local user."""
    if caller is None or caller.token is None:
        return ()
    return caller.name, (caller.client.tenant, caller.client.user)


def _rate_limited(code: str, message: str, seconds: float) -> HTTPError:
    wait_for = max(1, ceil(seconds))
    return HTTPError(
        429, code, f"{message} Wait {wait_for} s.", headers={"retry-after": str(wait_for)}
    )


async def read_body(headers: dict[bytes, bytes], receive: Receive, limits: Limits) -> bytes:
    """Read the body of a request; raise HTTPError 413 if it is too large, 408 if too slow."""
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise _too_large(limits)
    try:
        async with timeout(limits.body_seconds):
            return await _read(receive, limits)
    except TimeoutError:
        seconds = f"{limits.body_seconds:g}"
        slow = f"The body took longer than {seconds} s to arrive; nothing was done."
        raise HTTPError(408, "slow_body", slow, headers=_CLOSE) from None


async def _read(receive: Receive, limits: Limits) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPError(400, "cut_off", "The request body is incomplete; nothing was changed.")
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limits.body_bytes:
            raise _too_large(limits)
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body read earlier, then further messages."""
    pending: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> Message:
        return pending.pop() if pending else await receive()

    return receive_body


def _too_large(limits: Limits) -> HTTPError:
    message = f"A body may have at most {limits.body_bytes:,} bytes; send less at a time."
    return HTTPError(413, "too_large", message, headers=_CLOSE)
