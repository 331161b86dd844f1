"""The conformance kit: checks of the promises of a Store.

    from sennit.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_store(check):
        check(MyStore())

Each check is a function named after the promise it checks. It needs an empty store of its own, and
raises AssertionError. A durable store must also pass DURABLE_CHECKS, whose argument is a function
that opens a store on the same data, empty at first, each time it is called. `run_all` runs CHECKS
without pytest, which nothing here needs.

Some checks set the time with `sennit.clock.using`: a store must read the time from `sennit.clock`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isfunction
from itertools import chain
from types import ModuleType
from typing import Any, Protocol

from sennit.stores.base import Store
from sennit.testing.conformance import (
    appends,
    atomicity,
    branches,
    changes_since,
    closing,
    commits,
    concurrency,
    detached,
    durability,
    files,
    forks,
    labels,
    leases,
    messages,
    owners,
    reference_model,
    rewrites,
    runs,
    scale,
    search,
    sessions,
    starts,
)

__all__ = ["CHECKS", "DURABLE_CHECKS", "ConformanceCheck", "DurableCheck", "checks", "run_all"]


class ConformanceCheck(Protocol):
    """A promise, checked on an empty store."""

    __name__: str

    def __call__(self, store: Store, /) -> None: ...


class DurableCheck(Protocol):
    """A promise about durable data, checked by opening the store several times."""

    __name__: str

    def __call__(self, open_again: Callable[[], Store], /) -> None: ...


def _checks_of(module: ModuleType) -> tuple[Any, ...]:
    """Return the public functions of a module of checks, in source order."""
    return tuple(
        value
        for name, value in vars(module).items()
        if isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    )


_MODULES = (
    sessions,
    messages,
    appends,
    branches,
    forks,
    rewrites,
    changes_since,
    atomicity,
    owners,
    search,
    detached,
    leases,
    runs,
    starts,
    commits,
    files,
    labels,
    closing,
    concurrency,
    reference_model,
    scale,
)

CHECKS: tuple[ConformanceCheck, ...] = tuple(chain.from_iterable(map(_checks_of, _MODULES)))
"""The checks that every store must pass."""

DURABLE_CHECKS: tuple[DurableCheck, ...] = _checks_of(durability)
"""The checks that a durable store must pass."""


def checks() -> Iterator[ConformanceCheck]:
    """Iterate over CHECKS."""
    yield from CHECKS


def run_all(make_store: Callable[[], Store]) -> None:
    """Run every check on a new store; raise AssertionError naming the first that fails."""
    for check in CHECKS:
        store = make_store()
        try:
            check(store)
        except Exception as error:
            raise AssertionError(f"{check.__name__.replace('_', ' ')}: {error}") from error
        finally:
            store.close()
