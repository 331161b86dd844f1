"""Search in memory: every text is looked through, with scores as an index would give them.

A word fits another that begins with it, if it is long enough to mean something. Rare words count
more than common ones, a word said often counts a little more than one said once, and a long text
less than a short one that says the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import starmap
from math import log
from typing import TypeVar

_T = TypeVar("_T")

_WORD = re.compile(r"\w+")
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
    spoken = [(one, _words(text)) for one, text in texts]
    if not any(_said(said, word) for _, said in spoken for word in wanted):
        return []
    every = [said for _, said in spoken] + [_words(text) for text in others]
    average = sum(said.total() for said in every) / len(every)
    rarities = [_rarity(len(every), sum(1 for said in every if _said(said, w))) for w in wanted]

    def score(one: _T, said: Counter[str]) -> tuple[float, _T]:
        damped = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * said.total() / max(1.0, average))
        times = [(_said(said, word), rarity) for word, rarity in zip(wanted, rarities, strict=True)]
        return sum(r * n * (_SATURATION + 1) / (n + damped) for n, r in times), one

    return [found for found in starmap(score, spoken) if found[0] > 0]


@lru_cache(maxsize=4096)
def _words(text: str) -> Counter[str]:
    """The words of a text, and how often each stands there; not to be changed."""
    return Counter(_WORD.findall(text.lower()))


def _rarity(texts: int, holding: int) -> float:
    return log(1 + (texts - holding + 0.5) / (holding + 0.5))


def _said(said: Counter[str], word: str) -> int:
    return sum(n for other, n in said.items() if other == word or _is_stem(word, other))


def _is_stem(one: str, other: str) -> bool:
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) >= _STEM and long.startswith(short)
