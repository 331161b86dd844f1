"""The graph of segments: which branch needs which.

For stores that keep segments as rows. It is worked out here rather than by recursive queries, whose
plans depend on when tables were last analyzed and may be quadratic. Segments go by their numbers. A
base may have a higher number than what builds on it: a segment that was taken over keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

from sennit.stores.base import circular
from sennit.stores.records.sessions import BranchRecord


def unused(bases: Mapping[int, int | None], tails: Iterable[int]) -> list[int]:
    """The segments that no branch needs, given where branches end."""
    used: set[int] = set()
    for tail in tails:
        at: int | None = tail
        while at is not None and at not in used:
            used.add(at)
            at = bases.get(at)
    return [no for no in bases if no not in used]


def needed(rows: Mapping[int, Any], tails: Iterable[int], known: Mapping[UUID, int]) -> list[int]:
    """The segments under these tails, down to known ones; rows begin with number, id and base."""
    found: set[int] = set()
    waiting = list(tails)
    while waiting:
        no = waiting.pop()
        if no in found:
            continue
        found.add(no)
        _, uid, base, *_ = rows[no]
        if base is not None and (uid not in known or rows[base][1] not in known):
            waiting.append(base)
    return sorted(found)


def lost_below(rows: Mapping[int, Any], gaps: Mapping[int, list[int]]) -> dict[int, int]:
    """Return the number of lost entries below each segment; rows are number, id, base, start.

    `gaps` are the places of those that have gone, counted in their own segments.
    """
    lost: dict[int, int] = {}
    for first in rows:
        path: dict[int, None] = {}
        at: int | None = first
        while at is not None and at not in lost:
            if at in path:
                raise circular(at)
            path[at] = None
            at = rows[at][2]
        for no in reversed(path):
            lost[no] = _lost_below(no, rows, gaps, lost)
    return lost


def _lost_below(
    no: int, rows: Mapping[int, Any], gaps: Mapping[int, list[int]], lost: Mapping[int, int]
) -> int:
    _, _, base, upto = rows[no]
    count = 0
    while base is not None:
        _, _, below, start = rows[base]
        count += sum(start + place < upto for place in gaps.get(base, ()))
        if upto >= start:
            return count + lost[base]
        base = below
    return count


def source_of(branch: BranchRecord) -> UUID | None:
    """Return the branch that a new one says it was forked from."""
    origin: Any = branch.metadata.get("forked_from")
    try:
        return UUID(origin["branch_id"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


MAIN = "main"
"""The branch that is looked at first."""
ALL_ENTRIES = 2**31 - 1
"""All entries of a segment: more than any has, and the greatest integer of PostgreSQL."""

Range: TypeAlias = tuple[Any, int, int]
"""Entries of a segment: its key, the first position, and the first that is no part of it."""


def shown(rows: Mapping[Any, tuple[Any, int]], tails: Iterable[Any]) -> dict[Any, int]:
    """Return the number of own entries that each segment shows on branches with these tails.

    Rows are base and start of each segment, by whatever key the store knows it.
    """
    reach: dict[Any, int] = {}
    for tail in tails:
        at, upto = tail, ALL_ENTRIES
        while reach.get(at, -1) < upto:
            reach[at] = upto
            base, start = rows[at]
            if base is None:
                break
            at, upto = base, min(upto, start)
    return {
        no: ALL_ENTRIES if upto == ALL_ENTRIES else max(0, upto - rows[no][1])
        for no, upto in reach.items()
    }


@dataclass(frozen=True)
class SegmentGraph:
    """The segments of a session and its branches, by the store's keys, as they are at a moment."""

    rows: Mapping[Any, tuple[Any, int]]
    """Base and start of each segment."""
    branches: Mapping[Any, tuple[Any, Any]]
    """The segment that each branch ends with, and its system message."""

    @cached_property
    def shown(self) -> dict[Any, int]:
        """Return the number of own entries that each segment shows on any branch."""
        return shown(self.rows, (segment for segment, _ in self.branches.values()))

    @cached_property
    def systems(self) -> set[Any]:
        """The system messages of all branches."""
        return {system for _, system in self.branches.values() if system is not None}

    def more_than(self, other: SegmentGraph) -> list[Range]:
        """The entries that are shown here and not there."""
        there = other.shown
        return [(no, there.get(no, 0), n) for no, n in self.shown.items() if there.get(no, 0) < n]

    def beside(self, branch: Any, before: SegmentGraph) -> list[Range]:
        """The shown entries among which something may stand that was on one branch before.

        A branch holds a message once, so what it showed before need not be looked through.
        """
        held = before.branches.get(branch)
        own = {} if held is None else shown(before.rows, [held[0]])
        return [(no, own.get(no, 0), n) for no, n in self.shown.items() if own.get(no, 0) < n]

    def holding(
        self, names: Mapping[Any, str], places: Iterable[tuple[UUID, Any, int]]
    ) -> dict[UUID, str]:
        """The branch that shows each of these places, as message, segment and position.

        Of several the one that comes first in `names`.
        """
        found: dict[UUID, str] = {}
        where = list(places)
        for branch, name in names.items():
            own = shown(self.rows, [self.branches[branch][0]])
            for message, segment, pos in where:
                if pos < own.get(segment, 0):
                    found.setdefault(message, name)
        return found

    @property
    def everything(self) -> list[Range]:
        """All entries that are shown."""
        return [(no, 0, n) for no, n in self.shown.items()]
