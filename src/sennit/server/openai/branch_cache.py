"""In-process LRU cache from (owner, history digest) to (session, branch).

Each turn of a branch is cached under its digest, which covers all turns before it, so a history
finds its branch in one lookup however many conversations start alike. Entries are only hints: the
caller compares the branch with the history, and reads the store on a miss.
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

BranchKey: TypeAlias = tuple[UUID, UUID]
"""The ids of a session and of one of its branches."""

_MAX_ENTRIES = 100_000  # about 40 MB


class BranchCache:
    """The branches, idempotent requests and derived sessions that this process has seen."""

    def __init__(self) -> None:
        self._branches = FairCache[tuple[str, bytes], BranchKey](_MAX_ENTRIES)
        self._requests = FairCache[tuple[str, UUID], tuple[UUID, str]](_MAX_ENTRIES)
        self._last_derived: OrderedDict[UUID, int] = OrderedDict()
        self._begin_locks: WeakValueDictionary[UUID, Lock] = WeakValueDictionary()
        self._claims: WeakValueDictionary[UUID, RequestHistory] = WeakValueDictionary()

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

    def claim(self, branch: Branch, history: RequestHistory) -> None:
        """Reserve a branch for a request, until it is released or its history is collected."""
        self._claims[branch.id] = history

    def release(self, branch: Branch, history: RequestHistory) -> None:
        """Release a branch, if this request still has it."""
        if self._claims.get(branch.id) is history:
            del self._claims[branch.id]

    def is_claimed(self, branch: Branch) -> bool:
        """Return whether an active request of this process has a branch."""
        return branch.id in self._claims

    def last_derived(self, first: UUID) -> int:
        """Return the number of the derived session used last, by the id of the first one."""
        return self._last_derived.get(first, 0)

    def set_last_derived(self, first: UUID, number: int) -> None:
        """Cache the number of the derived session used last; 0, the default, is not stored."""
        if number:
            self._last_derived.pop(first, None)
            self._last_derived[first] = number
            if len(self._last_derived) > _MAX_ENTRIES:
                self._last_derived.popitem(last=False)

    def begin_lock(self, first: UUID) -> Lock:
        """Return the lock that guards the start of a derived session."""
        return self._begin_locks.setdefault(first, Lock())


class RequestHistory:
    """The history of a request, which keeps the cache up to date as the request proceeds."""

    def __init__(self, client: Client, cache: BranchCache, messages: Sequence[Message]) -> None:
        self._client, self._cache, self._hasher = client, cache, TurnHasher()
        self._hasher.feed(messages)
        self.turns = self._hasher.turns
        """The turns that the client sent."""

    def assign(self, branch: Branch, new: Sequence[HistoryTurn]) -> None:
        """Continue on this branch, where these turns are new."""
        self._cache.add(self._client, new, branch)
        self._cache.claim(branch, self)

    def move_to(self, branch: Branch) -> None:
        """Continue on a fork of the assigned branch."""
        self.assign(branch, self.turns[-1:])

    def finish(self, branch: Branch, answer: Sequence[Message]) -> None:
        """Release the branch, and cache the turn of its answer, if there is one."""
        self._cache.release(branch, self)
        if answer:
            self._hasher.feed(answer)
            self._cache.add(self._client, self._hasher.turns[-1:], branch)
