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
        stock = self._stocks.get(key)
        if stock is None or self._is_old(stock, size) or self._excess(stock) is not None:
            stock = await self._work.run(caller, _counted, caller)
            self._stocks[key] = stock
            if len(self._stocks) > _MOST_KNOWN:
                self._stocks.popitem(last=False)
        self._stocks.move_to_end(key)
        if (told := self._excess(stock)) is not None:
            raise HTTPError(403, "quota", told)
        stock.added += size
        stock.requests += 1

    def _is_old(self, stock: _Stock, size: int) -> bool:
        if clock.monotonic() - stock.counted > _FRESH:
            return True
        bytes_, sessions = self._bytes, self._sessions
        return (bytes_ is not None and stock.added + size > bytes_ * _SHARE) or (
            sessions is not None and stock.requests > max(1, sessions * _SHARE)
        )

    def _excess(self, stock: _Stock) -> str | None:
        if self._bytes is not None and stock.bytes >= self._bytes:
            return _full(f"{self._bytes:,} bytes")
        if self._sessions is not None and stock.sessions >= self._sessions:
            return _full(f"{self._sessions:,} sessions")
        return None


def _full(what: str) -> str:
    return f"This user may store {what} and has done so; delete something first."


def _counted(caller: Caller) -> _Stock:
    realm = caller.client.memory.realm
    found = [realm.store.stored(owner) for owner in realm.store.owned_by(realm.user)]
    return _Stock(sum(one[0] for one in found), sum(one[1] for one in found), clock.monotonic())
