"""Ranking of search hits, which share their scores with neighbours, archives and folders.

Pure arithmetic over the hits of a store. In a conversation the answer often stands next to the
words of the question ("Did you sell anything?" "All the bowls."), so a hit adds a share of its
score to the adjacent messages, most to the next one; and where many hits are in one archive, day or
folder, each of them gains a little. Shares are only added, so no hit is excluded because of its
surroundings.

Vectors count as much as words: both are normalised to the range from 0 to 1 before they are added,
because their units differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from heapq import nlargest
from math import log2
from typing import TypeVar

from sennit.stores.records.search import Hit

_K = TypeVar("_K")

AFTER_WEIGHTS = (0.6, 0.3)
"""The shares of a hit's score for the messages after it, nearest first."""
BEFORE_WEIGHTS = (0.4, 0.3)
"""The shares for the messages before it."""
GROUP_WEIGHT = 0.3
"""The share of the mean of a group's best scores that each member gets."""
GROUP_TOP_HITS = 5
MEMORY_BONUS = 1.0
"""The share of its own score that a memory gets: it says in a line what messages say in many."""
RECENCY_BONUS = 0.05
"""The share that something new gets; halved after every `RECENCY_HALF_LIFE_US`."""
RECENCY_HALF_LIFE_US = 90 * 86_400_000_000
USAGE_BONUS = 0.02
"""The share for each doubling of the number of uses."""
MAX_USAGE_BONUS = 0.1


@dataclass(slots=True)
class ScoreParts:
    """The parts of a score, which is their sum."""

    words: float = 0.0
    """The full-text score."""
    near: float = 0.0
    """The share of hits in adjacent messages."""
    together: float = 0.0
    """The share of hits in the same archive, day or folder."""
    distilled: float = 0.0
    """The bonus of a memory."""
    recent: float = 0.0
    used: float = 0.0
    meaning: float = 0.0
    """The normalised cosine of its vector."""

    @property
    def total(self) -> float:
        """The score."""
        by_words = self.words + self.near + self.together + self.distilled
        return by_words + self.recent + self.used + self.meaning

    def scale(self, by: float) -> None:
        """Multiply all parts by a factor."""
        for field in fields(self):
            setattr(self, field.name, by * getattr(self, field.name))

    def to_dict(self) -> dict[str, float]:
        """Return the parts other than zero, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value}


def score_hits(hits: Sequence[Hit], now: int) -> dict[int, ScoreParts]:
    """Return the scores of hits and their neighbours, by place."""
    scores: defaultdict[int, ScoreParts] = defaultdict(ScoreParts)
    groups = group_bonus((hit.group, hit.score) for hit in hits)
    for hit in hits:
        score, group = hit.score, groups[hit.group]
        own = scores[hit.place]
        own.words, own.together = score, group
        own.recent = score * recency_bonus(now - hit.created)
        for places, weights in ((hit.after, AFTER_WEIGHTS), (hit.before, BEFORE_WEIGHTS)):
            for place, weight in zip(places, weights, strict=False):
                other = scores[place]
                other.near += weight * score
                other.together = group
    return scores


def group_bonus(scores: Iterable[tuple[_K, float]]) -> dict[_K, float]:
    """Return the share that each group adds to its members."""
    groups: defaultdict[_K, list[float]] = defaultdict(list)
    for group, score in scores:
        groups[group].append(score)
    return {
        group: GROUP_WEIGHT * sum(nlargest(GROUP_TOP_HITS, group_scores)) / GROUP_TOP_HITS
        for group, group_scores in groups.items()
    }


def recency_bonus(age: int) -> float:
    """Return the share for an age in microseconds."""
    return RECENCY_BONUS * 0.5 ** (max(0, age) / RECENCY_HALF_LIFE_US)


def usage_bonus(times: int) -> float:
    """Return the share for a number of uses."""
    return min(MAX_USAGE_BONUS, USAGE_BONUS * log2(1 + max(0, times)))


class FusedScores:
    """Scores normalised to the range from 0 to 1; vectors count for half.

    A result without a vector is scored by words alone.
    """

    def __init__(self, scores: Mapping[int, ScoreParts], cosines: Mapping[int, float]) -> None:
        self._scores, self._cosines = scores, cosines
        totals = {key: parts.total for key, parts in scores.items()}
        self._best_total = max(totals.values(), default=0.0) or 1.0
        self._min_cosine = min(cosines.values(), default=0.0)
        self._cosine_range = max(cosines.values(), default=0.0) - self._min_cosine
        if cosines:
            totals = {
                key: total * self._scale(key) + self._meaning_part(key)
                for key, total in totals.items()
            }
        self._totals = totals

    def _scale(self, key: int) -> float:
        return (0.5 if key in self._cosines else 1.0) / self._best_total

    def _meaning_part(self, key: int) -> float:
        if key not in self._cosines:
            return 0.0
        return 0.5 * (
            (self._cosines[key] - self._min_cosine) / self._cosine_range
            if self._cosine_range
            else 1.0
        )

    def best(self, count: int, offset: int = 0) -> list[int]:
        """Return the next `count` keys, best first, after the first `offset`."""
        order = nlargest(offset + count, self._totals, key=self._totals.__getitem__)
        return order[offset:]

    def parts(self, key: int) -> ScoreParts:
        """Return the parts of the score of a key."""
        parts = replace(self._scores[key])
        parts.scale(self._scale(key))
        parts.meaning = self._meaning_part(key)
        return parts
