"""Grounding: the check of a model's claims against the messages they rest on.

A claim keeps its wording if all its content words occur together in one passage, in that order and
about the same person. A claim that is covered in part is replaced by the words of the passage, and
so is one that rests on a text that is not in English, because the rules do not know what negates
it. A claim is refused if it is not covered, rests on a question, a quotation or a supposition, or
gives instructions. So examples from the prompt, hallucinations and injected commands end here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sennit.memory.extraction.dedup import Verdict, compare_sentences
from sennit.memory.extraction.english.clauses import (
    clauses,
    content_terms,
    expand,
    is_injection,
    is_unsafe,
    stated_sentences,
    to_sentence,
)
from sennit.memory.extraction.english.dates import period
from sennit.memory.extraction.english.facts import Fact
from sennit.memory.extraction.english.rules import fact_of, is_instruction
from sennit.memory.extraction.extract import candidate_of, is_foreign
from sennit.memory.extraction.terms import FRAME, NEGATIONS, slug, stem, terms, words
from sennit.memory.extraction.utterances import ToolUse, Utterance, sentences, text_of
from sennit.memory.extraction.values import Candidate, Category, QuotedEvidence
from sennit.stores.search.tokenizer import STOP_WORDS

_BETWEEN_CLAUSES = re.compile(r"[.:;,!?\n](?=\s|$)|\n")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_CLAIM_CHARS = 1000
_MAX_PASSAGE_SENTENCES = 3
_MIN_COVERAGE = 0.5


@dataclass(frozen=True, slots=True)
class Claim:
    """A memory that a model proposes."""

    category: str
    content: str
    evidence: tuple[int, ...]

    @classmethod
    def of(cls, item: Any) -> Claim | None:
        """Return the claim in an item of a model's answer; None if it has another form."""
        match item:
            case {"category": str(category), "content": str(content), **rest}:
                cited = rest.get("evidence")
                numbers = cast("list[Any]", cited if isinstance(cited, list) else [cited])
                return cls(category, content, tuple(n for n in numbers if type(n) is int))
            case _:
                return None


