"""Rule-based extraction of memories, without a model.

What the user says of themselves, of others and of what happened becomes user memories, clause by
clause, in the user's own words. Only users speak for themselves: what the assistant says of them is
never taken. Problems that were solved and tools that were learnt become the agent's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sennit.memory.extraction.cases import cases
from sennit.memory.extraction.clauses import is_injection, own_statements, to_sentence
from sennit.memory.extraction.dates import Period, period
from sennit.memory.extraction.facts import Fact
from sennit.memory.extraction.patterns import patterns
from sennit.memory.extraction.rules import fact_of
from sennit.memory.extraction.terms import slug, words
from sennit.memory.extraction.utterances import Utterance, Utterances
from sennit.memory.extraction.values import Candidate, Category, Extraction, QuotedEvidence
from sennit.stores.search.tokenizer import STOP_WORDS

_UNDATED = frozenset({"birthday", "age"})
"""Facts in which a date says what, not since when."""

# A line of a program rather than of prose: signs that sentences do not have, or a statement.
_CODE_LINE = re.compile(
    r"^.*(?:[{}=]|\w\(|\w\[|\)\s*:|;\s*$).*$"
    r"|^(?: {4}|\t).*$"
    r"|^\s*(?:(?:def|class|import|from|return|else|try|finally|pass)\b|@\w|#|//).*$",
    re.MULTILINE,
)


def extract_by_rules(conversation: Utterances) -> Extraction:
    """All that rules find, in the order in which it was said."""
    users = [one for one in conversation.utterances if one.speaker == "user"]
    found = [candidate for one in users for candidate in extract_facts(one)]
    found += cases(conversation)
    found += patterns(conversation)
    return Extraction(candidates=tuple(found), warnings=tuple(_warnings(users)))


def extract_facts(utterance: Utterance) -> Iterator[Candidate]:
    """Return the facts that one user utterance states."""
    for clause in own_statements(utterance):
        fact = fact_of(clause)
        if fact is not None:
            yield candidate_of(fact, clause, utterance)


def candidate_of(fact: Fact, clause: str, utterance: Utterance) -> Candidate:
    """A fact as a candidate, in the words in which it was stated."""
    when = Period() if fact.slot in _UNDATED else period(clause, utterance.at)
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
    """Return a file name for a fact; that of an event begins with its date."""
    if fact.category is Category.EVENTS and when.start is not None:
        return slug(when.start.date().isoformat(), fact.label)
    return slug(fact.label)


def _warnings(users: Iterable[Utterance]) -> Iterator[str]:
    orders = sum(is_injection(one.text) for one in users)
    if orders:
        told = "1 message contains" if orders == 1 else f"{orders} messages contain"
        yield f"{told} instructions to the memory; nothing was extracted from {_them(orders)}."
    foreign = sum(is_foreign(one.text) for one in users)
    if foreign:
        seem = "1 message seems" if foreign == 1 else f"{foreign} messages seem"
        yield f"{seem} not to be in English; rule-based extraction supports English only."


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def is_foreign(text: str) -> bool:
    said = words(_CODE_LINE.sub("", text[:2000]))
    english = sum(map(STOP_WORDS.__contains__, said))
    return len(said) > 4 and english * 8 < len(said)
