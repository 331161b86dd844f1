"""How fast a caller may ask, and how much it may send: said once, for all routes.

A rate is a bucket that fills steadily: a caller may empty it at once and then has to wait. A body
is read no further than is allowed, and no longer: whoever sends a byte a minute is let go of.
"""

from __future__ import annotations

from asyncio import timeout
from math import ceil

from starlette.types import Receive

from sennit import clock
from sennit.server.problems import Problem
from sennit.server.settings import Limits

_CLOSE = {"connection": "close"}


class Rates:
    """A bucket for each name."""

    def __init__(self, limits: Limits) -> None:
        self._rate, self._burst = limits.rate, limits.burst
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> None:
        """Let one request pass; raises Problem 429 if it comes too early."""
        if self._rate is None:
            return
        now = clock.monotonic()
        left, then = self._buckets.get(name, (float(self._burst), now))
        left = min(self._burst, left + (now - then) * self._rate)
        if left < 1:
            self._buckets[name] = (left, now)
            wait = ceil((1 - left) / self._rate)
            raise Problem(
                429,
                "rate_limit",
                f"Too many requests: {self._rate:g} per second are allowed. Wait {wait} s.",
                headers={"retry-after": str(wait)},
            )
        self._buckets[name] = (left - 1, now)


async def read_body(headers: dict[bytes, bytes], receive: Receive, limits: Limits) -> bytes:
    """The body of a request; raises Problem 413 if it is too large, 408 if it is too slow."""
    told = headers.get(b"content-length", b"0")
    if told.isdigit() and int(told) > limits.body_bytes:
        raise _too_large(limits)
    try:
        async with timeout(limits.body_seconds):
            return await _read(receive, limits)
    except TimeoutError:
        seconds = f"{limits.body_seconds:g}"
        slow = f"The body took longer than {seconds} s to arrive; nothing was done."
        raise Problem(408, "slow_body", slow, headers=_CLOSE) from None


async def _read(receive: Receive, limits: Limits) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "cut_off", "The body was cut off; nothing was done.")
        piece = message.get("body", b"")
        size += len(piece)
        if size > limits.body_bytes:
            raise _too_large(limits)
        pieces.append(piece)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limits: Limits) -> Problem:
    told = f"A body may have {limits.body_bytes:,} bytes; send less at a time."
    return Problem(413, "too_large", told, headers=_CLOSE)
