"""An LRU cache shared fairly by tenants: none can evict all entries of another.

When it is full, a tenant with more than an equal share evicts its own oldest entry; otherwise the
tenant with the most entries loses its oldest. A single tenant may fill the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class FairCache(Generic[_K, _V]):
    """An LRU cache of at most `max_entries`, shared by tenants. Not thread-safe: use a lock."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries, self._size = max_entries, 0
        self._entries: dict[str, OrderedDict[_K, _V]] = {}

    def get(self, tenant: str, key: _K) -> _V | None:
        """Return a tenant's value for a key, unless it was evicted."""
        entries = self._entries.get(tenant)
        return None if entries is None else entries.get(key)

    def put(self, tenant: str, key: _K, value: _V) -> None:
        """Store a value as the tenant's newest entry, evicting another if the cache is full."""
        entries = self._entries.setdefault(tenant, OrderedDict())
        before = len(entries)
        entries[key] = value
        entries.move_to_end(key)
        self._size += len(entries) - before
        if self._size > self._max_entries:
            over_share = len(entries) * len(self._entries) > self._max_entries
            loser = (
                tenant
                if over_share
                else max(self._entries, key=lambda name: len(self._entries[name]))
            )
            self.pop(loser, next(iter(self._entries[loser])))

    def pop(self, tenant: str, key: _K) -> None:
        """Remove an entry, if it exists."""
        entries = self._entries.get(tenant)
        if entries is not None and key in entries:
            del entries[key]
            self._size -= 1
            if not entries:
                del self._entries[tenant]
