"""Which segments of a session are needed by whom, told from how they build on one another.

For stores that keep segments as rows. It is worked out here rather than by recursive queries, whose
plans depend on when tables were last analyzed and may be quadratic. Segments go by their numbers. A
base may have a higher number than what builds on it: a segment that was taken over keeps its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from sennit.stores.base import circular


def unused(bases: Mapping[int, int | None], tails: Iterable[int]) -> list[int]:
    """The segments that no branch needs, given where branches end."""
    used: set[int] = set()
    for tail in tails:
        at: int | None = tail
        while at is not None and at not in used:
            used.add(at)
            at = bases.get(at)
    return [no for no in bases if no not in used]


def alone(bases: Mapping[int, int | None], tails: Iterable[int], tail: int) -> set[int]:
    """Those from `tail` down that only the one branch needs which ends with it."""
    users = Counter(tails) + Counter(base for base in bases.values() if base is not None)
    found: set[int] = set()
    at: int | None = tail
    while at is not None and users[at] == 1 and at not in found:
        found.add(at)
        at = bases.get(at)
    return found


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
    """How many of the entries each segment stands on have gone; rows are number, id, base, start.

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
