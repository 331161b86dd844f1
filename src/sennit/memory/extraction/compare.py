"""Comparison of two texts: same, more specific, different or opposite.

Facts are compared where rules know them, words where they do not. A memory may have several
sentences; a new text is compared with each of them, and the result concerns only that sentence. In
doubt two texts are different: one memory too many does less harm than one that has absorbed
another.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache

from sennit.memory.extraction.english.clauses import expand
from sennit.memory.extraction.english.lexicon import ONE_AT_A_TIME
from sennit.memory.extraction.english.rules import Fact, Words, fact_of
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
    """A verdict, and the sentence of the known text that it concerns."""

    verdict: Verdict
    sentence: str = ""


_VERDICT_ORDER = (Verdict.SAME, Verdict.CHANGED, Verdict.MORE, Verdict.BESIDE, Verdict.OTHER)
_SINGLE_VALUE_SLOTS = frozenset({"home", "age", "job", "status"})
"""Slots that have one value at a time."""


def compare(known: KnownMemory, candidate: Candidate) -> TextComparison:
    """Compare a candidate with a memory of the same category."""
    if is_repeat(known, candidate):
        return TextComparison(Verdict.SAME, known.text)
    if not candidate.category.mergeable or known.category is not candidate.category:
        return TextComparison(Verdict.OTHER)
    results = [
        TextComparison(compare_sentences(sentence, candidate.text), sentence)
        for sentence in sentences(known.text)
    ]
    if candidate.valid_to is not None and candidate.valid_to <= candidate.said_at:
        # A statement about a past period says nothing about the present.
        results = [result for result in results if result.verdict is not Verdict.CHANGED]
    return min(
        results,
        key=lambda result: _VERDICT_ORDER.index(result.verdict),
        default=TextComparison(Verdict.OTHER),
    )


def is_repeat(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a candidate repeats a memory word for word; for events also the day."""
    if known.category is not candidate.category:
        return False
    if _token_key(known.text) != _token_key(candidate.text):
        return False
    if candidate.category is not Category.EVENTS:
        return True
    return _day(known.valid_from) == _day(candidate.valid_from)


@lru_cache(maxsize=4096)
def _token_key(text: str) -> tuple[str, ...]:
    return tuple(tokens(expand(text)))


def _day(moment: datetime | None) -> object:
    return moment and moment.date()


def compare_sentences(known: str, new: str) -> Verdict:
    """Compare one sentence with another.

    Two sentences that state the same fact are the same only if the new one has no word of its own:
    "I prefer short answers in German" says more than "I prefer short answers", and "I like C++"
    something else than "I like C".
    """
    if _token_key(known) == _token_key(new):
        return Verdict.SAME
    verdict = _compare_facts_or_terms(known, new)
    return Verdict.MORE if verdict is Verdict.SAME and not includes(known, new) else verdict


def _compare_facts_or_terms(known: str, new: str) -> Verdict:
    """Compare the facts of two sentences, or their terms where no rule finds a fact."""
    known_fact, new_fact = fact_of(known), fact_of(new)
    if known_fact is None or new_fact is None:
        return _compare_terms(known, new)
    if known_fact.category is Category.ENTITIES and new_fact.category is Category.ENTITIES:
        verdict = _compare_entities(known_fact, new_fact)
    else:
        verdict = _compare_facts(known_fact, new_fact)
    if verdict is not Verdict.SAME:
        return verdict
    added = _all_terms(new) - new_fact.frame - _all_terms(known) - known_fact.value
    return Verdict.MORE if added else Verdict.SAME


def _all_terms(text: str) -> Words:
    return frozenset(terms(expand(text)))


def includes(text: str, other: str) -> bool:
    """Return whether a text has every content token of another, in its order.

    The words a fact is put in may differ, as in "I live in Lisbon" and "My home is in Lisbon".
    """
    fact = fact_of(other)
    frame = fact.frame if fact else FRAME
    remaining = iter(content_tokens(expand(text)))
    return all(
        token in remaining for token in content_tokens(expand(other)) if stem(token) not in frame
    )


