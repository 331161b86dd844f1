"""Storage quotas per user: bytes and sessions.

What a user has is counted in the store now and then. Between two counts the bytes of requests that
add something are added, which is more than they store, so a quota may be felt too early by a few
requests, but never too late by more than one request and the answers of models. A user who is over
the quota is counted again at every request, so that deleting helps at once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from sennit import clock
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError
from sennit.server.http.threads import FairThreadPool
from sennit.server.settings import Limits

_FRESH = 600.0  # seconds that a count is good for
_SHARE = 0.01  # of the quota, which may be added before it is counted again
_MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Stock:
    sessions: int
    bytes: int
    counted: float
    added: int = 0
    requests: int = 0


class Quotas:
    """The storage used by each user, as far as this server knows."""

    def __init__(self, limits: Limits, work: FairThreadPool) -> None:
        self._bytes, self._sessions = limits.owner_bytes, limits.owner_sessions
        self._work = work
        self._stocks: OrderedDict[tuple[str, str], _Stock] = OrderedDict()

    async def check(self, caller: Caller, size: int) -> None:
        """Raise HTTPError 403 for a request that adds something if the user has stored too much."""
        if caller.token is None or (self._bytes is None and self._sessions is None):
            return
        key = caller.client.tenant, caller.client.user
        used = self._stocks.get(key)
        if used is None or self._is_old(used, size) or self._excess(used) is not None:
            used = await self._work.run(caller, _counted, caller)
            self._stocks[key] = used
            if len(self._stocks) > _MOST_KNOWN:
                self._stocks.popitem(last=False)
        self._stocks.move_to_end(key)
        if (message := self._excess(used)) is not None:
            raise HTTPError(403, "quota", message)
        used.added += size
        used.requests += 1

    def _is_old(self, used: _Stock, size: int) -> bool:
        if clock.monotonic() - used.counted > _FRESH:
            return True
        bytes_, sessions = self._bytes, self._sessions
        return (bytes_ is not None and used.added + size > bytes_ * _SHARE) or (
            sessions is not None and used.requests > max(1, sessions * _SHARE)
        )

    def _excess(self, used: _Stock) -> str | None:
        if self._bytes is not None and used.bytes >= self._bytes:
            return _full(f"{self._bytes:,} bytes")
        if self._sessions is not None and used.sessions >= self._sessions:
            return _full(f"{self._sessions:,} sessions")
        return None


def _full(quota: str) -> str:
    return f"This user may store {quota} and has done so; delete something first."


def _counted(caller: Caller) -> _Stock:
    realm = caller.client.memory.realm
    totals = [realm.store.stored(owner) for owner in realm.store.owned_by(realm.user)]
    return _Stock(sum(total[0] for total in totals), sum(total[1] for total in totals), clock.monotonic())
