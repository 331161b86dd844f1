"""Ranking of search hits, which share their scores with neighbours, archives and folders.

Pure arithmetic over the hits of a store. When people talk, the answer often stands next to the
words of the question ("Did you sell anything?" "All the bowls."), so a hit adds a share of its
score to the adjacent messages, most to the next one; and where many hits are in one archive, day or
folder, each of them gains a little. Shares are only added, so no hit is excluded because of its
surroundings.

An assistant repeats at length what its user said in passing. So what nobody with a name and no user
said counts half, unless the question asks what the assistant said, and long answers share their
score with the request before them alone.

Vectors count as much as words: both are normalised to the range from 0 to 1 before they are added,
because their units differ.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


ASSISTANT_WEIGHT = 0.5
"""The weight of words that no person said: of an assistant or a tool without a name."""
ASSISTANT_MEANING_WEIGHT = 0.7
"""The same weight for cosines; higher, since those of long texts are low already."""
SPEAKER_BONUS = 0.5
"""The bonus, as a share of the score, for messages of the speaker that a question names."""
SHORT_CHARS = 280
"""Characters of a short message, which shares with its neighbours whoever says it."""
MAX_SHARING_HITS = 30
"""The number of hits, best first, that share their score."""
_ASKS_ASSISTANT = re.compile(
    r"\bdid you\b"
    r"|\byou(?:'d|'ve| had| have)? (?:\w+ed|said|told|gave|made|wrote|sent|chose|put|found)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """The speaker of a message, as far as it matters for its rank."""

    name: str
    """The name; "" if only the role is known."""
    is_person: bool
    """Whether it is a user or has a name."""
    is_brief: bool
    """Whether the message is short."""


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


def score_hits(
    hits: Sequence[Hit], now: int, speakers: Mapping[int, Speaker], question: str
) -> dict[int, ScoreParts]:
    """Return the scores of hits, which are best first, and of their neighbours, by place.

    Only messages whose speakers are given have a score.
    """
    hits = [hit for hit in hits if hit.place in speakers]
    rest = 1.0 if _ASKS_ASSISTANT.search(question) else ASSISTANT_WEIGHT
    own = {hit.place: hit.score * (1.0 if speakers[hit.place].is_person else rest) for hit in hits}
    groups = group_bonus((hit.group, own[hit.place]) for hit in hits)
    scores: defaultdict[int, ScoreParts] = defaultdict(ScoreParts)
    for rank, hit in enumerate(hits):
        parts = scores[hit.place]
        parts.words, parts.together = own[hit.place], groups[hit.group]
        parts.recent = parts.words * recency_bonus(now - hit.created)
        for place, share in _shares(hit, speakers) if rank < MAX_SHARING_HITS else ():
            scores[place].near += share * own[hit.place]
            scores[place].together = groups[hit.group]
    named = _named_speaker({speaker.name for speaker in speakers.values()}, question)
    for place, parts in scores.items():
        if named and speakers[place].name == named:
            parts.scale(1 + SPEAKER_BONUS)
    return scores


def meaning_weights(speakers: Mapping[int, Speaker], question: str) -> dict[int, float]:
    """Return the weights of the cosines of messages, by place; 1 where there is none."""
    if _ASKS_ASSISTANT.search(question):
        return {}
    others = (place for place, speaker in speakers.items() if not speaker.is_person)
    return dict.fromkeys(others, ASSISTANT_MEANING_WEIGHT)


def _shares(hit: Hit, speakers: Mapping[int, Speaker]) -> Iterator[tuple[int, float]]:
    """Yield the neighbours that get a share of a hit's score, with the share."""
    own = speakers[hit.place]
    for places, weights in ((hit.after, AFTER_WEIGHTS), (hit.before, BEFORE_WEIGHTS)):
        for distance, (place, weight) in enumerate(zip(places, weights, strict=False)):
            other = speakers.get(place)
            if other is None:
                continue
            are_named = bool(own.name and other.name)
            is_request = places is hit.before and other.is_person and not own.is_person
            if are_named or (distance == 0 and (is_request or (own.is_brief and other.is_brief))):
                yield place, weight


def _named_speaker(names: Iterable[str], question: str) -> str:
    """Return the name of the only speaker that a question names; "" if there is none."""
    words = set(re.findall(r"\w+", question.lower()))
    named = [name for name in names if name and name.split()[0].lower() in words]
    return named[0] if len(named) == 1 else ""


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

    def __init__(
        self,
        scores: Mapping[int, ScoreParts],
        cosines: Mapping[int, float],
        weights: Mapping[int, float],
    ) -> None:
        """`weights` are those of cosines, by key; 1 where there is none."""
        self._scores, self._cosines, self._weights = scores, cosines, weights
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
        return (
            0.5
            * self._weights.get(key, 1.0)
            * (
                (self._cosines[key] - self._min_cosine) / self._cosine_range
                if self._cosine_range
                else 1.0
            )
        )

    def ranked(self) -> list[int]:
        """Return all keys, best first."""
        return sorted(self._totals, key=self._totals.__getitem__, reverse=True)

    def parts(self, key: int) -> ScoreParts:
        """Return the parts of the score of a key."""
        parts = replace(self._scores[key])
        parts.scale(self._scale(key))
        parts.meaning = self._meaning_part(key)
        return parts
