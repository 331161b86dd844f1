"""Storage quotas per user: bytes and sessions.

The storage of a user is counted in the store and cached. A new count is made when it expires, or
when requests have since added a set share of the quota, so a quota is exceeded by little more than
that share and the answers of models. A user over the quota is counted at every request, so that
deleting helps at once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from sennit import clock
from sennit.memory.memory import engine_of
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError
from sennit.server.http.threads import FairThreadPool
from sennit.server.settings import Limits

_COUNT_TTL_SECONDS = 600.0  # lifetime of a cached count
_RECOUNT_SHARE = 0.01  # of the quota that may be added before a recount
_MAX_USERS = 10_000


@dataclass(slots=True)
class _UsedStorage:
    sessions: int
    bytes: int
    counted: float
    added: int = 0
    requests: int = 0


class Quotas:
    """The cached storage of each user, checked against the limits."""

    def __init__(self, limits: Limits, work: FairThreadPool) -> None:
        self._bytes, self._sessions = limits.owner_bytes, limits.owner_sessions
        self._work = work
        self._used: OrderedDict[tuple[str, str], _UsedStorage] = OrderedDict()

    async def check(self, caller: Caller, size: int) -> None:
        """Raise HTTPError 403 if the user has reached a quota; else charge `size` bytes."""
        if caller.token is None or (self._bytes is None and self._sessions is None):
            return
        key = caller.client.tenant, caller.client.user
        used = self._used.get(key)
        if used is None or self._is_stale(used, size) or self._excess(used) is not None:
            used = await self._work.run(caller, _count_storage, caller)
            self._used[key] = used
            if len(self._used) > _MAX_USERS:
                self._used.popitem(last=False)
        self._used.move_to_end(key)
        if (message := self._excess(used)) is not None:
            raise HTTPError(403, "quota", message)
        used.added += size
        used.requests += 1

    def _is_stale(self, used: _UsedStorage, size: int) -> bool:
        if clock.monotonic() - used.counted > _COUNT_TTL_SECONDS:
            return True
        bytes_, sessions = self._bytes, self._sessions
        return (bytes_ is not None and used.added + size > bytes_ * _RECOUNT_SHARE) or (
            sessions is not None and used.requests > max(1, sessions * _RECOUNT_SHARE)
        )

    def _excess(self, used: _UsedStorage) -> str | None:
        if self._bytes is not None and used.bytes >= self._bytes:
            return _quota_message(f"{self._bytes:,} bytes")
        if self._sessions is not None and used.sessions >= self._sessions:
            return _quota_message(f"{self._sessions:,} sessions")
        return None


def _quota_message(quota: str) -> str:
    return f"This user has reached the quota of {quota}; delete something first."


def _count_storage(caller: Caller) -> _UsedStorage:
    realm = engine_of(caller.client.memory).scope
    counts = [realm.store.stored(owner) for owner in realm.store.owned_by(realm.user)]
    sessions, size = sum(count[0] for count in counts), sum(count[1] for count in counts)
    size += realm.store.blob_bytes(realm.user)
    return _UsedStorage(sessions, size, clock.monotonic())
