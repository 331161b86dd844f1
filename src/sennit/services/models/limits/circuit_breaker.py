"""The circuit breaker.

Closed: calls go through; trouble in a row is counted. Open: calls fail at once, saying when to come
back. Half-open: after the rest one call may try; it closes the breaker, or opens it again. Only
what means trouble at the provider counts: a request it refuses shows that it is there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from threading import Lock

from sennit import clock
from sennit.errors import ModelError
from sennit.services.models.limits.validators import count, positive
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest
from sennit.services.models.wrapper import ModelWrapper, ObservedStream

_TROUBLE = ("overloaded", "timeout", "network", "malformed")
_SILENT = ("busy", "failed")
"""What says nothing about the provider: our own limits, and what nobody understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """When to stop calling a failing provider, and for how long; each model has its own circuit."""

    failures: int = 5
    """Calls in a row that end in trouble before it opens."""
    seconds: float = 30
    """How long it stays open."""

    def __post_init__(self) -> None:
        count(self.failures, "failures")
        positive(self.seconds, "seconds")

    def around(self, model: Model) -> Model:
        """`model`, left alone for a while after it failed too often."""
        return _Guarded(model, self)


class _Circuit:
    """The state of a provider's circuit; safe to use from many threads."""

    def __init__(self, name: str, breaker: CircuitBreaker) -> None:
        self._name = name
        self._breaker = breaker
        self._lock = Lock()
        self._failures = 0
        self._until: float | None = None
        self._trial: _Call | None = None

    @contextmanager
    def call(self) -> Generator[_Call]:
        """A call that may be made now; raises ModelError (busy) if none may."""
        call = _Call(self)
        with self._lock:
            self._admit(call)
        try:
            yield call
        finally:
            self.judge(call, None)

    def _admit(self, call: _Call) -> None:
        if self._until is None:
            return
        left = self._until - clock.monotonic()
        if left > 0:
            raise self._busy(f"it is left alone for another {left:.1f} s", left)
        if self._trial is not None:
            raise self._busy("one call is finding out whether it is back", None)
        self._trial = call

    def _busy(self, why: str, left: float | None) -> ModelError:
        times = f"{self._breaker.failures} time{'s' * (self._breaker.failures > 1)}"
        said = f"Model {self._name!r} failed {times} in a row; {why}. Ask again later."
        return ModelError(said, kind="busy", retry_after=left)

    def judge(self, call: _Call, worked: bool | None) -> None:
        """Note how a call ended; None if that says nothing. Only the first word counts."""
        with self._lock:
            if call.judged:
                return
            call.judged = True
            trial = call is self._trial
            if trial:
                self._trial = None
            # A call from before the breaker opened is old news.
            if worked is not None and (trial or self._until is None):
                self._note(worked, trial)

    def _note(self, worked: bool, trial: bool) -> None:
        self._failures = 0 if worked else self._failures + 1
        if worked:
            self._until = None
        elif trial or self._failures >= self._breaker.failures:
            self._until = clock.monotonic() + self._breaker.seconds


class _Call:
    """One call through the circuit, and what it found out."""

    __slots__ = ("_circuit", "judged")

    def __init__(self, circuit: _Circuit) -> None:
        self._circuit = circuit
        self.judged = False

    def finished(self, _: object = None) -> None:
        self._circuit.judge(self, True)

    def failed(self, error: Exception) -> None:
        if isinstance(error, ModelError) and error.kind not in _SILENT:
            self._circuit.judge(self, error.kind not in _TROUBLE)

    @contextmanager
    def watching(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self.failed(error)
            raise


class _Guarded(ModelWrapper):
    def __init__(self, model: Model, breaker: CircuitBreaker) -> None:
        super().__init__(model)
        self._circuit = _Circuit(model.name, breaker)

    async def ask(self, request: ModelRequest) -> Reply:
        with self._circuit.call() as call, call.watching():
            reply = await self._model.ask(request)
            call.finished()
            return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        with self._circuit.call() as call:
            async with AsyncExitStack() as stack:
                with call.watching():
                    deltas = await stack.enter_async_context(self._model.stream(request))
                yield ObservedStream(deltas, call.finished, call.failed)
