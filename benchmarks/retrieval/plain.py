"""The floor: BM25 over the texts as they are: no stemming, no stop list, no surroundings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import log

_WORD = re.compile(r"\w+")
_K1, _B = 1.5, 0.75


class PlainBM25:
    """Ranks texts for a question."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(_words(text)) for text in texts]
        self._lengths = [count.total() for count in self._counts]
        self._average = sum(self._lengths) / len(texts)
        self._holding = Counter(word for count in self._counts for word in count)

    def rank(self, question: str) -> list[int]:
        """The texts that share a word with the question, the best first."""
        wanted = _words(question)
        scores = [self._score(wanted, at) for at in range(len(self._counts))]
        found = (at for at, score in enumerate(scores) if score)
        return sorted(found, key=lambda at: (-scores[at], -at))

    def _score(self, wanted: Sequence[str], at: int) -> float:
        count, length = self._counts[at], self._lengths[at] / self._average
        return sum(
            self._rarity(word)
            * count[word]
            * (_K1 + 1)
            / (count[word] + _K1 * (1 - _B + _B * length))
            for word in wanted
            if word in count
        )

    def _rarity(self, word: str) -> float:
        holding = self._holding[word]
        return log(1 + (len(self._counts) - holding + 0.5) / (holding + 0.5))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
