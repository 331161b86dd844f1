"""Sessions of clients that name none, derived from how the conversation begins.

Their ids follow from the owner and the first turn, so every process finds the same ones, and nobody
finds another's. So that a text which thousands of conversations begin with does not make one
endless session, a session takes about so many branches, and then the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from uuid import UUID

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.messages.codec import dumps
from sennit.server.http.callers import Caller

MOST_BRANCHES = 32
"""How many branches a session takes that was found by how its conversations begin."""
SOURCE = {"source": "openai"}
"""What such a session notes of itself."""
_LOOKED_AT = 4


def derived_id(client: Client, *parts: str) -> UUID:
    """An id that follows from an owner and some words; it sorts before those made from the time."""
    digest = blake2b(dumps([client.tenant, client.user, *parts]), digest_size=16).digest()
    number = int.from_bytes(digest, "big") & (1 << 80) - 1
    number = number & ~(0xF << 76) | (8 << 76)
    return UUID(int=number & ~(0b11 << 62) | (0b10 << 62))


def full(session: Session) -> bool:
    """Return whether a session has all the branches it takes."""
    return len(session.branches) >= MOST_BRANCHES


class DerivedSessions:
    """The sessions of all conversations of an owner that begin alike: full ones, and the last."""

    def __init__(self, caller: Caller, opening: bytes) -> None:
        """`opening` is the digest of the first turn."""
        self._caller, self._opening = caller, opening.hex()
        self.first = self._id(0)

    def id(self, number: int) -> UUID:
        """The id of one of the sessions; the first has the number 0."""
        return self._id(number) if number else self.first

    def _id(self, number: int) -> UUID:
        return derived_id(self._caller.client, "conversations", self._opening, str(number))

    @property
    def last(self) -> int:
        """The number of the session that took a conversation last, as far as that is known."""
        return self._caller.known.last_shelf(self.first)

    def sessions(self) -> Iterator[Session]:
        """The last few there are, the newest first; read from the store."""
        last = self._end()
        for number in range(last, max(-1, last - _LOOKED_AT), -1):
            if (session := self._at(number)) is not None:
                yield session

    def room(self) -> Session:
        """The session that takes another branch; read from the store, and made if need be."""
        number = self._end()
        self._caller.known.note_shelf(self.first, number)
        session = self._caller.client.session(self.id(number), metadata=SOURCE)
        return self._caller.open.hold(session)

    def _end(self) -> int:
        """The number of the first session that is not full, or not there."""
        return _first_not(self._is_full)

    def _is_full(self, number: int) -> bool:
        session = self._at(number)
        return session is not None and full(session)

    def _at(self, number: int) -> Session | None:
        try:
            session = self._caller.client.session(self.id(number), create=False)
        except NotFoundError:
            return None
        return self._caller.open.hold(session)


def _first_not(predicate: Callable[[int], bool]) -> int:
    """The first number for which something does not hold that holds for all before it."""
    if not predicate(0):
        return 0
    low, high = 0, 1
    while predicate(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if predicate(middle) else (low, middle)
    return high
