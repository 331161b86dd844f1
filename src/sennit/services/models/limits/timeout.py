"""Timeout of model calls.

Only time spent waiting for the model counts, not the caller's work between two deltas. A timer is
set only for a delta that is not available yet, because setting one costs more than passing a delta.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

from sennit import clock
from sennit.errors import ModelError
from sennit.numbers import positive

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """Time limits in seconds; None means no limit."""

    seconds: float | None = 600
    """The limit of the whole reply; a request's parameter `timeout` takes precedence."""
    stall: float | None = None
    """The limit between two deltas, after the first one."""

    def __post_init__(self) -> None:
        for name in ("seconds", "stall"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name)

    def deadline(self, model: str, params: Mapping[str, Any]) -> Deadline:
        """Return the deadline of a reply of `model` to a request with these parameters."""
        seconds: float | None = params.get("timeout")
        return Deadline(model, self.seconds if seconds is None else seconds, self.stall)


class Deadline:
    """The remaining time of one reply."""

    __slots__ = ("_model", "_remaining", "_seconds", "_stall", "_started")

    def __init__(self, model: str, seconds: float | None, stall: float | None = None) -> None:
        self._model = model
        self._seconds = seconds
        self._remaining = inf if seconds is None else seconds
        self._stall = inf if stall is None else stall
        self._started = False

    async def within(self, awaitable: Awaitable[_T], stall: float = inf) -> _T:
        """Return the result of `awaitable`; raises ModelError when the time is up."""
        import asyncio  # late: slow to import

        limit = min(self._remaining, stall)
        began = clock.monotonic()
        scope = asyncio.timeout(None if limit == inf else limit)
        try:
            async with scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise  # from another timeout
            raise self._error(stalled=stall < self._remaining) from None
        finally:
            self._remaining -= clock.monotonic() - began

    async def next_delta(self, awaitable: Awaitable[_T]) -> _T:
        """Return the next delta of a stream; raises as `within` does, also if the stream stalls."""
        if self._remaining == self._stall == inf:
            return await awaitable
        delta = await _NextDelta(awaitable, self, self._stall if self._started else inf)
        self._started = True
        return delta

    def _error(self, stalled: bool) -> ModelError:
        if stalled:
            message = f"sent nothing for {self._stall:g} s; the attempt was aborted."
        else:
            message = f"took longer than {self._seconds:g} s for its answer."
        return ModelError(f"Model {self._model!r} {message}", kind="timeout")


class _NextDelta(Generic[_T]):
    """An awaitable for one delta, which sets a timer only if it is not available at once."""

    __slots__ = ("_awaitable", "_deadline", "_stall")

    def __init__(self, awaitable: Awaitable[_T], deadline: Deadline, stall: float) -> None:
        self._awaitable = awaitable
        self._deadline = deadline
        self._stall = stall

    def __await__(self) -> Generator[Any, Any, _T]:
        steps = self._awaitable.__await__()
        try:
            signal = next(steps)
        except StopIteration as done:
            return done.value
        waiting = self._deadline.within(_StartedAwaitable(steps, signal), self._stall)
        return (yield from waiting.__await__())


class _StartedAwaitable(Generic[_T]):
    """An awaitable that was already started, and waits for the future it yielded first."""

    __slots__ = ("_signal", "_steps")

    def __init__(self, steps: Generator[Any, Any, _T], signal: object) -> None:
        self._steps = steps
        self._signal = signal

    def __await__(self) -> Generator[Any, Any, _T]:
        try:
            yield self._signal
        except GeneratorExit:
            self._steps.close()
            raise
        except BaseException as error:  # a cancellation: the awaitable may clean up and await
            thrown = error
        else:
            return (yield from self._steps)
        try:
            self._signal = self._steps.throw(thrown)
        except StopIteration as done:
            return done.value
        return (yield from self.__await__())
