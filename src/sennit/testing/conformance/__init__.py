"""The conformance kit: checks of what a Store promises.

    from sennit.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_store(check):
        check(MyStore())

Each check is a function whose name is the promise it checks. It wants an empty store that is its
own, and fails with an AssertionError. A store with a disk behind it also takes DURABLE_CHECKS,
whose argument is a function that opens a store on the same data, empty at first, each time it is
called. `run_all` does the first without pytest, which nothing here needs.

Some checks hand over the time with `sennit.clock.using`: a store must ask `sennit.clock` for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import isfunction
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
    """A promise about data that outlive the store, checked by opening it several times."""

    __name__: str

    def __call__(self, open_again: Callable[[], Store], /) -> None: ...


def _of(module: ModuleType) -> tuple[Any, ...]:
    """The public functions of a module of checks, in the order in which they are written."""
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

CHECKS: tuple[ConformanceCheck, ...] = tuple(check for module in _MODULES for check in _of(module))
"""What every store must pass."""

DURABLE_CHECKS: tuple[DurableCheck, ...] = _of(durability)
"""What a store must pass whose data outlive it."""


def checks() -> Iterator[ConformanceCheck]:
    """The checks, one by one."""
    yield from CHECKS


def run_all(make_store: Callable[[], Store]) -> None:
    """Run every check on a store of its own; raises AssertionError naming the first that fails."""
    for check in CHECKS:
        store = make_store()
        try:
            check(store)
        except Exception as error:
            raise AssertionError(f"{check.__name__.replace('_', ' ')}: {error}") from error
        finally:
            store.close()
