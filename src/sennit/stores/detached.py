"""Detached messages: those on no branch, in one session, inside one transaction.

A message is attached while it is on a branch, is a branch's system message, or is in an archive.
Detached messages stay stored, with the time of their removal, but search does not return them.

A write registers the segments that it is about to change (`watch`), and `settle` compares which of
their entries are visible before and after. A segment is visible as a whole if a branch ends with
it, and else up to the highest start of the segments on top of it. So it is enough to look up the
direct users of a segment by key: the cost of a change grows with its size, not with the number of
branches or the length of the session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sennit import clock
from sennit.stores.segment_graph import ALL_ENTRIES, MAIN, Range, shown


class SegmentUse(NamedTuple):
    """The use of a segment by branches."""

    base: int | None
    users: int
    """The number of branches that end with it and of segments on top of it, each up to two."""
    shown: int
    """The number of its own entries that are visible on branches."""


def use_of(base: int | None, start: int, ends: int, above: int, highest: int | None) -> SegmentUse:
    """Return the use of a segment, from the columns that both SQL stores query."""
    shown = ALL_ENTRIES if ends else max(0, (highest or 0) - start)
    return SegmentUse(base, ends + above, shown)


class DetachedMessages(ABC):
    """The detached messages of one session, and the changes of one write to them."""

    def __init__(self) -> None:
        self._shown_before: dict[int, int] = {}  # visible entries of segments before the write
        self._left_branches: set[int] = set()  # messages that may be on no branch now
        self._joined_branches: set[int] = set()  # messages that are on a branch now

    @abstractmethod
    def any(self) -> bool:
        """Return whether any message of the session is detached."""

    @abstractmethod
    def detach(self, messages: Iterable[int], since: int | None) -> None:
        """Exclude messages from search, unless they are on a branch or in an archive."""

    @abstractmethod
    def attach(self, messages: Iterable[int]) -> None:
        """Include detached messages in search again."""

    @abstractmethod
    def _uses(self, segments: Iterable[int]) -> dict[int, SegmentUse]:
        """Return the uses of these segments, without those that do not exist."""

    @abstractmethod
    def _messages_in(self, ranges: Sequence[Range]) -> set[int]:
        """Return the messages in these ranges of entries."""

    @abstractmethod
    def _delete(self, segments: Sequence[int]) -> None:
        """Delete segments and their entries."""

    def begin(self) -> None:
        """Reset the state of a previous write."""
        self._shown_before.clear()
        self._left_branches.clear()
        self._joined_branches.clear()

    def watch(self, segments: Iterable[int]) -> dict[int, SegmentUse]:
        """Record segments whose visible entries may change; return their current uses."""
        uses = self._uses(segments)
        for number, use in uses.items():
            self._shown_before.setdefault(number, use.shown)
        return uses

    def shows(self, segment: int) -> None:
        """Record a new segment, none of whose entries were visible before."""
        self._shown_before.setdefault(segment, 0)

    def replaced(self, old: int | None, new: int | None) -> None:
        """Record that a branch replaced one system message with another."""
        if old is not None and old != new:
            self._left_branches.add(old)
        if new is not None and old != new:
            self._joined_branches.add(new)

    def is_changed(self) -> bool:
        """Return whether the write may have changed which messages are visible."""
        return bool(self._shown_before or self._left_branches or self._joined_branches)

    def settle(self) -> None:
        """Drop unused segments, detach messages that left their last branch, attach others."""
        if not self.is_changed():
            return
        self._drop_unused()
        uses = self._uses(self._shown_before)
        hidden, revealed = list[Range](), list[Range]()
        for number, before in self._shown_before.items():
            shown = uses[number].shown
            if shown < before:
                hidden.append((number, shown, before))
            elif shown > before:
                revealed.append((number, before, shown))
        if detached := self._left_branches | self._messages_in(hidden):
            self.detach(detached, clock.now_us())
        if (revealed or self._joined_branches) and self.any():
            self.attach(self._joined_branches | self._messages_in(revealed))
        self.begin()

    def _drop_unused(self) -> None:
        pending: Iterable[int] = list(self._shown_before)
        while pending:
            uses = self._uses(pending)
            unused = {number: use for number, use in uses.items() if not use.users}
            if not unused:
                return
            pending = {use.base for use in unused.values() if use.base is not None}
            self.watch(pending - self._shown_before.keys())
            shown = [(number, 0, self._shown_before.pop(number)) for number in unused]
            self._left_branches |= self._messages_in(shown)
            self._delete(list(unused))

    @abstractmethod
    def _segments(self) -> dict[int, tuple[int | None, int]]:
        """Return the base and start of each segment."""

    @abstractmethod
    def _branches(self) -> list[tuple[str, int, UUID | None]]:
        """Return names, segments and system messages of all branches, the oldest first."""

    @abstractmethod
    def _places(self, messages: Sequence[UUID]) -> list[tuple[UUID, int, int]]:
        """Return the entries of messages, as message, segment and position."""

    def branches_holding(self, messages: Sequence[UUID]) -> dict[UUID, str]:
        """Return the branch name of each message; of several "main", or else the oldest."""
        names: dict[UUID, str] = {}
        rows, places = self._segments(), self._places(messages)
        branches = sorted(self._branches(), key=lambda branch: branch[0] != MAIN)
        for name, tail, _ in branches:
            visible = shown(rows, [tail])
            for message, segment, position in places:
                if position < visible.get(segment, 0):
                    names.setdefault(message, name)
        for name, _, system in branches:
            if system is not None and system in messages:
                names.setdefault(system, name)
        return names


def alone(uses: Mapping[int, SegmentUse], tail: int) -> set[int]:
    """Return the segments from `tail` down that only the branch ending there uses."""
    exclusive: set[int] = set()
    current: int | None = tail
    while (
        current is not None
        and current in uses
        and uses[current].users == 1
        and current not in exclusive
    ):
        exclusive.add(current)
        current = uses[current].base
    return exclusive
