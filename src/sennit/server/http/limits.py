"""Limits per token and per owner, as ASGI middleware, and the reading of request bodies.

Rates are limited by token buckets. Bytes are charged after the transfer, so their bucket may go
below zero; later requests are then rejected until it has refilled. Requests without a caller
(public paths such as /api/health) are not counted, so that no client can make a healthy server look
dead.

An event stream is counted before it starts, and ends when its token is revoked or its entry in the
token file changes.
"""

from __future__ import annotations

from asyncio import FIRST_COMPLETED, Event, ensure_future, timeout, wait
from collections import Counter
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from math import ceil
from typing import Any

from sennit import clock
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Message, Receive, Send
from sennit.server.http.tokens import TokenFile
from sennit.server.settings import Limits

_CLOSE = {"connection": "close"}
_RETRY_AFTER = {"retry-after": "2"}
_DISCONNECT: Message = {"type": "http.disconnect"}


class TokenBuckets:
    """A token bucket per key; unlimited if the rate is None."""

    def __init__(self, rate: float | None, burst: float) -> None:
        self._rate, self._burst = rate, float(burst)
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def wait_for(self, key: Hashable, amount: float) -> float:
        """Return the seconds until the bucket holds an amount; 0 if it does now."""
        if self._rate is None:
            return 0.0
        return max(0.0, (amount - self._level(key)) / self._rate)

    def take(self, key: Hashable, amount: float) -> None:
        """Take an amount, even if the level becomes negative."""
        if self._rate is not None:
            self._levels[key] = (self._level(key) - amount, clock.monotonic())

    def _level(self, key: Hashable) -> float:
        now = clock.monotonic()
        level, then = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - then) * (self._rate or 0.0))


class ActiveCounts:
    """Counts of active requests, streams or runs per token and owner, except the local user."""

    def __init__(self, unit: str, limit: int, factor: int) -> None:
        self._unit, self._limit, self._factor = unit, limit, factor
        self._counts: Counter[Hashable] = Counter()

    def check(self, caller: Caller) -> None:
        """Raise HTTPError 429 if the token or the owner has reached its limit."""
        keys = _keys(caller)
        for key, factor, whose in zip(keys, (1, self._factor), ("token", "user"), strict=False):
            if self._counts[key] >= self._limit * factor:
                reached = f"This {whose} has {self._limit * factor} {self._unit}, the maximum"
                message, code = f"{reached}; end some of them first.", self._unit.replace(" ", "_")
                raise HTTPError(429, code, message, headers=_RETRY_AFTER)

    def add(self, caller: Caller) -> None:
        """Count one more; raise HTTPError 429 at the limit."""
        self.check(caller)
        self._counts.update(_keys(caller))

    def remove(self, caller: Caller) -> None:
        """Count one less."""
        for key in _keys(caller):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


class CallerShare:
    """A request as its caller's limits count it."""

    def __init__(self, limiter: LimitsMiddleware, caller: Caller) -> None:
        self._limiter, self.caller = limiter, caller
        self.ended = Event()
        """Set when the stream must end because its token was revoked or changed."""
        self.streams = False

    def open_stream(self) -> None:
        """Count the request as an event stream until it ends; raise HTTPError 429."""
        if not self.streams:
            self._limiter.add_stream(self)
            self.streams = True


