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

FOLLOWING = (0.6, 0.3)
"""What the messages after a hit get of its score, the nearest first."""
LEADING = (0.4, 0.3)
"""What those before it get."""
TOGETHER = 0.3
"""What a group adds: this share of the mean of its best scores."""
BEST = 5
DISTILLED = 1.0
"""What a memory gets on top of its own score: it says in a line what messages say in many."""
RECENT = 0.05
"""What something new gets on top; half of it after `HALF_LIFE`, and so on."""
HALF_LIFE = 90 * 86_400_000_000
USED = 0.02
"""What something gets on top for each doubling of how often it was used."""
MOST_USED = 0.1


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

    def shown(self) -> dict[str, float]:
        """Those that count, by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value}


def shared(hits: Sequence[Hit], now: int) -> dict[int, ScoreParts]:
    """The places of hits and those around them, with what speaks for each."""
    found: defaultdict[int, ScoreParts] = defaultdict(ScoreParts)
    groups = together((hit.group, hit.score) for hit in hits)
    for hit in hits:
        score, group = hit.score, groups[hit.group]
        own = found[hit.place]
        own.words, own.together = score, group
        own.recent = score * recent(now - hit.created)
        for place, weight in zip(hit.after, FOLLOWING, strict=False):
            other = found[place]
            other.near += weight * score
            other.together = group
        for place, weight in zip(hit.before, LEADING, strict=False):
            other = found[place]
            other.near += weight * score
            other.together = group
    return found


def together(scores: Iterable[tuple[_K, float]]) -> dict[_K, float]:
    """Return the share that each group adds to its members."""
    groups: defaultdict[_K, list[float]] = defaultdict(list)
    for group, score in scores:
        groups[group].append(score)
    return {group: TOGETHER * sum(nlargest(BEST, found)) / BEST for group, found in groups.items()}


def recent(age: int) -> float:
    """The share that something of this age, in microseconds, gets on top."""
    return RECENT * 0.5 ** (max(0, age) / HALF_LIFE)


def used(times: int) -> float:
    """The share that something used so often gets on top."""
    return min(MOST_USED, USED * log2(1 + max(0, times)))


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
