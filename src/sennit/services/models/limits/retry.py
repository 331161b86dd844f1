"""Retry with exponential backoff.

Only errors with `ModelError.retryable` are retried, each after a longer delay, and never before the
provider's `retry_after`. A stream is retried only before its first delta; later errors reach the
caller, because no text may be repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from sennit import clock
from sennit.errors import ModelError, ValidationError, short_repr
from sennit.numbers import count, not_negative, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The retry policy."""

    attempts: int = 3
    """The maximum number of attempts, including the first."""
    base: float = 0.5
    """Seconds before the second attempt; doubled for each further one."""
    cap: float = 30
    """The maximum delay. A longer `retry_after` of the provider is not retried."""
    jitter: float = 0.5
    """The random share of a delay, from 0 to 1, which spreads the retries of many callers."""
    total: float = 120
    """Seconds after which no further attempt begins."""

    def __post_init__(self) -> None:
        count(self.attempts, "attempts")
        not_negative(self.base, "base")
        not_negative(self.cap, "cap")
        positive(self.total, "total")
        not_negative(self.jitter, "jitter")
        if self.jitter > 1:
            raise ValidationError(f"jitter must be from 0 to 1, got {short_repr(self.jitter)}.")

    def wait(self, error: ModelError, failures: int, elapsed: float) -> float | None:
        """Return the seconds before the next attempt after `failures`; None to give up."""
        retry_after = error.retry_after or 0
        if not error.retryable or failures >= self.attempts or retry_after > self.cap:
            return None
        exponent = min(failures - 1, 64)  # the cap applies anyway, and larger powers overflow
        wait = min(self.cap, self.base * 2**exponent) * (1 - self.jitter * random.random())
        wait = max(wait, retry_after)
        return None if elapsed + wait > self.total else wait


class Attempts:
    """The attempts of one call."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._failures = 0
        self._started_at = clock.monotonic()

    async def wait_after(self, error: ModelError) -> None:
        """Sleep until the next attempt; raises `error` if this was the last."""
        import asyncio  # late: slow to import

        self._failures += 1
        wait = self._retry.wait(error, self._failures, clock.monotonic() - self._started_at)
        if wait is None:
            if self._failures > 1:
                error.add_note(f"Asked {self._failures} times before giving up.")
            raise error
        await asyncio.sleep(wait)
