"""Circuit breaker.

Closed: calls pass, and consecutive failures are counted. Open: calls fail at once with
`retry_after`. Half-open: after the open period one trial call passes; it closes the breaker or
opens it again. Only failures of the provider count: a rejected request shows that it is available.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from sennit import clock
from sennit.errors import ModelError
from sennit.numbers import count, positive

_FAILURE_KINDS = ("overloaded", "timeout", "network", "malformed")
_NEUTRAL_KINDS = ("busy", "failed")
"""Kinds that say nothing about the provider: our own limits, and unknown errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """When to stop calling a failing provider, and for how long; each model has its own circuit."""

    failures: int = 5
    """Consecutive failures after which it opens."""
    seconds: float = 30
    """Seconds that it stays open."""

    def __post_init__(self) -> None:
        count(self.failures, "failures")
        positive(self.seconds, "seconds")


class Circuit:
    """The state of a provider's circuit; safe to use from many threads."""

    def __init__(self, name: str, breaker: CircuitBreaker) -> None:
        self._name = name
        self._breaker = breaker
        self._lock = Lock()
        self._failures = 0
        self._open_until: float | None = None
        self._trial: CircuitCall | None = None

    @contextmanager
    def call(self) -> Generator[CircuitCall]:
        """Admit a call for the length of the block; raises ModelError (busy) if open."""
        call = CircuitCall(self)
        with self._lock:
            self._admit(call)
        try:
            yield call
        finally:
            self.record(call, None)

    def _admit(self, call: CircuitCall) -> None:
        if self._open_until is None:
            return
        remaining = self._open_until - clock.monotonic()
        if remaining > 0:
            raise self._busy_error(f"calls are blocked for another {remaining:.1f} s", remaining)
        if self._trial is not None:
            raise self._busy_error("a trial call is still running", None)
        self._trial = call

    def _busy_error(self, reason: str, retry_after: float | None) -> ModelError:
        times = f"{self._breaker.failures} time{'s' * (self._breaker.failures > 1)}"
        message = f"Model {self._name!r} failed {times} in a row; {reason}. Try again later."
        return ModelError(message, kind="busy", retry_after=retry_after)

    def record(self, call: CircuitCall, succeeded: bool | None) -> None:
        """Record the outcome of a call once; None if it says nothing about the provider."""
        with self._lock:
            if call.recorded:
                return
            call.recorded = True
            trial = call is self._trial
            if trial:
                self._trial = None
            # Calls that began before the breaker opened are ignored.
            if succeeded is not None and (trial or self._open_until is None):
                self._update_state(succeeded, trial)

    def _update_state(self, succeeded: bool, trial: bool) -> None:
        self._failures = 0 if succeeded else self._failures + 1
        if succeeded:
            self._open_until = None
        elif trial or self._failures >= self._breaker.failures:
            self._open_until = clock.monotonic() + self._breaker.seconds


class CircuitCall:
    """One call through the circuit; its outcome is recorded once."""

    __slots__ = ("_circuit", "recorded")

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit
        self.recorded = False

    def succeed(self) -> None:
        """Record a success."""
        self._circuit.record(self, True)

    def fail(self, error: Exception) -> None:
        """Record an error, unless it says nothing about the provider."""
        if isinstance(error, ModelError) and error.kind not in _NEUTRAL_KINDS:
            self._circuit.record(self, error.kind not in _FAILURE_KINDS)