@dataclass(frozen=True, slots=True)
class _Passage:
    """Consecutive sentences of one message."""

    source: Utterance
    text: str
    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of a message that states about one thing."""

    words: frozenset[str]
    terms: frozenset[str]
    negated: bool
    foreign: bool
    """Whether it is in a language whose negations the rules do not know."""

    @classmethod
    def of(cls, text: str, *, foreign: bool) -> _Clause:
        content = frozenset(terms(expand(text)))
        return cls(frozenset(words(text)), content, _is_negated(text), foreign)

    def has_sense_of(self, claim: str) -> bool:
        """Return whether a claim with these terms has the polarity; if foreign, all words."""
        if self.foreign:
            return self.words <= frozenset(words(claim))
        return self.negated == _is_negated(claim)


class EvidenceChecker:
    """Checks claims against the sentences of one transcript."""

    def __init__(self, items: Mapping[int, Utterance | ToolUse]) -> None:
        self._items = items
        self._passages = {number: list(_passages(item)) for number, item in items.items()}
        self._clauses_by_number: dict[int, list[_Clause]] = {}

    def candidate(self, claim: Claim) -> Candidate | str:
        """Return the claim as a candidate in words that were said, or why it is refused."""
        text = " ".join(_CONTROL.sub(" ", claim.content).split())[:_MAX_CLAIM_CHARS]
        if not text or is_injection(text) or is_unsafe(text):
            return "it is empty, or contains instructions or a secret"
        claim_terms = content_terms(text)
        category = _category(claim.category, text)
        if (
            claim.category in _AGENT_CATEGORIES
            and is_instruction(text)
            and self._is_agent_statement(claim, claim_terms)
        ):
            category = Category(claim.category)
        if category is not None and category.owner == "agent":
            return self._agent_candidate(category, text, claim_terms, claim)
        passage, coverage = self._best_passage(claim, claim_terms)
        if passage is None or coverage < _MIN_COVERAGE:
            return "the user did not say so"
        category = category or _category("", passage.text)
        if category is None:
            return f"there is no category {claim.category!r}"
        if coverage < 1 or not _same_sense(text, passage.text):
            return _verbatim(category, passage)
        return _candidate(category, to_sentence(text), passage)

    def _best_passage(
        self, claim: Claim, claim_terms: frozenset[str]
    ) -> tuple[_Passage | None, float]:
        """Return the user's passage that covers most of a claim: of those cited, else of all."""
        best: tuple[_Passage | None, float] = (None, 0.0)
        for numbers in (claim.evidence, self._passages):
            for passage in (passage for n in numbers for passage in self._passages.get(n, ())):
                coverage = _coverage(claim_terms, passage.terms)
                if coverage > best[1]:
                    best = (passage, coverage)
            if best[1] >= _MIN_COVERAGE:
                break
        return best

    def _is_agent_statement(self, claim: Claim, claim_terms: frozenset[str]) -> bool:
        """Return whether a cited message of the assistant or a tool states all of a claim.

        "Always run the tests, then push" is a preference if the user says so, and a pattern if the
        assistant does.
        """
        cited = (self._items[n] for n in claim.evidence if n in self._items)
        others = (item for item in cited if isinstance(item, ToolUse) or item.speaker != "user")
        cited_terms = (frozenset(terms(expand(text_of(item)))) for item in others)
        return any(_coverage(claim_terms, item_terms) == 1 for item_terms in cited_terms)

    def _split_clauses(self, number: int) -> list[_Clause]:
        """Return the clauses of the item with a number, if there is one."""
        if number in self._items and number not in self._clauses_by_number:
            text = text_of(self._items[number])
            foreign = is_foreign(text)
            self._clauses_by_number[number] = [
                _Clause.of(clause, foreign=foreign) for clause in _split_clauses(text)
            ]
        return self._clauses_by_number.get(number, [])

    def _agent_candidate(
        self, category: Category, text: str, claim_terms: frozenset[str], claim: Claim
    ) -> Candidate | str:
        """Return a case or pattern; all its words must occur in the messages it cites."""
        cited = [self._items[n] for n in claim.evidence if n in self._items]
        texts = [text_of(item) for item in cited]
        if not cited or any(map(is_injection, texts)):
            return "it cites no message that can be trusted"
        if _coverage(claim_terms, frozenset(terms(" ".join(map(expand, texts))))) < 1:
            return "its evidence does not say so"
        if _is_opposite(
            text, [clause for n in claim.evidence for clause in self._split_clauses(n)]
        ):
            return "it contradicts its evidence"
        return Candidate(
            category=category,
            text=to_sentence(text),
            slug=slug(" ".join(text.split()[:8])),
            evidence=tuple(QuotedEvidence(item.message_id) for item in cited),
            said_at=cited[-1].at,
        )


_FIRST_PERSON = frozenset({"i", "we"})
_REPORTING_TERMS = frozenset(
    map(stem, ("user", "person", "has", "is", "said", "mentioned", "stated"))
)
"""Terms that claims about the user are put in, whatever they state."""
_CATEGORIES = frozenset(map(str, Category))
_AGENT_CATEGORIES = frozenset(str(category) for category in Category if category.owner == "agent")


def _passages(source: Utterance | ToolUse) -> Iterator[_Passage]:
    """Yield the user's statements, one to three consecutive sentences, shortest first."""
    if isinstance(source, ToolUse) or source.speaker != "user":
        return
    statements = list(stated_sentences(source))
    for size in range(1, min(_MAX_PASSAGE_SENTENCES, len(statements)) + 1):
        for first in range(len(statements) - size + 1):
            text = " ".join(statements[first : first + size])
            yield _Passage(source, text, frozenset(terms(expand(text))))


def _coverage(claim_terms: frozenset[str], passage_terms: frozenset[str]) -> float:
    """Return the share of a claim's content terms that occur in a passage."""
    return len(claim_terms & passage_terms) / len(claim_terms) if claim_terms else 0.0


