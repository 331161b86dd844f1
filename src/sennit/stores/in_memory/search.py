"""Full-text search of the in-memory store.

A word fits another that begins with it, if it is long enough to mean something. Accents and
capitals make no difference, and what is asked for as one word but stands as several is a phrase.
Rare words count more than common ones, a word said often counts a little more than one said once,
and a long text less than a short one that says the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import starmap
from math import log
from typing import TypeVar

from sennit.stores.search import tokenizer

_T = TypeVar("_T")

_STEM = 4
_SATURATION = 1.2
_BY_LENGTH = 0.75


def scored(
    texts: Sequence[tuple[_T, str]], wanted: Sequence[str], others: Sequence[str] = ()
) -> list[tuple[float, _T]]:
    """Those of the texts that hold a wanted word, with their score, in their order.

    How rare a word is, and how long a text is usually, is counted over `others` too, so that scores
    of different kinds of texts can be compared.
    """
    phrases = [phrase for phrase in map(_split, wanted) if phrase]
    spoken = [(one, _said(text)) for one, text in texts]
    if not any(said.times(phrase) for _, said in spoken for phrase in phrases):
        return []
    every = [said for _, said in spoken] + [_said(text) for text in others]
    average = sum(said.total for said in every) / len(every)
    rarities = [_rarity(len(every), sum(1 for said in every if said.times(p))) for p in phrases]

    def score(one: _T, said: _Said) -> tuple[float, _T]:
        damped = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * said.total / max(1.0, average))
        times = zip(map(said.times, phrases), rarities, strict=True)
        return sum(r * n * (_SATURATION + 1) / (n + damped) for n, r in times), one

    return [found for found in starmap(score, spoken) if found[0] > 0]


class _Said:
    """The words of a text, and how often each stands there; not to be changed."""

    __slots__ = ("_counts", "_text", "total")

    def __init__(self, text: str) -> None:
        found = _split(text)
        self._counts = Counter(found)
        self._text = _joined(found)
        self.total = len(found)

    def times(self, phrase: tuple[str, ...]) -> int:
        """Return the number of occurrences of a word or phrase."""
        if len(phrase) != 1:
            return self._text.count(_joined(phrase))
        word = phrase[0]
        return sum(n for other, n in self._counts.items() if other == word or _is_stem(word, other))


_said = lru_cache(maxsize=4096)(_Said)


def _split(text: str) -> tuple[str, ...]:
    return tuple(tokenizer.apart(tokenizer.bare(text)).split())


def _joined(found: Sequence[str]) -> str:
    """Words so that each has its own space on both sides: phrases may follow one another."""
    return "".join(f" {word} " for word in found)


def _rarity(texts: int, holding: int) -> float:
    return log(1 + (texts - holding + 0.5) / (holding + 0.5))


def _is_stem(one: str, other: str) -> bool:
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) >= _STEM and long.startswith(short)