def covers(new: str, known: str) -> bool:
    """Return whether a new sentence says all that a known one says, in the same sense."""
    within = _all_terms(known) <= _all_terms(new) and includes(new, known)
    if not within or _narrows(known, new):
        return False
    return compare_sentences(known, new) in (Verdict.SAME, Verdict.MORE)


def _narrows(known: str, new: str) -> bool:
    """Return whether the words that a new sentence adds restrict it, or name something else.

    "I don't eat meat on Fridays" does not say that I don't eat meat, nor "I like Dune 2" that I
    like Dune.
    """
    known_tokens = frozenset(content_tokens(expand(known)))
    added = [token for token in content_tokens(expand(new)) if token not in known_tokens]
    if not added:
        return False
    only_numbers = all(map(is_number, added))
    return only_numbers or _negations(new) > 0 or not NARROWING.isdisjoint(added)


def _compare_facts(known: Fact, new: Fact) -> Verdict:
    if "stop" in (known.slot, new.slot):
        return _compare_stopped(known, new)
    if new.replaces and new.replaces == known.value:
        return Verdict.CHANGED
    if known.slot != new.slot or known.about != new.about:
        return Verdict.OTHER
    if known.value == new.value:
        return _compare_polarity(known, new)
    is_nested = _is_nested(known.value, new.value)
    if known.positive != new.positive:
        return Verdict.CHANGED if known.single and is_nested else Verdict.OTHER
    if is_nested:
        shorter = known.single and new.value < known.value
        return Verdict.SAME if shorter else Verdict.MORE
    if known.single and new.single and new.positive:
        return Verdict.CHANGED
    return Verdict.CHANGED if _only_numbers_differ(known.value, new.value) else Verdict.OTHER


def _compare_stopped(known: Fact, new: Fact) -> Verdict:
    if not _is_nested(known.value, new.value):
        return Verdict.OTHER
    if known.slot == new.slot:
        return Verdict.SAME
    return Verdict.CHANGED if known.positive or new.positive else Verdict.SAME


def _compare_entities(known: Fact, new: Fact) -> Verdict:
    if known.relation != new.relation:
        return Verdict.OTHER
    if known.about and new.about and not _is_nested(known.about, new.about):
        bare = not known.value and not new.value
        another = bare and new.positive and known.relation in ONE_AT_A_TIME
        return Verdict.CHANGED if another else Verdict.OTHER
    if not new.value:
        return Verdict.SAME if new.positive else Verdict.CHANGED
    if known.value == new.value and (known.slot == new.slot or not known.slot or not new.slot):
        return _compare_polarity(known, new)
    if known.slot != new.slot or known.positive != new.positive:
        return Verdict.BESIDE
    if known.value and known.value < new.value:
        return Verdict.MORE
    is_replaced = new.slot in _SINGLE_VALUE_SLOTS or (new.slot == "use" and new.change)
    if is_replaced or _only_numbers_differ(known.value, new.value):
        return Verdict.CHANGED
    return Verdict.BESIDE


def _compare_polarity(known: Fact, new: Fact) -> Verdict:
    return Verdict.SAME if known.positive == new.positive else Verdict.CHANGED


def _compare_terms(known: str, new: str) -> Verdict:
    known_terms, new_terms = _all_terms(known), _all_terms(new)
    if not known_terms or not new_terms:
        return Verdict.OTHER
    same_sense = _negations(known) % 2 == _negations(new) % 2
    if known_terms == new_terms:
        return Verdict.SAME if same_sense else Verdict.CHANGED
    if not same_sense:
        return Verdict.OTHER
    if _only_numbers_differ(known_terms, new_terms):
        return Verdict.CHANGED
    return (
        Verdict.MORE
        if known_terms < new_terms and len(new_terms) <= 2 * len(known_terms) > 2
        else Verdict.OTHER
    )


def _negations(text: str) -> int:
    return sum(word in NEGATIONS for word in words(expand(text)))


def _is_nested(one: Words, other: Words) -> bool:
    return one <= other or other <= one


def _only_numbers_differ(one: Words, other: Words) -> bool:
    differing = one ^ other
    return bool(one & other) and bool(differing) and all(map(is_number, differing))
