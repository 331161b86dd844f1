"""Detached messages: those on no branch, in one session, inside one transaction.

A message is attached while it stands on a branch, is a branch's system message, or is in an
archive. Detached messages are kept, with the time at which they were removed, but no search finds
them.

A write names the segments that it is about to change (`watch`), and `settle` compares what branches
show of these before and after. A segment is shown as a whole where a branch ends with it, and else
up to where the highest of those that build on it begins; each of them begins in its base or at its
end. So a look at a segment's own users is enough, by keys: the cost of a change grows with what it
changes, not with the number of branches or the length of the session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sennit import clock
from sennit.stores.segment_graph import ALL_ENTRIES, MAIN, Range, SegmentGraph


class SegmentUse(NamedTuple):
    """The use of a segment by branches."""

    base: int | None
    users: int
    """How many branches end with it and how many segments build on it, each counted up to two."""
    shown: int
    """How many of its own entries branches show."""


def use_of(base: int | None, start: int, ends: int, above: int, highest: int | None) -> SegmentUse:
    """Return the use of a segment, from the columns that both stores ask for."""
    shown = ALL_ENTRIES if ends else max(0, (highest or 0) - start)
    return SegmentUse(base, ends + above, shown)


class DetachedMessages(ABC):
    """The messages of one session that stand on no branch, and what a write changes of them."""

    def __init__(self) -> None:
        self._had: dict[int, int] = {}  # how much segments showed before the write
        self._left: set[int] = set()  # messages that may have left their last branch
        self._joined: set[int] = set()  # messages that have come onto a branch

    @abstractmethod
    def any(self) -> bool:
        """Tell whether there are any."""

    @abstractmethod
    def detach(self, messages: Iterable[int], since: int | None) -> None:
        """Keep messages without finding them, unless they are on a branch or in an archive."""

    @abstractmethod
    def attach(self, messages: Iterable[int]) -> None:
        """Have messages found again, those of them that were detached."""

    @abstractmethod
    def _uses(self, segments: Iterable[int]) -> dict[int, SegmentUse]:
        """Return the uses of those of these segments that are there."""

    @abstractmethod
    def _messages_in(self, ranges: Sequence[Range]) -> set[int]:
        """Return the messages at these places."""

    @abstractmethod
    def _delete(self, segments: Sequence[int]) -> None:
        """Delete segments and their entries."""

    def begin(self) -> None:
        """Forget what a write that failed has named."""
        self._had.clear()
        self._left.clear()
        self._joined.clear()

    def watch(self, segments: Iterable[int]) -> dict[int, SegmentUse]:
        """Name segments of which branches may soon show more or less; gives their uses."""
        uses = self._uses(segments)
        for number, use in uses.items():
            self._had.setdefault(number, use.shown)
        return uses

    def shows(self, segment: int) -> None:
        """Name a new segment, of which nothing was shown before."""
        self._had.setdefault(segment, 0)

    def replaced(self, old: int | None, new: int | None) -> None:
        """Name a system message that a branch no longer has, and the one it has now."""
        if old is not None and old != new:
            self._left.add(old)
        if new is not None and old != new:
            self._joined.add(new)

    def settle(self) -> None:
        """Drop segments that no branch needs, detach what has left its last branch, and attach."""
        if not self._had and not self._left and not self._joined:
            return
        self._drop_unused()
        now = self._uses(self._had)
        fewer, more = list[Range](), list[Range]()
        for number, had in self._had.items():
            shown = now[number].shown
            if shown < had:
                fewer.append((number, shown, had))
            elif shown > had:
                more.append((number, had, shown))
        if left := self._left | self._messages_in(fewer):
            self.detach(left, clock.now_us())
        if (more or self._joined) and self.any():
            self.attach(self._joined | self._messages_in(more))
        self.begin()

    def _drop_unused(self) -> None:
        waiting: Iterable[int] = list(self._had)
        while waiting:
            uses = self._uses(waiting)
            unused = {number: use for number, use in uses.items() if not use.users}
            if not unused:
                return
            waiting = {use.base for use in unused.values() if use.base is not None}
            self.watch(waiting - self._had.keys())
            shown = [(number, 0, self._had.pop(number)) for number in unused]
            self._left |= self._messages_in(shown)
            self._delete(list(unused))

    @abstractmethod
    def _layout(self) -> SegmentGraph: ...

    @abstractmethod
    def _names(self) -> list[tuple[str, UUID, UUID | None]]:
        """Return names, ids and system messages of all branches, the oldest first."""

    @abstractmethod
    def _places(self, messages: Sequence[UUID]) -> list[tuple[UUID, int, int]]:
        """Return where messages stand, as message, segment and position."""

    def branches_holding(self, messages: Sequence[UUID]) -> dict[UUID, str]:
        """The branch on which each message stands."""
        rows = sorted(self._names(), key=lambda row: row[0] != MAIN)
        names = {uid: name for name, uid, _ in rows}
        found = self._layout().holding(names, self._places(messages))
        for name, _, system in rows:
            if system is not None:
                found.setdefault(system, name)
        return {uid: found[uid] for uid in messages if uid in found}


def alone(uses: Mapping[int, SegmentUse], tail: int) -> set[int]:
    """Those of these segments, from `tail` down, that only the one branch needs that ends there."""
    found: set[int] = set()
    at: int | None = tail
    while at is not None and at in uses and uses[at].users == 1 and at not in found:
        found.add(at)
        at = uses[at].base
    return found
