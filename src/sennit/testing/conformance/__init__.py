"""The conformance kit: checks of the promises of a Store.

    from sennit.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_store(check):
        check(MyStore())

Each check is a function named after the promise it checks. It needs an empty store of its own, and
raises AssertionError. A durable store must also pass DURABLE_CHECKS, whose argument is a function
that opens a store on the same data, empty at first, each time it is called. `run_all` runs CHECKS
without pytest, which nothing here needs.

Some checks set the time with `sennit.clock.wall_clock_from`: a store must read the time from
`sennit.clock`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import get_annotations, isfunction
from itertools import chain
from types import ModuleType
from typing import Any, Protocol

from sennit.stores.base import Store
from sennit.testing.conformance import (
    blobs,
    branches,
    calls,
    changes_since,
    commits,
    concurrency,
    durability,
    files,
    histories,
    labels,
    leases,
    messages,
    reference_model,
    refusals,
    removed,
    runs,
    scale,
    search,
    sessions,
)
from sennit.testing.conformance.fixtures import Scenario

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


def _on_store(check: Callable[[Any], None]) -> ConformanceCheck:
    """Return a check that takes a store; most are written for a scenario in one."""
    if "Store" in get_annotations(check).values():
        return check

    @wraps(check)
    def on_store(store: Store) -> None:
        check(Scenario(store))

    return on_store


_MODULES = (
    sessions,
    messages,
    histories,
    branches,
    refusals,
    changes_since,
    calls,
    search,
    removed,
    leases,
    runs,
    commits,
    files,
    blobs,
    labels,
    concurrency,
    reference_model,
    scale,
)

CHECKS: tuple[ConformanceCheck, ...] = tuple(
    map(_on_store, chain(refusals.REFUSALS, *map(_checks_of, _MODULES)))
)
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
