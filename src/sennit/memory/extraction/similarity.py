"""Similarity of memories, by rank and never by a fixed score.

A small in-memory index for the candidates of one batch, for tests, and for programs with few
memories. The index of a store can replace it: any function that returns the most similar memories
first.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from itertools import islice
from typing import TypeAlias

from sennit.memory.extraction.english.rules import fact_of
from sennit.memory.extraction.terms import stem, terms, words
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Candidate, Category, KnownMemory

Similar: TypeAlias = Callable[[Candidate], Sequence[KnownMemory]]
"""Returns known memories of the candidate's owner and category, most similar first."""

MAX_SIMILAR = 10
"""The number of similar memories that are compared."""
_MAX_POSTINGS = 300
"""The number of postings read for a candidate, so that a batch does not take quadratic time."""

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
    """Return the search text: the candidate, and other wordings for facts of its slot.

    "I moved to Berlin" has no word in common with "I live in Lisbon", which it changes.
    """
    fact = fact_of(candidate.text)
    cues = "" if fact is None else f"{_CUES.get(fact.slot, '')} {fact.relation}"
    return f"{candidate.text} {cues}".strip()


class TextRanker:
    """Ranks memories by the terms they share with a candidate, as BM25 does."""

    def __init__(self, known: Iterable[KnownMemory] = ()) -> None:
        self._memories: dict[str, tuple[KnownMemory, Counter[str]]] = {}
        self._postings: defaultdict[tuple[Category, str], dict[str, None]] = defaultdict(dict)
        for memory in known:
            self.put(memory)

    def put(self, known: KnownMemory) -> None:
        """Add a memory, or replace the one with its id."""
        self.drop(known.id)
        frequencies = Counter(_index_terms(known.text))
        self._memories[known.id] = (known, frequencies)
        for word in frequencies:
            self._postings[known.category, word][known.id] = None

    def drop(self, uid: str) -> None:
        """Remove a memory, if it exists."""
        if uid in self._memories:
            old, frequencies = self._memories.pop(uid)
            for word in frequencies:
                self._postings[old.category, word].pop(uid)

    def get(self, uid: str) -> KnownMemory | None:
        """Return the memory with this id."""
        entry = self._memories.get(uid)
        return entry and entry[0]

    def __call__(self, candidate: Candidate) -> list[KnownMemory]:
        """Return the memories that share a term, most similar first; of equals, the latest."""
        scores: defaultdict[str, float] = defaultdict(float)
        budget = _MAX_POSTINGS
        for word, postings in self._rarest_first(candidate):
            rarity = math.log(1 + len(self._memories) / len(postings))
            for uid in islice(reversed(postings), budget):
                budget -= 1
                frequencies = self._memories[uid][1]
                scores[uid] += (
                    rarity * frequencies[word] / (frequencies[word] + 0.1 * len(frequencies))
                )
        best = nlargest(MAX_SIMILAR, scores, key=lambda uid: (scores[uid], uid))
        return [self._memories[uid][0] for uid in best]

    def _rarest_first(self, candidate: Candidate) -> list[tuple[str, dict[str, None]]]:
        terms_to_find = set(_index_terms(candidate.text))
        postings_by_word = [
            (word, self._postings.get((candidate.category, word))) for word in terms_to_find
        ]
        present = [(word, postings) for word, postings in postings_by_word if postings]
        return sorted(present, key=lambda pair: (len(pair[1]), pair[0]))


def _index_terms(text: str) -> list[str]:
    """Return the terms of a text, and the slots of its facts."""
    facts = [fact for sentence in sentences(text) if (fact := fact_of(sentence))]
    about = [f"{fact.category}:{fact.slot}:{fact.relation}" for fact in facts]
    return [*about, *(terms(text) or map(stem, words(text)))]
