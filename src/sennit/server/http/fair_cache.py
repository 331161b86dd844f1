"""An LRU cache shared by tenants, which none of them can empty for the others.

When it is full, whoever holds more than an equal part loses its own oldest entry; otherwise whoever
holds most does. A tenant alone may fill it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class FairCache(Generic[_K, _V]):
    """At most so many entries, shared by tenants. Not safe for threads: lock around it."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._held: dict[str, OrderedDict[_K, _V]] = {}

    def get(self, tenant: str, key: _K) -> _V | None:
        """Return a tenant's value for a key, unless it was evicted."""
        held = self._held.get(tenant)
        return None if held is None else held.get(key)

    def put(self, tenant: str, key: _K, value: _V) -> None:
        """Keep something as the tenant's newest."""
        held = self._held.setdefault(tenant, OrderedDict())
        before = len(held)
        held[key] = value
        held.move_to_end(key)
        self._size += len(held) - before
        if self._size > self._most:
            mine = len(held) * len(self._held) > self._most
            loser = tenant if mine else max(self._held, key=lambda one: len(self._held[one]))
            self.pop(loser, next(iter(self._held[loser])))

    def pop(self, tenant: str, key: _K) -> None:
        """Let go of an entry, if it is there."""
        held = self._held.get(tenant)
        if held is not None and key in held:
            del held[key]
            self._size -= 1
            if not held:
                del self._held[tenant]