class LimitsMiddleware:
    """ASGI middleware that enforces the limits of callers."""

    def __init__(self, app: ASGIApp, limits: Limits, tokens: TokenFile) -> None:
        self._app, self._limits, self._tokens = app, limits, tokens
        factor = limits.owner_factor
        self._requests = TokenBuckets(limits.rate, limits.burst)
        requests = None if limits.rate is None else limits.rate * factor
        self._owner_requests = TokenBuckets(requests, limits.burst * factor)
        self._bytes = TokenBuckets(limits.byte_rate, limits.byte_burst)
        owner_rate = None if limits.byte_rate is None else limits.byte_rate * factor
        self._owner_bytes = TokenBuckets(owner_rate, limits.byte_burst * factor)
        self._active = 0
        self._active_requests = ActiveCounts("requests under way", limits.token_requests, factor)
        self._active_streams = ActiveCounts("streams open", limits.token_streams, factor)
        self._streams: set[CallerShare] = set()

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope["state"]["caller"]
        if caller is None:
            await self._app(scope, receive, send)
            return
        with self._admitted(caller) as share:
            scope["state"]["share"] = share
            exchange = _Exchange(share, receive, send)
            try:
                await self._app(scope, exchange.receive, exchange.send)
                await exchange.finish()
            finally:
                self._charge(caller, exchange.transferred)

    @contextmanager
    def _admitted(self, caller: Caller) -> Generator[CallerShare]:
        """Count a request while it is active; raise HTTPError 429 or 503 at a limit."""
        limit = self._limits.requests
        if self._active >= limit:
            message = f"The server has {limit} active requests, the maximum; try again shortly."
            raise HTTPError(503, "full", message, headers=_RETRY_AFTER)
        self._check_rates(caller)
        self._active_requests.add(caller)
        share = CallerShare(self, caller)
        self._active += 1
        try:
            yield share
        finally:
            self._active -= 1
            self._active_requests.remove(caller)
            if share.streams:
                self._streams.discard(share)
                self._active_streams.remove(caller)

    def _check_rates(self, caller: Caller) -> None:
        if caller.token is None:
            return
        token, owner = _keys(caller)
        waits = self._requests.wait_for(token, 1), self._owner_requests.wait_for(owner, 1)
        if seconds := max(waits):
            rate = f"{self._limits.rate:g} per second are allowed"
            raise _rate_limited("rate_limit", f"Too many requests: {rate} for a token.", seconds)
        byte_wait = max(self._bytes.wait_for(token, 0), self._owner_bytes.wait_for(owner, 0))
        if byte_wait:
            rate = f"{self._limits.byte_rate:,.0f} bytes per second are allowed for a token"
            message = f"Too much data was sent or received: {rate}. Ask for smaller pages."
            raise _rate_limited("byte_limit", message, byte_wait)
        self._requests.take(token, 1)
        self._owner_requests.take(owner, 1)

    def _charge(self, caller: Caller, count: int) -> None:
        if caller.token is not None:
            token, owner = _keys(caller)
            self._bytes.take(token, count)
            self._owner_bytes.take(owner, count)

    def add_stream(self, share: CallerShare) -> None:
        """Count an event stream; raise HTTPError 429 if its token or owner has too many."""
        self._active_streams.add(share.caller)
        self._streams.add(share)

    def end_revoked(self) -> None:
        """End the streams whose tokens were revoked or changed since they started."""
        for share in self._streams:
            if share.caller.token is not None and not self._tokens.has(share.caller.token):
                share.ended.set()


def _keys(caller: Caller) -> tuple[Hashable, ...]:
    """Return the keys of a caller's token and owner; none for the local user."""
    if caller.token is None:
        return ()
    return caller.name, (caller.client.tenant, caller.client.user)


def _rate_limited(code: str, message: str, seconds: float) -> HTTPError:
    wait_for = max(1, ceil(seconds))
    return HTTPError(
        429, code, f"{message} Wait {wait_for} s.", headers={"retry-after": str(wait_for)}
    )


class _Exchange:
    """The ASGI channel of a request: counts bytes, and disconnects a stream that must end."""

    def __init__(self, share: CallerShare, receive: Receive, send: Send) -> None:
        self._share, self._receive, self._send = share, receive, send
        self.transferred = 0
        self._started = self._completed = False

    async def receive(self) -> Message:
        if not self._share.streams:
            message = await self._receive()
            self.transferred += len(message.get("body", b""))
            return message
        incoming = ensure_future(self._receive())
        ending = ensure_future(self._share.ended.wait())
        try:
            await wait({incoming, ending}, return_when=FIRST_COMPLETED)
            return _DISCONNECT if self._share.ended.is_set() else incoming.result()
        finally:
            incoming.cancel()
            ending.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.transferred += len(message.get("body", b""))
            self._completed = not message.get("more_body")
        else:
            self._started = True
        await self._send(message)

    async def finish(self) -> None:
        """Complete the response of a stream that was ended while its client is connected."""
        if self._share.ended.is_set() and self._started and not self._completed:
            await self._send({"type": "http.response.body", "body": b""})


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
