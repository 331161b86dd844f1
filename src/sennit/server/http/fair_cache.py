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

    def __init__(self, max_entries: int) -> None:
        self._most, self._size = max_entries, 0
        self._held: dict[str, OrderedDict[_K, _V]] = {}

    def get(self, tenant: str, key: _K) -> _V | None:
        """Return a tenant's value for a key, unless it was evicted."""
        entries = self._held.get(tenant)
        return None if entries is None else entries.get(key)

    def put(self, tenant: str, key: _K, value: _V) -> None:
        """Keep something as the tenant's newest."""
        entries = self._held.setdefault(tenant, OrderedDict())
        before = len(entries)
        entries[key] = value
        entries.move_to_end(key)
        self._size += len(entries) - before
        if self._size > self._most:
            over_share = len(entries) * len(self._held) > self._most
            loser = tenant if over_share else max(self._held, key=lambda name: len(self._held[name]))
            self.pop(loser, next(iter(self._held[loser])))

    def pop(self, tenant: str, key: _K) -> None:
        """Let go of an entry, if it is there."""
        entries = self._held.get(tenant)
        if entries is not None and key in entries:
            del entries[key]
            self._size -= 1
            if not entries:
                del self._held[tenant]
