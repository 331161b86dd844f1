"""The graph of segments: which branch needs which.

For stores that keep segments as rows. It is computed here rather than by recursive queries, whose
plans depend on table statistics and may be quadratic. Segments are identified by number. A base may
have a higher number than a segment on top of it: a segment that was taken over keeps its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

from sennit.stores.base import segment_cycle
from sennit.stores.records.sessions import BranchRecord


def unused(bases: Mapping[int, int | None], tails: Iterable[int]) -> list[int]:
    """Return the segments that no branch with one of these tails uses."""
    used: set[int] = set()
    for tail in tails:
        current: int | None = tail
        while current is not None and current not in used:
            used.add(current)
            current = bases.get(current)
    return [number for number in bases if number not in used]


def needed(rows: Mapping[int, Any], tails: Iterable[int], known: Mapping[UUID, int]) -> list[int]:
    """Return the segments under these tails, down to known ones; rows are number, id, base, …"""
    segments: set[int] = set()
    pending = list(tails)
    while pending:
        number = pending.pop()
        if number in segments:
            continue
        segments.add(number)
        _, uid, base, *_ = rows[number]
        if base is not None and (uid not in known or rows[base][1] not in known):
            pending.append(base)
    return sorted(segments)


def lost_below(rows: Mapping[int, Any], gaps: Mapping[int, list[int]]) -> dict[int, int]:
    """Return the number of lost entries below each segment; rows are number, id, base, start.

    `gaps` are the positions of the lost entries in their own segments.
    """
    lost: dict[int, int] = {}
    for first in rows:
        path: dict[int, None] = {}
        current: int | None = first
        while current is not None and current not in lost:
            if current in path:
                raise segment_cycle(current)
            path[current] = None
            current = rows[current][2]
        for number in reversed(path):
            lost[number] = _count_lost_below(number, rows, gaps, lost)
    return lost


def _count_lost_below(
    number: int, rows: Mapping[int, Any], gaps: Mapping[int, list[int]], lost: Mapping[int, int]
) -> int:
    _, _, base, end = rows[number]
    count = 0
    while base is not None:
        _, _, next_base, start = rows[base]
        count += sum(start + position < end for position in gaps.get(base, ()))
        if end >= start:
            return count + lost[base]
        base = next_base
    return count


def source_of(branch: BranchRecord) -> UUID | None:
    """Return the id of the branch that a branch was forked from, or None."""
    origin: Any = branch.metadata.get("forked_from")
    try:
        return UUID(origin["branch_id"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


MAIN = "main"
"""The branch that has priority if several hold a message."""
ALL_ENTRIES = 2**31 - 1
"""The number of entries that means all: the largest integer of PostgreSQL."""

Range: TypeAlias = tuple[Any, int, int]
"""A half-open range of a segment's entries: its key, first and end position."""


def shown(rows: Mapping[Any, tuple[Any, int]], tails: Iterable[Any]) -> dict[Any, int]:
    """Return the number of visible entries of each segment, for branches with these tails.

    Rows are base and start of each segment, by the store's key.
    """
    reach: dict[Any, int] = {}
    for tail in tails:
        current, end = tail, ALL_ENTRIES
        while reach.get(current, -1) < end:
            reach[current] = end
            base, start = rows[current]
            if base is None:
                break
            current, end = base, min(end, start)
    return {
        key: ALL_ENTRIES if end == ALL_ENTRIES else max(0, end - rows[key][1])
        for key, end in reach.items()
    }


@dataclass(frozen=True)
class SegmentGraph:
    """A snapshot of a session's segments and branches, by the store's keys."""

    rows: Mapping[Any, tuple[Any, int]]
    """Base and start of each segment."""
    branches: Mapping[Any, tuple[Any, Any]]
    """The segment that each branch ends with, and its system message."""

    @cached_property
    def shown(self) -> dict[Any, int]:
        """The number of visible entries of each segment on any branch."""
        return shown(self.rows, (segment for segment, _ in self.branches.values()))

    @cached_property
    def systems(self) -> set[Any]:
        """The system messages of all branches."""
        return {system for _, system in self.branches.values() if system is not None}

    def more_than(self, other: SegmentGraph) -> list[Range]:
        """Return the entries that are visible here and not in `other`."""
        other_shown = other.shown
        return [
            (key, other_shown.get(key, 0), count)
            for key, count in self.shown.items()
            if other_shown.get(key, 0) < count
        ]

    def beside(self, branch: Any, before: SegmentGraph) -> list[Range]:
        """Return the visible entries that may repeat a message of one branch's former history.

        A branch holds a message once, so the entries of that history itself are left out.
        """
        previous = before.branches.get(branch)
        previously_shown = {} if previous is None else shown(before.rows, [previous[0]])
        return [
            (key, previously_shown.get(key, 0), count)
            for key, count in self.shown.items()
            if previously_shown.get(key, 0) < count
        ]

    def holding(
        self, names: Mapping[Any, str], places: Iterable[tuple[UUID, Any, int]]
    ) -> dict[UUID, str]:
        """Return the branch name of each message, given as message, segment and position.

        If several branches show it, the first in `names` wins.
        """
        branch_names: dict[UUID, str] = {}
        positions = list(places)
        for branch, name in names.items():
            branch_shown = shown(self.rows, [self.branches[branch][0]])
            for message, segment, position in positions:
                if position < branch_shown.get(segment, 0):
                    branch_names.setdefault(message, name)
        return branch_names

    @property
    def everything(self) -> list[Range]:
        """All visible entries."""
        return [(key, 0, count) for key, count in self.shown.items()]
