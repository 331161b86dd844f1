"""Retry with backoff.

Only errors that say so are tried again (`ModelError.retryable`), each time after a longer wait, and
never sooner than the provider asked for. A stream is tried again only until its first delta was
handed on: from then on the error is the caller's to see, because no text may be said twice.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sennit import clock
from sennit.errors import ModelError, ValidationError, shown
from sennit.services.models.limits.validators import count, not_negative, positive
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest
from sennit.services.models.wrapper import ModelWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The retry policy."""

    attempts: int = 3
    """Tries in all, the first included."""
    base: float = 0.5
    """Seconds before the second try; doubled for each one after it."""
    cap: float = 30
    """The longest wait. A provider that asks for a longer one is not tried again."""
    jitter: float = 0.5
    """The share of a wait that is left to chance, so that many callers do not return at once."""
    total: float = 120
    """Seconds after which no further try begins."""

    def __post_init__(self) -> None:
        count(self.attempts, "attempts")
        not_negative(self.base, "base")
        not_negative(self.cap, "cap")
        positive(self.total, "total")
        not_negative(self.jitter, "jitter")
        if self.jitter > 1:
            raise ValidationError(f"jitter must be from 0 to 1, got {shown(self.jitter)}.")

    def around(self, model: Model) -> Model:
        """`model`, asked again when it fails in a way that may pass."""
        return _Retried(model, self)

    def wait(self, error: ModelError, failed: int, spent: float) -> float | None:
        """Seconds until the next try after `failed` ones; None to give up."""
        asked = error.retry_after or 0
        if not error.retryable or failed >= self.attempts or asked > self.cap:
            return None
        steps = min(failed - 1, 64)  # beyond that the cap holds anyway, and floats do not
        wait = min(self.cap, self.base * 2**steps) * (1 - self.jitter * random.random())
        wait = max(wait, asked)
        return None if spent + wait > self.total else wait


class _Attempts:
    """The tries of one call."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._failed = 0
        self._began = clock.monotonic()

    def wait_after(self, error: ModelError) -> float | None:
        """Seconds until the next try; None if this was the last."""
        self._failed += 1
        wait = self._retry.wait(error, self._failed, clock.monotonic() - self._began)
        if wait is None and self._failed > 1:
            error.add_note(f"Asked {self._failed} times before giving up.")
        return wait


class _Retried(ModelWrapper):
    def __init__(self, model: Model, retry: Retry) -> None:
        super().__init__(model)
        self._retry = retry

    async def ask(self, request: ModelRequest) -> Reply:
        attempts = _Attempts(self._retry)
        while True:
            try:
                return await self._model.ask(request)
            except ModelError as error:
                wait = attempts.wait_after(error)
                if wait is None:
                    raise
            await _sleep(wait)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        attempts = _Attempts(self._retry)
        while True:
            async with AsyncExitStack() as stack:
                try:
                    deltas = await stack.enter_async_context(self._model.stream(request))
                    first = await anext(deltas, None)
                except ModelError as error:
                    wait = attempts.wait_after(error)
                    if wait is None:
                        raise
                else:
                    yield _From(first, deltas)
                    return
            await _sleep(wait)


class _From:
    """Deltas whose first one was taken already."""

    __slots__ = ("_first", "_next")

    def __init__(self, first: Delta | None, deltas: AsyncIterator[Delta]) -> None:
        self._first = first
        self._next = deltas.__anext__

    def __aiter__(self) -> _From:
        return self

    async def __anext__(self) -> Delta:
        if self._first is None:
            return await self._next()
        first, self._first = self._first, None
        return first


async def _sleep(seconds: float) -> None:
    import anyio  # only those who wait need it

    await anyio.sleep(seconds)
