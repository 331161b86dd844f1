"""Full-text search of the in-memory store.

BM25 over words that match if one is a long enough prefix of the other. Case and accents are
ignored, and a query word that splits into several tokens is a phrase.
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

_MIN_STEM_LENGTH = 4
_BM25_K1 = 1.2
_BM25_B = 0.75


def scored(
    texts: Sequence[tuple[_T, str]], words: Sequence[str], others: Sequence[str] = ()
) -> list[tuple[float, _T]]:
    """Return the BM25 scores of the texts that contain a word, in their order.

    Document frequency and average length include `others`, so that scores of different kinds of
    texts can be compared.
    """
    phrases = [phrase for phrase in map(_split, words) if phrase]
    documents = [(item, _words_of(text)) for item, text in texts]
    if not any(document.times(phrase) for _, document in documents for phrase in phrases):
        return []
    all_documents = [document for _, document in documents] + [_words_of(text) for text in others]
    average = sum(document.total for document in all_documents) / len(all_documents)
    idfs = [
        _idf(len(all_documents), sum(1 for document in all_documents if document.times(p)))
        for p in phrases
    ]

    def score(item: _T, document: _Words) -> tuple[float, _T]:
        damped = _BM25_K1 * (1 - _BM25_B + _BM25_B * document.total / max(1.0, average))
        times = zip(map(document.times, phrases), idfs, strict=True)
        return sum(
            idf * frequency * (_BM25_K1 + 1) / (frequency + damped) for frequency, idf in times
        ), item

    return [result for result in starmap(score, documents) if result[0] > 0]


class _Words:
    """The words of a text and their frequencies; immutable, because it is cached."""

    __slots__ = ("_counts", "_text", "total")

    def __init__(self, text: str) -> None:
        words = _split(text)
        self._counts = Counter(words)
        self._text = _join(words)
        self.total = len(words)

    def times(self, phrase: tuple[str, ...]) -> int:
        """Return the number of occurrences of a word or phrase."""
        if len(phrase) != 1:
            return self._text.count(_join(phrase))
        word = phrase[0]
        return sum(n for other, n in self._counts.items() if other == word or _is_stem(word, other))


_words_of = lru_cache(maxsize=4096)(_Words)


def _split(text: str) -> tuple[str, ...]:
    return tuple(tokenizer.space_letters(tokenizer.strip_marks(text)).split())


def _join(words: Sequence[str]) -> str:
    """Join words with a space on both sides of each, so adjacent phrases are counted apart."""
    return "".join(f" {word} " for word in words)


def _idf(texts: int, holding: int) -> float:
    return log(1 + (texts - holding + 0.5) / (holding + 0.5))


def _is_stem(word: str, other: str) -> bool:
    short, long = (word, other) if len(word) < len(other) else (other, word)
    return len(short) >= _MIN_STEM_LENGTH and long.startswith(short)
