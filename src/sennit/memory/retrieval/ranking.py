"""Ranking: scores shared with neighbours, archives and folders.

Pure arithmetic over what a store has found; it reads nothing. In a conversation the answer often
stands beside the words one asks with ("Did you sell anything?" "All the bowls."), so a hit gives a
share of its score to the messages next to it, most to the one that follows; and where many hits
stand together, in one archive, day or folder, each of them is a little more likely. Shares are
added to what a message has of its own and take nothing away: no hit is ever shut out because its
surroundings fit badly.

Vectors, where there are some, count as much as words: both are brought to the range from 0 to 1
before they are added, as they are measured in different units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from heapq import nlargest
from math import log2
from typing import Generic, TypeVar

from sennit.stores.records.search import Hit

_K = TypeVar("_K")

AFTER_WEIGHTS = (0.6, 0.3)
"""What the messages after a hit get of its score, the nearest first."""
BEFORE_WEIGHTS = (0.4, 0.3)
"""What those before it get."""
GROUP_WEIGHT = 0.3
"""What a group adds: this share of the mean of its best scores."""
GROUP_TOP_HITS = 5
MEMORY_BONUS = 1.0
"""What a memory gets on top of its own score: it says in a line what messages say in many."""
RECENCY_BONUS = 0.05
"""What something new gets on top; half of it after `HALF_LIFE`, and so on."""
RECENCY_HALF_LIFE_US = 90 * 86_400_000_000
USAGE_BONUS = 0.02
"""What something gets on top for each doubling of how often it was used."""
MAX_USAGE_BONUS = 0.1


@dataclass(slots=True)
class ScoreParts:
    """The parts of a score, which is their sum."""

    words: float = 0.0
    """How well its own words fit."""
    near: float = 0.0
    """What it got from the messages next to it."""
    together: float = 0.0
    """What it got from the archive, day or folder it stands in."""
    distilled: float = 0.0
    """What it got for being a memory."""
    recent: float = 0.0
    used: float = 0.0
    meaning: float = 0.0
    """How near its meaning is, by vectors."""

    @property
    def total(self) -> float:
        """The score."""
        by_words = self.words + self.near + self.together + self.distilled
        return by_words + self.recent + self.used + self.meaning

    def scale(self, by: float) -> None:
        """Multiply all of them."""
        self.words *= by
        self.near *= by
        self.together *= by
        self.distilled *= by
        self.recent *= by
        self.used *= by
        self.meaning *= by

    def to_dict(self) -> dict[str, float]:
        """Those that count, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value}


def score_hits(hits: Sequence[Hit], now: int) -> dict[int, ScoreParts]:
    """The places of hits and those around them, with what speaks for each."""
    found: defaultdict[int, ScoreParts] = defaultdict(ScoreParts)
    groups = group_bonus((hit.group, hit.score) for hit in hits)
    for hit in hits:
        score, group = hit.score, groups[hit.group]
        own = found[hit.place]
        own.words, own.together = score, group
        own.recent = score * recency_bonus(now - hit.created)
        for place, weight in zip(hit.after, AFTER_WEIGHTS, strict=False):
            other = found[place]
            other.near += weight * score
            other.together = group
        for place, weight in zip(hit.before, BEFORE_WEIGHTS, strict=False):
            other = found[place]
            other.near += weight * score
            other.together = group
    return found


def group_bonus(scores: Iterable[tuple[_K, float]]) -> dict[_K, float]:
    """Return the share that each group adds to its members."""
    groups: defaultdict[_K, list[float]] = defaultdict(list)
    for group, score in scores:
        groups[group].append(score)
    return {
        group: GROUP_WEIGHT * sum(nlargest(GROUP_TOP_HITS, found)) / GROUP_TOP_HITS
        for group, found in groups.items()
    }


def recency_bonus(age: int) -> float:
    """The share that something of this age, in microseconds, gets on top."""
    return RECENCY_BONUS * 0.5 ** (max(0, age) / RECENCY_HALF_LIFE_US)


def usage_bonus(times: int) -> float:
    """The share that something used so often gets on top."""
    return min(MAX_USAGE_BONUS, USAGE_BONUS * log2(1 + max(0, times)))


class FusedScores(Generic[_K]):
    """Scores normalised to the range from 0 to 1; vectors count for half.

    Where there is no meaning, as of what has no vector yet, the words are all there is.
    """

    def __init__(self, found: Mapping[_K, ScoreParts], meaning: Mapping[_K, float]) -> None:
        self._found, self._meaning = found, meaning
        totals = {key: parts.total for key, parts in found.items()}
        self._best = max(totals.values(), default=0.0) or 1.0
        self._low = min(meaning.values(), default=0.0)
        self._spread = max(meaning.values(), default=0.0) - self._low
        if meaning:
            totals = {key: one * self._share(key) + self._part(key) for key, one in totals.items()}
        self._totals = totals

    def _share(self, key: _K) -> float:
        return (0.5 if key in self._meaning else 1.0) / self._best

    def _part(self, key: _K) -> float:
        if key not in self._meaning:
            return 0.0
        return 0.5 * ((self._meaning[key] - self._low) / self._spread if self._spread else 1.0)

    def best(self, count: int, after: int = 0) -> list[_K]:
        """So many of them, the best first, without the first `after`."""
        order = nlargest(after + count, self._totals, key=self._totals.__getitem__)
        return order[after:]

    def parts(self, key: _K) -> ScoreParts:
        """Return the parts of one score."""
        parts = replace(self._found[key])
        parts.scale(self._share(key))
        parts.meaning = self._part(key)
        return parts
