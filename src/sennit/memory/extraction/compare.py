"""Comparison of two texts: same, more specific, different or opposite.

Facts are compared where rules know them, words where they do not. A memory may say several things,
one sentence each; a new text is compared with every sentence, and what comes of it touches that one
sentence alone. When in doubt two texts are different: a memory too many does less harm than one
that has swallowed another.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache

from sennit.memory.extraction.clauses import expand_contractions
from sennit.memory.extraction.facts import Fact, Words
from sennit.memory.extraction.rules import fact_of
from sennit.memory.extraction.rules.lexicon import ONE_AT_A_TIME
from sennit.memory.extraction.terms import (
    FRAME,
    NARROWING,
    NEGATIONS,
    content_tokens,
    is_number,
    stem,
    terms,
    tokens,
    words,
)
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Candidate, Category, KnownMemory


class Verdict(Enum):
    """The relation of a new text to a known one."""

    SAME = "says the same"
    CHANGED = "says that it is otherwise"
    MORE = "says more of the same"
    BESIDE = "says something else of the same thing"
    OTHER = "is about something else"


@dataclass(frozen=True, slots=True)
class TextComparison:
    """A verdict, and the sentence of the known text that it is about."""

    verdict: Verdict
    sentence: str = ""


_ORDER = (Verdict.SAME, Verdict.CHANGED, Verdict.MORE, Verdict.BESIDE, Verdict.OTHER)
_SETTLED = frozenset({"home", "age", "job", "status"})
"""What can be said of somebody only once at a time."""


def compare(known: KnownMemory, candidate: Candidate) -> TextComparison:
    """Compare a candidate with a memory of the same category."""
    if is_repeat(known, candidate):
        return TextComparison(Verdict.SAME, known.text)
    if not candidate.category.mergeable or known.category is not candidate.category:
        return TextComparison(Verdict.OTHER)
    found = [
        TextComparison(compare_sentences(one, candidate.text), one) for one in sentences(known.text)
    ]
    if candidate.valid_to is not None and candidate.valid_to <= candidate.said_at:
        # What held until some day says nothing about what holds now.
        found = [one for one in found if one.verdict is not Verdict.CHANGED]
    return min(
        found, key=lambda one: _ORDER.index(one.verdict), default=TextComparison(Verdict.OTHER)
    )


def is_repeat(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a candidate says word for word what is known; of events also of the same
    day.
    """
    if known.category is not candidate.category or _said(known.text) != _said(candidate.text):
        return False
    if candidate.category is not Category.EVENTS:
        return True
    return _day(known.valid_from) == _day(candidate.valid_from)


@lru_cache(maxsize=4096)
def _said(text: str) -> tuple[str, ...]:
    return tuple(tokens(expand_contractions(text)))


def _day(moment: datetime | None) -> object:
    return moment and moment.date()


def compare_sentences(known: str, new: str) -> Verdict:
    """Compare one sentence with another.

    Two sentences that state the same fact are the same only if the new one has no word of its own:
    "I prefer short answers in German" says more than "I prefer short answers", and "I like C++"
    something else than "I like C".
    """
    if _said(known) == _said(new):
        return Verdict.SAME
    verdict = _told_apart(known, new)
    return Verdict.MORE if verdict is Verdict.SAME and not includes(known, new) else verdict


def _told_apart(known: str, new: str) -> Verdict:
    """Compare the facts of two sentences, or their content words where no rule knows a fact."""
    one, other = fact_of(known), fact_of(new)
    if one is None or other is None:
        return _words(known, new)
    if one.category is Category.ENTITIES and other.category is Category.ENTITIES:
        verdict = _entities(one, other)
    else:
        verdict = _facts(one, other)
    if verdict is Verdict.SAME and _content(new) - other.frame - _content(known) - one.value:
        return Verdict.MORE
    return verdict


def _content(text: str) -> Words:
    return frozenset(terms(expand_contractions(text)))


