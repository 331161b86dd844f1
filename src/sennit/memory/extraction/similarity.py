"""Similarity of memories, by rank and never by a fixed score.

Small and in memory: for the candidates of one batch, for tests, and for programs with few memories.
A store's own retrieval can stand in its place: anything that gives the most similar first.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from itertools import islice
from typing import TypeAlias

from sennit.memory.extraction.rules import fact_of
from sennit.memory.extraction.terms import stem, terms, words
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Candidate, Category, KnownMemory

Similar: TypeAlias = Callable[[Candidate], Sequence[KnownMemory]]
"""Known memories of the candidate's owner and category, the most similar first."""

MAX_SIMILAR = 10
"""How many similar memories are looked at."""
_LOOKED_AT = 300
"""How many places in the index are read for a candidate, so that a batch is not quadratic."""

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


def search_text(candidate: Candidate) -> str:
    """Return the search text: the fact, and other wordings of older facts of its kind.

    "I moved to Berlin" has no word in common with "I live in Lisbon", which it changes.
    """
    fact = fact_of(candidate.text)
    cues = "" if fact is None else f"{_CUES.get(fact.slot, '')} {fact.relation}"
    return f"{candidate.text} {cues}".strip()


class TextRanker:
    """Ranks memories by what they share with a candidate, the rarest first (BM25)."""

    def __init__(self, known: Iterable[KnownMemory] = ()) -> None:
        self._known: dict[str, tuple[KnownMemory, Counter[str]]] = {}
        self._holding: defaultdict[tuple[Category, str], dict[str, None]] = defaultdict(dict)
        for one in known:
            self.put(one)

    def put(self, known: KnownMemory) -> None:
        """Add a memory, or put it in the place of the one with its id."""
        self.drop(known.id)
        counted = Counter(_indexed(known.text))
        self._known[known.id] = (known, counted)
        for word in counted:
            self._holding[known.category, word][known.id] = None

    def drop(self, id: str) -> None:
        """Remove a memory, if it is there."""
        if id in self._known:
            old, counted = self._known.pop(id)
            for word in counted:
                self._holding[old.category, word].pop(id)

    def get(self, id: str) -> KnownMemory | None:
        """The memory with this id."""
        found = self._known.get(id)
        return found and found[0]

    def __call__(self, candidate: Candidate) -> list[KnownMemory]:
        """Those that share anything, the most similar first; of equals, the latest."""
        scores: defaultdict[str, float] = defaultdict(float)
        room = _LOOKED_AT
        for word, holding in self._rarest_first(candidate):
            rare = math.log(1 + len(self._known) / len(holding))
            for id in islice(reversed(holding), room):
                room -= 1
                counted = self._known[id][1]
                scores[id] += rare * counted[word] / (counted[word] + 0.1 * len(counted))
        best = nlargest(MAX_SIMILAR, scores, key=lambda id: (scores[id], id))
        return [self._known[id][0] for id in best]

    def _rarest_first(self, candidate: Candidate) -> list[tuple[str, dict[str, None]]]:
        words = set(_indexed(candidate.text))
        found = [(word, self._holding.get((candidate.category, word))) for word in words]
        held = [(word, holding) for word, holding in found if holding]
        return sorted(held, key=lambda pair: (len(pair[1]), pair[0]))


def _indexed(text: str) -> list[str]:
    """The words of a text, and what its sentences are about."""
    facts = [fact for one in sentences(text) if (fact := fact_of(one))]
    about = [f"{fact.category}:{fact.slot}:{fact.relation}" for fact in facts]
    return [*about, *(terms(text) or map(stem, words(text)))]
