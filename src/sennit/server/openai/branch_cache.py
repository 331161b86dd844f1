"""In-process cache from owner and history to session and branch.

Each turn that a branch takes in is noted here under its digest, which covers all before it. So a
history that goes on finds its branch in one step, however many conversations begin alike. Nothing
here has to be right: the branch is asked whether it says what is looked for, and what was forgotten
here, or said in another process, is looked for in the store.
"""

from __future__ import annotations

from asyncio import Lock
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from sennit.api.client import Client
from sennit.messages.message import Message
from sennit.server.http.fair_cache import FairCache
from sennit.server.openai.history_match import HistoryTurn, TurnHasher
from sennit.sessions.branch import Branch

Spot: TypeAlias = tuple[UUID, UUID]
"""A session and a branch of it, open or not."""

_MOST = 100_000  # some 40 MB


class BranchCache:
    """The conversations that this server has seen, from history to branch."""

    def __init__(self) -> None:
        self._spots = FairCache[tuple[str, bytes], Spot](_MOST)
        self._once = FairCache[tuple[str, UUID], tuple[UUID, str]](_MOST)
        self._shelves: OrderedDict[UUID, int] = OrderedDict()
        self._beginning: WeakValueDictionary[UUID, Lock] = WeakValueDictionary()
        self._here: WeakValueDictionary[UUID, RequestHistory] = WeakValueDictionary()

    def spot(self, client: Client, turns: Sequence[HistoryTurn]) -> Spot | None:
        """The branch that was last noted for these turns, or for as many of them as were noted."""
        for turn in reversed(turns):
            key = self._spots.get(client.tenant, (client.user, turn.digest))
            if key is not None:
                return key
        return None

    def note(self, client: Client, turns: Sequence[HistoryTurn], branch: Branch) -> None:
        """Remember that these turns stand on a branch, or soon will."""
        key = (branch.session.id, branch.id)
        for turn in turns:
            self._spots.put(client.tenant, (client.user, turn.digest), key)

    def once(self, client: Client, uid: UUID) -> tuple[UUID, str] | None:
        """Return the session of a request with an Idempotency-Key, and the digest of the request.

        A session, and the digest of the request.
        """
        return self._once.get(client.tenant, (client.user, uid))

    def note_once(self, client: Client, uid: UUID, session: UUID, digest: str) -> None:
        """Remember where a request with an Idempotency-Key is taken in."""
        self._once.put(client.tenant, (client.user, uid), (session, digest))

    def take(self, branch: Branch, history: RequestHistory) -> None:
        """Remember that a request has a branch, as long as there is its story."""
        self._here[branch.id] = history

    def leave(self, branch: Branch, history: RequestHistory) -> None:
        """The request has come to its end, or has another branch now."""
        if self._here.get(branch.id) is history:
            del self._here[branch.id]

    def is_taken(self, branch: Branch) -> bool:
        """Return whether a request has this branch that is under way here."""
        return branch.id in self._here

    def last_shelf(self, first: UUID) -> int:
        """The number of the shelf that took a conversation last, by the id of the first of them."""
        return self._shelves.get(first, 0)

    def note_shelf(self, first: UUID, number: int) -> None:
        """Remember that number, unless it is the first, which most have."""
        if number:
            self._shelves.pop(first, None)
            self._shelves[first] = number
            if len(self._shelves) > _MOST:
                self._shelves.popitem(last=False)

    def beginning(self, first: UUID) -> Lock:
        """Held by whoever begins another of the shelves."""
        return self._beginning.setdefault(first, Lock())


class RequestHistory:
    """The history in a request, and where it continues."""

    def __init__(self, client: Client, cache: BranchCache, messages: Sequence[Message]) -> None:
        self._client, self._known, self._trail = client, cache, TurnHasher()
        self._trail.feed(messages)
        self.turns = self._trail.turns
        """What was said so far."""

    def goes_to(self, branch: Branch, new: Sequence[HistoryTurn]) -> None:
        """It goes on on this branch, where these turns are new."""
        self._known.note(self._client, new, branch)
        self._known.take(branch, self)

    def moves_to(self, branch: Branch) -> None:
        """The same with a fork of the branch it was to go to."""
        self.goes_to(branch, self.turns[-1:])

    def ended(self, branch: Branch, answer: Sequence[Message]) -> None:
        """The branch is free again, and this was answered there, if anything was."""
        self._known.leave(branch, self)
        if answer:
            self._trail.feed(answer)
            self._known.note(self._client, self._trail.turns[-1:], branch)
