"""Rule-based extraction of memories, without a model.

Statements of the user about themselves, others and events become user memories, clause by clause,
in the user's own words. What the assistant says about the user is never extracted. Solved problems
and patterns of tool use become memories of the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sennit.memory.extraction.cases import cases
from sennit.memory.extraction.english.clauses import is_injection, own_statements, to_sentence
from sennit.memory.extraction.english.dates import Period, period
from sennit.memory.extraction.english.rules import Fact, fact_of
from sennit.memory.extraction.patterns import patterns
from sennit.memory.extraction.terms import slug, words
from sennit.memory.extraction.utterances import Utterance, Utterances
from sennit.memory.extraction.values import Candidate, Category, Extraction, QuotedEvidence
from sennit.stores.search.tokenizer import STOP_WORDS

_UNDATED_SLOTS = frozenset({"birthday", "age"})
"""Slots in which a date is the value, not a validity."""

# A line of a program rather than of prose: signs that sentences do not have, or a statement.
_CODE_LINE = re.compile(
    r"^.*(?:[{}=]|\w\(|\w\[|\)\s*:|;\s*$).*$"
    r"|^(?: {4}|\t).*$"
    r"|^\s*(?:(?:def|class|import|from|return|else|try|finally|pass)\b|@\w|#|//).*$",
    re.MULTILINE,
)


def extract_by_rules(conversation: Utterances) -> Extraction:
    """Return all candidates that rules find: the user's statements, then cases and patterns."""
    users = [utterance for utterance in conversation.utterances if utterance.speaker == "user"]
    candidates = [candidate for utterance in users for candidate in extract_facts(utterance)]
    candidates += cases(conversation)
    candidates += patterns(conversation)
    return Extraction(candidates=tuple(candidates), warnings=tuple(_warnings(users)))


def extract_facts(utterance: Utterance) -> Iterator[Candidate]:
    """Yield a candidate for each fact that a user utterance states."""
    for clause in own_statements(utterance):
        fact = fact_of(clause)
        if fact is not None:
            yield candidate_of(fact, clause, utterance)


def candidate_of(fact: Fact, clause: str, utterance: Utterance) -> Candidate:
    """Return a fact as a candidate, in the words in which it was stated."""
    when = Period() if fact.slot in _UNDATED_SLOTS else period(clause, utterance.at)
    return Candidate(
        category=fact.category,
        text=to_sentence(clause),
        slug=slug_of(fact, when),
        evidence=(QuotedEvidence(utterance.message_id, clause.strip()),),
        said_at=utterance.at,
        valid_from=when.start,
        valid_to=when.end,
    )


def slug_of(fact: Fact, when: Period) -> str:
    """Return a file name for a fact; for a dated event it begins with the date."""
    if fact.category is Category.EVENTS and when.start is not None:
        return slug(when.start.date().isoformat(), fact.label)
    return slug(fact.label)


def _warnings(users: Iterable[Utterance]) -> Iterator[str]:
    injections = sum(is_injection(utterance.text) for utterance in users)
    if injections:
        subject = "1 message contains" if injections == 1 else f"{injections} messages contain"
        source = "it" if injections == 1 else "them"
        yield f"{subject} instructions to the memory; nothing was extracted from {source}."
    foreign = sum(is_foreign(utterance.text) for utterance in users)
    if foreign:
        subject = "1 message seems" if foreign == 1 else f"{foreign} messages seem"
        yield f"{subject} not to be in English; rule-based extraction supports English only."


def is_foreign(text: str) -> bool:
    prose_words = words(_CODE_LINE.sub("", text[:2000]))
    english = sum(map(STOP_WORDS.__contains__, prose_words))
    return len(prose_words) > 4 and english * 8 < len(prose_words)
