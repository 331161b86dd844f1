"""Which memories might be about the same thing as a candidate: by rank, never by a fixed score.

Small and in memory: for the candidates of one batch, for tests, and for programs with few memories.
A store's own retrieval can stand in its place: anything that gives the most similar first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sennit.memory.rules import fact_of
from sennit.memory.terms import stem, terms, words
from sennit.memory.values import Candidate, Category, Known

Similar: TypeAlias = Callable[[Candidate], Sequence[Known]]
"""Known memories of the candidate's owner and category, the most similar first."""

RANKED = 10
"""How many similar memories are looked at."""

_CUES = {
    "home": "live lives moved based home relocated resides",
    "employer": "work works working joined employer employed job",
    "job": "work works job profession am is",
    "age": "years old age turned",
    "status": "married single divorced engaged widowed",
    "diet": "vegetarian vegan eat",
    "name": "name called",
    "use": "use uses switched",
    "answer": "answer reply respond",
    "prefer": "prefer",
    "favourite": "favourite favorite",
}


def query(candidate: Candidate) -> str:
    """What to search for: the text, and words in which an older fact of its kind may be put.

    "I moved to Berlin" has no word in common with "I live in Lisbon", which it changes.
    """
    fact = fact_of(candidate.text)
    cues = "" if fact is None else f"{_CUES.get(fact.slot, '')} {fact.relation}"
    return f"{candidate.text} {cues}".strip()


class TextRanker:
    """Ranks memories by the words they share with a candidate, rare words first (BM25)."""

    def __init__(self, known: Iterable[Known] = ()) -> None:
        self._known: dict[str, tuple[Known, Counter[str]]] = {}
        self._holding: Counter[tuple[Category, str]] = Counter()
        self._size: Counter[Category] = Counter()
        for one in known:
            self.put(one)

    def put(self, known: Known) -> None:
        """Add a memory, or put it in the place of the one with its id."""
        if known.id in self._known:
            self._count(known.id, -1)
        self._known[known.id] = (known, Counter(_indexed(known.text)))
        self._count(known.id, 1)

    def holds(self, id: str) -> bool:
        """Whether a memory has this id."""
        return id in self._known

    def __call__(self, candidate: Candidate) -> list[Known]:
        """The most similar first; those without a word in common come last, latest first."""
        wanted = set(_indexed(query(candidate)))
        scored = [
            (self._score(counted, wanted, candidate.category), place, known)
            for place, (known, counted) in enumerate(self._known.values())
            if known.category is candidate.category
        ]
        scored.sort(key=lambda one: one[:2], reverse=True)
        return [known for _, _, known in scored[:RANKED]]

    def _score(self, counted: Counter[str], wanted: set[str], category: Category) -> float:
        score, size = 0.0, self._size[category]
        length = math.sqrt(1 + counted.total())
        for word in wanted & counted.keys():
            holding = self._holding[category, word]
            score += math.log(1 + size / holding) * counted[word] / (counted[word] + 0.1 * length)
        return score

    def _count(self, id: str, step: int) -> None:
        known, counted = self._known[id]
        self._size[known.category] += step
        for word in counted:
            self._holding[known.category, word] += step


def _indexed(text: str) -> list[str]:
    return terms(text) or [stem(word) for word in words(text)]
