"""The rate limit, first come first served.

One limit may stand around several models that share an account, and be used from many tasks, event
loops and threads. Those who must wait form one queue. Only its head looks at the limits; whoever
leaves the head, or frees something it may wait for, wakes the next head, which looks again. No
permit is ever handed over, so a waiter that is cancelled has nothing to lose: it leaves the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Any

from sennit import clock
from sennit.errors import ModelError
from sennit.services.models.limits.validators import count
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Reply, Usage
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import estimate_tokens
from sennit.services.models.wrapper import ModelWrapper, ObservedStream

if TYPE_CHECKING:
    import asyncio

_MINUTE = 60.0
_SHORTEST = 0.001
"""The shortest wait; rounding can leave less, and less is not worth a timer."""


class RateLimit:
    """A rate limit; None for no limit.

    Tokens are estimated before a request and corrected by the usage that comes with the reply.
    `waiting` is the most requests that may wait at once; further ones get a ModelError (busy).
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
        self._most_waiting = inf if waiting is None else waiting
        # Reentrant: the garbage collector may end an abandoned waiter while the lock is held.
        self._lock = RLock()
        self._queue: deque[_Waiter] = deque()
        self._running = 0

    def around(self, model: Model) -> Model:
        """`model`, asked no faster than this allows."""
        return _Limited(model, self)

    @property
    def counts_tokens(self) -> bool:
        """True if it is worth estimating them."""
        return self._tokens.most is not None

    @asynccontextmanager
    async def place(self, tokens: int = 0) -> AsyncGenerator[RateLimitSlot]:
        """Wait for one's turn, and hold it inside the block."""
        place = await self._admitted(tokens)
        try:
            yield place
        finally:
            with self._lock:
                self._running -= 1
                self._wake_head()

    async def _admitted(self, tokens: int) -> RateLimitSlot:
        with self._lock:
            if not self._queue and not self._delay(tokens):
                return self._taken(tokens)
            waiter = self._queued()
        try:
            while True:
                with self._lock:
                    delay = self._delay(tokens) if self._queue[0] is waiter else inf
                    if not delay:
                        return self._taken(tokens)
                await waiter.wait(delay)
        finally:
            with self._lock:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._wake_head()

    def _delay(self, tokens: int) -> float:
        """Seconds until such a request may start; infinite if another has to end first."""
        if self._running >= self._concurrency:
            return inf
        now = clock.monotonic()
        delay = max(self._requests.delay(1, now), self._tokens.delay(tokens, now))
        return max(delay, _SHORTEST) if delay > 0 else 0

    def _taken(self, tokens: int) -> RateLimitSlot:
        now = clock.monotonic()
        self._running += 1
        self._requests.add(1, now)
        return RateLimitSlot(self, self._tokens.add(tokens, now))

    def _queued(self) -> _Waiter:
        if len(self._queue) >= self._most_waiting:
            raise ModelError(
                f"{len(self._queue)} requests already wait for the rate limit; the maximum is "
                f"{self._most_waiting}. Try again later.",
                kind="busy",
            )
        waiter = _Waiter()
        self._queue.append(waiter)
        return waiter

    def _wake_head(self) -> None:
        while self._queue and not self._queue[0].wake():
            self._queue.popleft()

    def correct(self, entry: _Entry, tokens: int) -> None:
        """Count `tokens` for an entry instead of what was estimated."""
        with self._lock:
            self._tokens.correct(entry, tokens, clock.monotonic())
            self._wake_head()


class RateLimitSlot:
    """A turn that was granted."""

    __slots__ = ("_entry", "_limit")

    def __init__(self, limit: RateLimit, entry: _Entry) -> None:
        self._limit = limit
        self._entry = entry

    def spent(self, usage: Usage) -> None:
        """Say what it really took; a provider that reports nothing leaves the estimate."""
        if tokens := usage.input_tokens + usage.output_tokens:
            self._limit.correct(self._entry, tokens)


class _Entry:
    """Something used at a moment."""

    __slots__ = ("amount", "at")

    def __init__(self, amount: int, at: float) -> None:
        self.amount = amount
        self.at = at


class _Window:
    """The amount used in the last minute, and its limit."""

    def __init__(self, most: int | None, name: str) -> None:
        if most is not None:
            count(most, name)
        self.most = most
        self._entries: deque[_Entry] = deque()
        self._sum = 0

    def delay(self, amount: int, now: float) -> float:
        """Seconds until `amount` fits; what never would fits once nothing else is there."""
        if self.most is None:
            return 0
        self._forget(now)
        excess = self._sum + min(amount, self.most) - self.most
        if excess <= 0:
            return 0
        for entry in self._entries:
            excess -= entry.amount
            if excess <= 0:
                return entry.at + _MINUTE - now
        return 0

    def add(self, amount: int, now: float) -> _Entry:
        entry = _Entry(amount, now)
        if self.most is not None:
            self._entries.append(entry)
            self._sum += amount
        return entry

    def correct(self, entry: _Entry, amount: int, now: float) -> None:
        """Less than estimated is given back; more was used just now."""
        if self.most is None:
            return
        self._forget(now)
        if amount > entry.amount:
            self.add(amount - entry.amount, now)
        elif entry.at + _MINUTE > now:
            self._sum -= entry.amount - amount
            entry.amount = amount

    def _forget(self, now: float) -> None:
        while self._entries and self._entries[0].at + _MINUTE <= now:
            self._sum -= self._entries.popleft().amount


class _Waiter:
    """Someone in the queue, who can be woken from any thread."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        import asyncio  # takes long to import, and is there once anything is awaited

        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Until woken, or until the time has passed."""
        import asyncio

        try:
            async with asyncio.timeout(None if seconds == inf else seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    def wake(self) -> bool:
        """Have it look again; False if its event loop is closed and nobody is there."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return False
        return True


class _Limited(ModelWrapper):
    def __init__(self, model: Model, limit: RateLimit) -> None:
        super().__init__(model)
        self._limit = limit

    def _estimate(self, request: ModelRequest) -> int:
        """Return the input tokens of a request plus its maximum output, as providers count it."""
        if not self._limit.counts_tokens:
            return 0
        most: Any = request.params.get("max_tokens")
        return estimate_tokens(request) + (most if isinstance(most, int) else 0)

    async def ask(self, request: ModelRequest) -> Reply:
        async with self._limit.place(self._estimate(request)) as place:
            reply = await self._model.ask(request)
            place.spent(reply.usage)
            return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with (
            self._limit.place(self._estimate(request)) as place,
            self._model.stream(request) as deltas,
        ):
            yield ObservedStream(deltas, lambda end: place.spent(end.usage))
