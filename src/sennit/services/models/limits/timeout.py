"""Timeout of model calls.

Only time spent waiting for the model counts, not the caller's work between two deltas. A timer is
set only for a delta that is not available yet, because setting one costs more than passing a delta.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

from sennit import clock
from sennit.errors import ModelError
from sennit.services.models.limits.validators import positive
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest
from sennit.services.models.wrapper import ModelWrapper

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

    def around(self, model: Model) -> Model:
        """Wrap `model` in this timeout."""
        return _TimedModel(model, self)


class _TimedModel(ModelWrapper):
    def __init__(self, model: Model, timeout: Timeout) -> None:
        super().__init__(model)
        self._timeout = timeout

    async def ask(self, request: ModelRequest) -> Reply:
        return await self._deadline(request).within(self._model.ask(request))

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        deadline = self._deadline(request)
        async with AsyncExitStack() as stack:
            entering = stack.enter_async_context(self._model.stream(request))
            deltas = await deadline.within(entering)
            yield deltas if deadline.is_unlimited else _TimedDeltas(deltas, deadline)

    def _deadline(self, request: ModelRequest) -> _Deadline:
        seconds: Any = request.params.get("timeout")
        if seconds is None:
            seconds = self._timeout.seconds
        else:
            positive(seconds, "timeout")
        return _Deadline(self.name, seconds, self._timeout.stall)


class _Deadline:
    """The remaining time of one reply."""

    __slots__ = ("_name", "_remaining", "_seconds", "_stall")

    def __init__(self, name: str, seconds: float | None, stall: float | None) -> None:
        self._name = name
        self._seconds = seconds
        self._remaining = inf if seconds is None else seconds
        self._stall = inf if stall is None else stall

    @property
    def is_unlimited(self) -> bool:
        return self._remaining == self._stall == inf

    async def within(self, awaitable: Awaitable[_T], stalls: bool = False) -> _T:
        """Return the result of `awaitable`; raises ModelError when the time is up."""
        import asyncio  # late: slow to import

        stall = self._stall if stalls else inf
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

    def _error(self, stalled: bool) -> ModelError:
        if stalled:
            message = (
                f"Model {self._name!r} sent nothing for {self._stall:g} s; the attempt was aborted."
            )
        else:
            message = f"Model {self._name!r} took longer than {self._seconds:g} s for its answer."
        return ModelError(message, kind="timeout")


class _TimedDeltas:
    """Deltas under a deadline."""

    __slots__ = ("_deadline", "_next", "_started")

    def __init__(self, deltas: AsyncIterator[Delta], deadline: _Deadline) -> None:
        self._next: Callable[[], Awaitable[Delta]] = deltas.__anext__
        self._deadline = deadline
        self._started = False

    def __aiter__(self) -> _TimedDeltas:
        return self

    async def __anext__(self) -> Delta:
        delta = await _NextDelta(self._next(), self._deadline, self._started)
        self._started = True
        return delta


class _NextDelta:
    """An awaitable for one delta, which sets a timer only if it is not available at once."""

    __slots__ = ("_awaitable", "_deadline", "_stalls")

    def __init__(self, awaitable: Awaitable[Delta], deadline: _Deadline, stalls: bool) -> None:
        self._awaitable = awaitable
        self._deadline = deadline
        self._stalls = stalls

    def __await__(self) -> Generator[Any, Any, Delta]:
        steps = self._awaitable.__await__()
        try:
            signal = next(steps)
        except StopIteration as done:
            return done.value
        waiting = self._deadline.within(_StartedAwaitable(steps, signal), self._stalls)
        return (yield from waiting.__await__())


class _StartedAwaitable:
    """An awaitable that was already started, and waits for the future it yielded first."""

    __slots__ = ("_signal", "_steps")

    def __init__(self, steps: Generator[Any, Any, Delta], signal: object) -> None:
        self._steps = steps
        self._signal = signal

    def __await__(self) -> Generator[Any, Any, Delta]:
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
