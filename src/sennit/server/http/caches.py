"""Caches shared fairly by tenants: none can evict all entries of another.

When a cache is full, a tenant with more than an equal share evicts its own oldest entry; otherwise
the tenant with the most entries loses its oldest. A single tenant may fill the cache.

`BranchCache` finds the branch of a conversation by the digest of its history, in one lookup however
many conversations start alike. Its entries are only hints: the caller compares the branch with the
history, and reads the store on a miss.
"""

from __future__ import annotations

from asyncio import Lock as AsyncLock
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from sennit.api.client import Client
from sennit.sessions.branch import Branch

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
BranchKey: TypeAlias = tuple[UUID, UUID]
"""The ids of a session and of one of its branches."""

_MAX_ENTRIES = 100_000  # about 40 MB


class FairCache(Generic[_K, _V]):
    """A thread-safe LRU cache of at most `max_entries`, shared by tenants."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries, self._size = max_entries, 0
        self._entries: dict[str, OrderedDict[_K, _V]] = {}
        self._lock = Lock()

    def get(self, tenant: str, key: _K) -> _V | None:
        """Return a tenant's value for a key, unless it was evicted."""
        entries = self._entries.get(tenant)
        return None if entries is None else entries.get(key)

    def put(self, tenant: str, key: _K, value: _V) -> None:
        """Store a value as the tenant's newest entry, evicting another if the cache is full."""
        with self._lock:
            entries = self._entries.setdefault(tenant, OrderedDict())
            self._size += key not in entries
            entries[key] = value
            entries.move_to_end(key)
            if self._size > self._max_entries:
                if len(entries) * len(self._entries) <= self._max_entries:
                    tenant = max(self._entries, key=lambda name: len(self._entries[name]))
                self._remove(tenant, next(iter(self._entries[tenant])))

    def pop(self, tenant: str, key: _K) -> None:
        """Remove an entry, if it exists."""
        with self._lock:
            if key in self._entries.get(tenant, ()):
                self._remove(tenant, key)

    def _remove(self, tenant: str, key: _K) -> None:
        del self._entries[tenant][key]
        self._size -= 1
        if not self._entries[tenant]:
            del self._entries[tenant]


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """A turn of a conversation, hashed together with all turns before it."""

    digest: bytes
    end: int
    """The number of messages up to its end, without the system message."""


class BranchCache:
    """The branches, idempotent requests and derived sessions that this process has seen."""

    def __init__(self) -> None:
        self._branches = FairCache[tuple[str, bytes], BranchKey](_MAX_ENTRIES)
        self._requests = FairCache[tuple[str, UUID], tuple[UUID, str]](_MAX_ENTRIES)
        self._last_derived = FairCache[UUID, int](_MAX_ENTRIES)
        self.claims: WeakValueDictionary[UUID, object] = WeakValueDictionary()
        """The request that runs on a branch, by the branch's id: others fork it at once."""
        self._locks: WeakValueDictionary[UUID, AsyncLock] = WeakValueDictionary()

    def find(self, client: Client, turns: Sequence[HistoryTurn]) -> BranchKey | None:
        """Return the branch last cached for the longest prefix of these turns; None on a miss."""
        for turn in reversed(turns):
            key = self._branches.get(client.tenant, (client.user, turn.digest))
            if key is not None:
                return key
        return None

    def add(self, client: Client, turns: Sequence[HistoryTurn], branch: Branch) -> None:
        """Cache a branch under each of these turns, which it has or is about to get."""
        key = (branch.session.id, branch.id)
        for turn in turns:
            self._branches.put(client.tenant, (client.user, turn.digest), key)

    def find_request(self, client: Client, uid: UUID) -> tuple[UUID, str] | None:
        """Return the session and the digest of a request with an Idempotency-Key."""
        return self._requests.get(client.tenant, (client.user, uid))

    def add_request(self, client: Client, uid: UUID, session: UUID, digest: str) -> None:
        """Cache the session and the digest of a request with an Idempotency-Key."""
        self._requests.put(client.tenant, (client.user, uid), (session, digest))

    def last_derived(self, client: Client, first: UUID) -> int:
        """Return the number of the derived session used last, by the id of the first one."""
        return self._last_derived.get(client.tenant, first) or 0

    def set_last_derived(self, client: Client, first: UUID, number: int) -> None:
        """Cache the number of the derived session used last; 0, the default, is not stored."""
        if number:
            self._last_derived.put(client.tenant, first, number)

    def lock(self, uid: UUID) -> AsyncLock:
        """Return the lock of a session that begins or is asked, or of an idempotent request."""
        return self._locks.setdefault(uid, AsyncLock())
