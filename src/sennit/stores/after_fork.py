"""Detection of stores used in a forked child process.

A child has copies of the parent's connections, but none of its threads. Using them would mix two
processes' traffic on one socket, or wait forever for a thread that does not exist. So after a fork
every store that the parent opened raises StoreError in the child; a client opened there works.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from sennit.errors import StoreError


class ForkGuard(Protocol):
    """A store that must not be used in a forked child."""

    def disown(self) -> list[object]:
        """Refuse all calls from now on; return the connections, which the child must not close."""
        ...


_open_stores: WeakSet[ForkGuard] = WeakSet()
_inherited: list[object] = []  # kept alive: closing one would affect the parent


def watch(store: ForkGuard) -> None:
    """Register a store, to be disowned in a forked child."""
    _open_stores.add(store)


def _disown_all() -> None:
    for store in list(_open_stores):
        _inherited.extend(store.disown())
    _open_stores.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def forked(name: str) -> StoreError:
    """Return the error for using a parent's store in a forked child."""
    return StoreError(
        f"The store {name!r} was opened before this process was forked, and belongs to its parent. "
        f"Open a client in the child: sennit.open(...)."
    )