def _same_sense(claim: str, passage: str) -> bool:
    """Return whether a claim keeps the polarity, the subject and the word order of a passage."""
    if not _is_english(passage) or _is_negated(claim) != _is_negated(passage):
        return False
    if not _states_the_same(claim, passage):
        return False
    verdict = compare_sentences(passage, claim)
    same_fact = fact_of(passage) is not None and verdict in (Verdict.SAME, Verdict.MORE)
    same_person = same_fact or _is_of_user(passage) or not _is_of_user(claim)
    if verdict is Verdict.CHANGED or not same_person:
        return False
    order = iter(terms(expand(passage)))
    return all(term in order for term in terms(expand(claim)) if term not in FRAME)


def _states_the_same(claim: str, passage: str) -> bool:
    """Return whether a claim states the same of its words as a passage.

    "I visited Paris" has every content word of "The user lives in Paris", and does not say so. A
    fact that rules know must be the same fact; else the claim must use words of the passage.
    """
    claim_fact, claim_terms = fact_of(claim), frozenset(terms(expand(claim)))
    parts = [part for sentence in sentences(passage) for part in (sentence, *clauses(sentence))]
    facts = [fact for part in parts if (fact := fact_of(part)) is not None]
    if claim_fact is not None and facts:
        return any(_is_same_fact(claim_fact, fact) for fact in facts)
    is_framed = not facts or any(fact.frame & claim_terms for fact in facts)
    return is_framed and (claim_terms & FRAME) - _REPORTING_TERMS <= frozenset(
        terms(expand(passage))
    )


def _is_same_fact(claimed: Fact, stated: Fact) -> bool:
    if (claimed.slot, claimed.relation) != (stated.slot, stated.relation):
        return False
    if claimed.slot == "prefer":  # what is preferred, and to what
        return claimed.value == stated.value
    return claimed.value <= stated.value | stated.about


def _split_clauses(text: str) -> list[str]:
    return [clause for clause in _BETWEEN_CLAUSES.split(text) if clause.strip()]


def _is_opposite(claim: str, cited: Sequence[_Clause]) -> bool:
    """Return whether a clause of a claim has the terms of a cited one but not its polarity."""
    for clause in _split_clauses(claim):
        clause_terms = content_terms(clause)
        same_terms = [
            cited_clause
            for cited_clause in cited
            if clause_terms and clause_terms <= cited_clause.terms
        ]
        if same_terms and not any(cited_clause.has_sense_of(clause) for cited_clause in same_terms):
            return True
    return False


def _is_english(text: str) -> bool:
    """Return whether the rules know the language of a text, and so its negations."""
    text_words = words(expand(text))
    return fact_of(text) is not None or sum(map(STOP_WORDS.__contains__, text_words)) * 3 >= len(
        text_words
    )


def _is_of_user(text: str) -> bool:
    """Return whether the speaker, or "the user", is the subject of a text."""
    return not _FIRST_PERSON.isdisjoint(words(expand(text)))


def _is_negated(text: str) -> bool:
    return not NEGATIONS.isdisjoint(words(expand(text)))


def _category(claimed: str, text: str) -> Category | None:
    """Return the category of a memory; user facts known to the rules never become the agent's."""
    fact = fact_of(text)
    if claimed not in _CATEGORIES:
        return fact and fact.category
    category = Category(claimed)
    if category.owner == "agent" and fact is not None and fact.category.owner == "user":
        return fact.category
    return category


def _verbatim(category: Category, passage: _Passage) -> Candidate:
    """Return a candidate in the words of the passage instead of the model's."""
    fact = fact_of(passage.text)
    if fact is not None:
        return candidate_of(fact, passage.text, passage.source)
    return _candidate(category, to_sentence(passage.text), passage)


def _candidate(category: Category, text: str, passage: _Passage) -> Candidate:
    when = period(passage.text, passage.source.at)
    fact = fact_of(text)
    dated = when.start.date().isoformat() if category is Category.EVENTS and when.start else ""
    return Candidate(
        category=category,
        text=text,
        slug=slug(dated, fact.label if fact else " ".join(text.split()[:8])),
        evidence=(QuotedEvidence(passage.source.message_id, passage.text),),
        said_at=passage.source.at,
        valid_from=when.start,
        valid_to=when.end,
    )
