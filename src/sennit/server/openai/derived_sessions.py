"""Sessions of clients that name none, with ids derived from the first turn.

The id is a hash of the owner and the first turn, so every process finds the same sessions, and no
owner finds another's. Conversations with the same first turn share a numbered series of sessions,
each with about `MAX_BRANCHES` branches, so that none grows without bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from uuid import UUID

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.messages.codec import dumps
from sennit.server.http.caches import BranchCache
from sennit.server.http.callers import Caller

MAX_BRANCHES = 32
"""The number of branches at which the next session of a series is started."""
SOURCE = {"source": "openai"}
"""The metadata of such a session."""
_MAX_SESSIONS_READ = 4


def derived_id(client: Client, *parts: str) -> UUID:
    """Return a UUID hashed from an owner and some parts; it sorts before time-based ids."""
    digest = blake2b(dumps([client.tenant, client.user, *parts]), digest_size=16).digest()
    number = int.from_bytes(digest, "big") & (1 << 80) - 1
    number = number & ~(0xF << 76) | (8 << 76)
    return UUID(int=number & ~(0b11 << 62) | (0b10 << 62))


def is_full(session: Session) -> bool:
    """Return whether a session has reached `MAX_BRANCHES`."""
    return len(session.branches) >= MAX_BRANCHES


class DerivedSessions:
    """The series of sessions for the conversations of an owner with the same first turn."""

    def __init__(self, caller: Caller, cache: BranchCache, opening: bytes) -> None:
        """Select the series of a first turn, whose digest is `opening`."""
        self._caller, self._cache, self._opening = caller, cache, opening.hex()
        self.first = self._id(0)

    def id(self, number: int) -> UUID:
        """Return the id of a session by its number, from 0."""
        return self._id(number) if number else self.first

    def _id(self, number: int) -> UUID:
        return derived_id(self._caller.client, "conversations", self._opening, str(number))

    def sessions(self) -> Iterator[Session]:
        """Yield the last few sessions, newest first, read from the store."""
        last = self._current_number()
        for number in range(last, max(-1, last - _MAX_SESSIONS_READ), -1):
            if (session := self._at(number)) is not None:
                yield session

    def with_room(self) -> Session:
        """Return the session with room for another branch, from the store; create it if needed."""
        number = self._current_number()
        self._cache.set_last_derived(self._caller.client, self.first, number)
        session = self._caller.client.session(self.id(number), metadata=SOURCE)
        return self._caller.hold(session)

    def _current_number(self) -> int:
        """Return the number of the first session that is not full, or does not exist."""
        return _first_false(self._is_full)

    def _is_full(self, number: int) -> bool:
        session = self._at(number)
        return session is not None and is_full(session)

    def _at(self, number: int) -> Session | None:
        try:
            session = self._caller.client.session(self.id(number), create=False)
        except NotFoundError:
            return None
        return self._caller.hold(session)


def _first_false(predicate: Callable[[int], bool]) -> int:
    """Return the first number for which a monotonic predicate is false, by binary search."""
    if not predicate(0):
        return 0
    low, high = 0, 1
    while predicate(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if predicate(middle) else (low, middle)
    return high
