"""The timeout.

Only waiting for the model counts: what the caller does between two deltas is its own time. A timer
is set only for a delta that is not there yet, since setting one costs more than passing a delta on.
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
    """The timeout; None waits without limit."""

    seconds: float | None = 600
    """For the whole answer; the request's own parameter `timeout` goes before it."""
    stall: float | None = None
    """Between two deltas, once the first one has come."""

    def __post_init__(self) -> None:
        for name in ("seconds", "stall"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name)

    def around(self, model: Model) -> Model:
        """`model`, given up on when it takes too long."""
        return _Timed(model, self)


class _Timed(ModelWrapper):
    def __init__(self, model: Model, timeout: Timeout) -> None:
        super().__init__(model)
        self._timeout = timeout

    async def ask(self, request: ModelRequest) -> Reply:
        return await self._patience(request).within(self._model.ask(request))

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        patience = self._patience(request)
        async with AsyncExitStack() as stack:
            entering = stack.enter_async_context(self._model.stream(request))
            deltas = await patience.within(entering)
            yield deltas if patience.endless else _Deltas(deltas, patience)

    def _patience(self, request: ModelRequest) -> _Patience:
        seconds: Any = request.params.get("timeout")
        if seconds is None:
            seconds = self._timeout.seconds
        else:
            positive(seconds, "timeout")
        return _Patience(self.name, seconds, self._timeout.stall)


class _Patience:
    """The time left for one answer."""

    __slots__ = ("_left", "_name", "_seconds", "_stall")

    def __init__(self, name: str, seconds: float | None, stall: float | None) -> None:
        self._name = name
        self._seconds = seconds
        self._left = inf if seconds is None else seconds
        self._stall = inf if stall is None else stall

    @property
    def endless(self) -> bool:
        return self._left == self._stall == inf

    async def within(self, answer: Awaitable[_T], stalls: bool = False) -> _T:
        """Return the result of `answer` if it comes in time; raises ModelError otherwise."""
        import asyncio  # takes long to import, and is there once anything is awaited

        stall = self._stall if stalls else inf
        limit = min(self._left, stall)
        began = clock.monotonic()
        scope = asyncio.timeout(None if limit == inf else limit)
        try:
            async with scope:
                return await answer
        except TimeoutError:
            if not scope.expired():
                raise  # somebody else's
            raise self._error(stalled=stall < self._left) from None
        finally:
            self._left -= clock.monotonic() - began

    def _error(self, stalled: bool) -> ModelError:
        if stalled:
            said = (
                f"Model {self._name!r} sent nothing for {self._stall:g} s; the attempt was aborted."
            )
        else:
            said = f"Model {self._name!r} took longer than {self._seconds:g} s for its answer."
        return ModelError(said, kind="timeout")


class _Deltas:
    """Deltas that must come in time."""

    __slots__ = ("_begun", "_next", "_patience")

    def __init__(self, deltas: AsyncIterator[Delta], patience: _Patience) -> None:
        self._next: Callable[[], Awaitable[Delta]] = deltas.__anext__
        self._patience = patience
        self._begun = False

    def __aiter__(self) -> _Deltas:
        return self

    async def __anext__(self) -> Delta:
        delta = await _Next(self._next(), self._patience, self._begun)
        self._begun = True
        return delta


class _Next:
    """One delta; patience is asked for only if it is not there at once."""

    __slots__ = ("_answer", "_patience", "_stalls")

    def __init__(self, answer: Awaitable[Delta], patience: _Patience, stalls: bool) -> None:
        self._answer = answer
        self._patience = patience
        self._stalls = stalls

    def __await__(self) -> Generator[Any, Any, Delta]:
        steps = self._answer.__await__()
        try:
            signal = next(steps)
        except StopIteration as done:
            return done.value
        waiting = self._patience.within(_Begun(steps, signal), self._stalls)
        return (yield from waiting.__await__())


class _Begun:
    """An awaitable that was begun by hand and waits for its first signal."""

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
        except BaseException as error:  # a cancellation; what was begun may clean up, and wait
            thrown = error
        else:
            return (yield from self._steps)
        try:
            self._signal = self._steps.throw(thrown)
        except StopIteration as done:
            return done.value
        return (yield from self.__await__())