def includes(text: str, other: str) -> bool:
    """Tell whether a text has every telling token of another, in its order.

    The words that a fact is put in may differ, as in "I live in Lisbon" and "My home is in Lisbon".
    """
    fact = fact_of(other)
    frame = fact.frame if fact else FRAME
    found = iter(content_tokens(expand_contractions(text)))
    return all(
        one in found for one in content_tokens(expand_contractions(other)) if stem(one) not in frame
    )


def covers(new: str, known: str) -> bool:
    """Return whether a new sentence says all that a known one says, in the same sense, and more."""
    within = _content(known) <= _content(new) and includes(new, known)
    if not within or _narrows(known, new):
        return False
    return compare_sentences(known, new) in (Verdict.SAME, Verdict.MORE)


def _narrows(known: str, new: str) -> bool:
    """Return whether the words that a sentence adds to another leave less of it, or name something
    else.

    "I don't eat meat on Fridays" does not say that I don't eat meat, nor "I like Dune 2" that I
    like Dune.
    """
    old = frozenset(content_tokens(expand_contractions(known)))
    added = [one for one in content_tokens(expand_contractions(new)) if one not in old]
    if not added:
        return False
    only_numbers = all(map(is_number, added))
    return only_numbers or _negations(new) > 0 or not NARROWING.isdisjoint(added)


def _facts(known: Fact, new: Fact) -> Verdict:
    if "stop" in (known.slot, new.slot):
        return _stopped(known, new)
    if new.replaces and new.replaces == known.value:
        return Verdict.CHANGED
    if known.slot != new.slot or known.about != new.about:
        return Verdict.OTHER
    if known.value == new.value:
        return _alike(known, new)
    within = _within(known.value, new.value)
    if known.positive != new.positive:
        return Verdict.CHANGED if known.single and within else Verdict.OTHER
    if within:
        shorter = known.single and new.value < known.value
        return Verdict.SAME if shorter else Verdict.MORE
    if known.single and new.single and new.positive:
        return Verdict.CHANGED
    return Verdict.CHANGED if _only_numbers_differ(known.value, new.value) else Verdict.OTHER


def _stopped(known: Fact, new: Fact) -> Verdict:
    if not _within(known.value, new.value):
        return Verdict.OTHER
    if known.slot == new.slot:
        return Verdict.SAME
    return Verdict.CHANGED if known.positive or new.positive else Verdict.SAME


def _entities(known: Fact, new: Fact) -> Verdict:
    if known.relation != new.relation:
        return Verdict.OTHER
    if known.about and new.about and not _within(known.about, new.about):
        bare = not known.value and not new.value
        another = bare and new.positive and known.relation in ONE_AT_A_TIME
        return Verdict.CHANGED if another else Verdict.OTHER
    if not new.value:
        return Verdict.SAME if new.positive else Verdict.CHANGED
    if known.value == new.value and (known.slot == new.slot or not known.slot or not new.slot):
        return _alike(known, new)
    if known.slot != new.slot or known.positive != new.positive:
        return Verdict.BESIDE
    if known.value and known.value < new.value:
        return Verdict.MORE
    otherwise = new.slot in _SETTLED or (new.slot == "use" and new.change)
    if otherwise or _only_numbers_differ(known.value, new.value):
        return Verdict.CHANGED
    return Verdict.BESIDE


def _alike(known: Fact, new: Fact) -> Verdict:
    return Verdict.SAME if known.positive == new.positive else Verdict.CHANGED


def _words(known: str, new: str) -> Verdict:
    one, other = _content(known), _content(new)
    if not one or not other:
        return Verdict.OTHER
    same_sense = _negations(known) % 2 == _negations(new) % 2
    if one == other:
        return Verdict.SAME if same_sense else Verdict.CHANGED
    if not same_sense:
        return Verdict.OTHER
    if _only_numbers_differ(one, other):
        return Verdict.CHANGED
    return Verdict.MORE if one < other and len(other) <= 2 * len(one) > 2 else Verdict.OTHER


def _negations(text: str) -> int:
    return sum(word in NEGATIONS for word in words(expand_contractions(text)))


def _within(one: Words, other: Words) -> bool:
    return one <= other or other <= one


def _only_numbers_differ(one: Words, other: Words) -> bool:
    differing = one ^ other
    return bool(one & other) and bool(differing) and all(map(is_number, differing))
