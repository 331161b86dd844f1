"""Rate limit with a FIFO queue.

One limit may be shared by several models of an account, and used from many tasks, event loops and
threads. Waiting requests form one queue. Only its head checks the limits; a request that leaves the
head or frees capacity wakes the next head, which checks again. Permits are never handed over, so a
cancelled waiter simply leaves the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Any

from sennit import clock
from sennit.errors import ModelError
from sennit.numbers import count
from sennit.services.models.reply import Usage
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import estimate_tokens

if TYPE_CHECKING:
    import asyncio

_WINDOW_SECONDS = 60.0
_MIN_DELAY_SECONDS = 0.001
"""The minimum delay: rounding can leave less, which is not worth a timer."""


class RateLimit:
    """Limits on requests, tokens and concurrency; None means no limit.

    Tokens are estimated before a request and corrected by the usage of the reply. `waiting` is the
    maximum queue length; further requests raise ModelError (busy).
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrency: int | None = None,
        waiting: int | None = None,
    ) -> None:
        self._requests = _Window(requests_per_minute, "requests_per_minute")
        self._tokens = _Window(tokens_per_minute, "tokens_per_minute")
        for value, name in ((concurrency, "concurrency"), (waiting, "waiting")):
            if value is not None:
                count(value, name)
        self._concurrency = inf if concurrency is None else concurrency
        self._max_waiting = inf if waiting is None else waiting
        # Reentrant: the garbage collector may end an abandoned waiter while the lock is held.
        self._lock = RLock()
        self._queue: deque[_Waiter] = deque()
        self._running = 0

    def estimate(self, request: ModelRequest) -> int:
        """Return the input tokens of a request plus its maximum output, as providers count it.

        0 if tokens are not limited.
        """
        if self._tokens.limit is None:
            return 0
        max_tokens: Any = request.params.get("max_tokens")
        return estimate_tokens(request) + (max_tokens if isinstance(max_tokens, int) else 0)

    @asynccontextmanager
    async def place(self, tokens: int = 0) -> AsyncGenerator[Callable[[Usage], None]]:
        """Wait in the queue, then hold a place inside the block; raises ModelError (busy).

        Yields a function that replaces the estimate of tokens by the actual usage.
        """
        entry = await self._acquire(tokens)

        def record_usage(usage: Usage) -> None:
            if actual := usage.input_tokens + usage.output_tokens:  # else the estimate stays
                with self._lock:
                    self._tokens.correct(entry, actual, clock.monotonic())
                    self._wake_head()

        try:
            yield record_usage
        finally:
            with self._lock:
                self._running -= 1
                self._wake_head()

    async def _acquire(self, tokens: int) -> _Entry:
        with self._lock:
            if not self._queue and not self._delay(tokens):
                return self._admit(tokens)
            waiter = self._enqueue()
        try:
            while True:
                with self._lock:
                    delay = self._delay(tokens) if self._queue[0] is waiter else inf
                    if not delay:
                        return self._admit(tokens)
                await waiter.wait(delay)
        finally:
            with self._lock:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._wake_head()

    def _delay(self, tokens: int) -> float:
        """Return the seconds until such a request may start; inf if another must end first."""
        if self._running >= self._concurrency:
            return inf
        now = clock.monotonic()
        delay = max(self._requests.delay(1, now), self._tokens.delay(tokens, now))
        return max(delay, _MIN_DELAY_SECONDS) if delay > 0 else 0

    def _admit(self, tokens: int) -> _Entry:
        now = clock.monotonic()
        self._running += 1
        self._requests.add(1, now)
        return self._tokens.add(tokens, now)

    def _enqueue(self) -> _Waiter:
        if len(self._queue) >= self._max_waiting:
            raise ModelError(
                f"{len(self._queue)} requests already wait for the rate limit; the maximum is "
                f"{self._max_waiting}. Try again later.",
                kind="busy",
            )
        waiter = _Waiter()
        self._queue.append(waiter)
        return waiter

    def _wake_head(self) -> None:
        while self._queue and not self._queue[0].wake():
            self._queue.popleft()


@dataclass(slots=True)
class _Entry:
    """An amount used at a point in time."""

    amount: int
    at: float


class _Window:
    """A sliding window: the amount used in the last minute, and its limit."""

    def __init__(self, limit: int | None, name: str) -> None:
        if limit is not None:
            count(limit, name)
        self.limit = limit
        self._entries: deque[_Entry] = deque()
        self._sum = 0

    def delay(self, amount: int, now: float) -> float:
        """Return the seconds until `amount` fits; more than the limit fits an empty window."""
        if self.limit is None:
            return 0
        self._expire(now)
        excess = self._sum + min(amount, self.limit) - self.limit
        if excess <= 0:
            return 0
        for entry in self._entries:
            excess -= entry.amount
            if excess <= 0:
                return entry.at + _WINDOW_SECONDS - now
        return 0

    def add(self, amount: int, now: float) -> _Entry:
        entry = _Entry(amount, now)
        if self.limit is not None:
            self._entries.append(entry)
            self._sum += amount
        return entry

    def correct(self, entry: _Entry, amount: int, now: float) -> None:
        """Correct an estimate: credit the difference, or count the excess as used now."""
        if self.limit is None:
            return
        self._expire(now)
        if amount > entry.amount:
            self.add(amount - entry.amount, now)
        elif entry.at + _WINDOW_SECONDS > now:
            self._sum -= entry.amount - amount
            entry.amount = amount

    def _expire(self, now: float) -> None:
        while self._entries and self._entries[0].at + _WINDOW_SECONDS <= now:
            self._sum -= self._entries.popleft().amount


class _Waiter:
    """A queued request, which can be woken from any thread."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        import asyncio  # late: slow to import

        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait until woken, or for `seconds`."""
        import asyncio

        try:
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    def wake(self) -> bool:
        """Wake the waiter; return False if its event loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return False
        return True
