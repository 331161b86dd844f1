"""Grounding: claims of a model are checked against the messages they rest on.

A claim whose content words all stand together in what was said, in that order and about the same
person, keeps its wording. One that is partly covered is replaced by the words that were said, and
so is one that rests on a text in another language than English: what turns a sentence into its
opposite there is a word that the rules do not know. One that is not covered, that rests on a
question, a quotation or a supposition, or that gives orders, is refused. So examples from the
prompt, inventions and injected commands end here, whatever the model thought of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sennit.memory.extraction.clauses import (
    clauses,
    content_terms,
    expand_contractions,
    is_injection,
    is_unsafe,
    stated_sentences,
    to_sentence,
)
from sennit.memory.extraction.compare import Verdict, compare_sentences
from sennit.memory.extraction.dates import period
from sennit.memory.extraction.extract import candidate_of, is_foreign
from sennit.memory.extraction.facts import Fact
from sennit.memory.extraction.rules import fact_of, is_instruction
from sennit.memory.extraction.terms import FRAME, NEGATIONS, slug, stem, terms, words
from sennit.memory.extraction.transcript import text_of
from sennit.memory.extraction.utterances import ToolUse, Utterance, sentences
from sennit.memory.extraction.values import Candidate, Category, QuotedEvidence
from sennit.stores.search.tokenizer import STOP_WORDS

_BETWEEN_CLAUSES = re.compile(r"[.:;,!?\n](?=\s|$)|\n")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 1000
_WINDOW = 3
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Claim:
    """A memory that a model proposes."""

    category: str
    content: str
    evidence: tuple[int, ...]

    @classmethod
    def of(cls, item: Any) -> Claim | None:
        """The claim in an answer's item; None if it is none."""
        match item:
            case {"category": str(category), "content": str(content), **rest}:
                cited = rest.get("evidence")
                numbers = cast("list[Any]", cited if isinstance(cited, list) else [cited])
                return cls(category, content, tuple(n for n in numbers if type(n) is int))
            case _:
                return None


@dataclass(frozen=True, slots=True)
class _Passage:
    """Some sentences that stand together in one message."""

    source: Utterance
    text: str
    terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of what was said that says one thing, about."""

    words: frozenset[str]
    terms: frozenset[str]
    negated: bool
    foreign: bool
    """Whether it is in a language of which the rules do not know what negates it."""

    @classmethod
    def of(cls, text: str, *, foreign: bool) -> _Clause:
        said = frozenset(terms(expand_contractions(text)))
        return cls(frozenset(words(text)), said, _negated(text), foreign)

    def has_sense_of(self, claim: str) -> bool:
        """Return whether a claim with these words says the same; in a foreign language, with all
        words.
        """
        if self.foreign:
            return self.words <= frozenset(words(claim))
        return self.negated == _negated(claim)


class EvidenceChecker:
    """Checks claims against the sentences of one transcript."""

    def __init__(self, shown: Mapping[int, Utterance | ToolUse]) -> None:
        self._shown = shown
        self._passages = {number: list(_passages(one)) for number, one in shown.items()}
        self._split: dict[int, list[_Clause]] = {}

    def candidate(self, claim: Claim) -> Candidate | str:
        """The claim as a candidate, in words that were said; or why it was refused."""
        text = " ".join(_CONTROL.sub(" ", claim.content).split())[:_LONGEST]
        if not text or is_injection(text) or is_unsafe(text):
            return "it is empty, gives orders or holds a secret"
        wanted = content_terms(text)
        category = _category(claim.category, text)
        if claim.category in _AGENTS and is_instruction(text) and self._agent_said(claim, wanted):
            category = Category(claim.category)
        if category is not None and category.owner == "agent":
            return self._of_agent(category, text, wanted, claim)
        passage, share = self._best(claim, wanted)
        if passage is None or share < _ENOUGH:
            return "the user did not say so"
        category = category or _category("", passage.text)
        if category is None:
            return f"there is no category {claim.category!r}"
        if share < 1 or not _same_sense(text, passage.text):
            return _verbatim(category, passage)
        return _candidate(category, to_sentence(text), passage)

    def _best(self, claim: Claim, wanted: frozenset[str]) -> tuple[_Passage | None, float]:
        """The passage of the user that covers most: among those cited, else among all."""
        best: tuple[_Passage | None, float] = (None, 0.0)
        for numbers in (claim.evidence, self._passages):
            for passage in (one for n in numbers for one in self._passages.get(n, ())):
                share = _share(wanted, passage.terms)
                if share > best[1]:
                    best = (passage, share)
            if best[1] >= _ENOUGH:
                break
        return best

    def _agent_said(self, claim: Claim, wanted: frozenset[str]) -> bool:
        """Return whether a message of the assistant or of a tool that is cited says all of a claim.

        "Always run the tests, then push" is a preference if the user says so, and a pattern if the
        assistant does.
        """
        cited = (self._shown[n] for n in claim.evidence if n in self._shown)
        others = (one for one in cited if isinstance(one, ToolUse) or one.speaker != "user")
        said = (frozenset(terms(expand_contractions(text_of(one)))) for one in others)
        return any(_share(wanted, one) == 1 for one in said)

    def _clauses(self, number: int) -> list[_Clause]:
        """The clauses of what was shown under a number, if anything was."""
        if number in self._shown and number not in self._split:
            said = text_of(self._shown[number])
            foreign = is_foreign(said)
            self._split[number] = [_Clause.of(one, foreign=foreign) for one in _clauses(said)]
        return self._split.get(number, [])

    def _of_agent(
        self, category: Category, text: str, wanted: frozenset[str], claim: Claim
    ) -> Candidate | str:
        """A case or pattern: every word of it must stand in the messages it cites."""
        cited = [self._shown[n] for n in claim.evidence if n in self._shown]
        said = [text_of(one) for one in cited]
        if not cited or any(map(is_injection, said)):
            return "it cites nothing that could be relied on"
        if _share(wanted, frozenset(terms(" ".join(map(expand_contractions, said))))) < 1:
            return "it says what its evidence does not"
        if _is_opposite(text, [one for n in claim.evidence for one in self._clauses(n)]):
            return "it says the opposite of its evidence"
        return Candidate(
            category=category,
            text=to_sentence(text),
            slug=slug(" ".join(text.split()[:8])),
            evidence=tuple(QuotedEvidence(one.message_id) for one in cited),
            said_at=cited[-1].at,
        )


_SPEAKER = frozenset({"i", "we"})
_REPORTING = frozenset(map(stem, ("user", "person", "has", "is", "said", "mentioned", "stated")))
"""Words that a claim about the user is put in, whatever it says."""
_CATEGORIES = frozenset(map(str, Category))
_AGENTS = frozenset(str(one) for one in Category if one.owner == "agent")


def _passages(source: Utterance | ToolUse) -> Iterator[_Passage]:
    """Yield the user's statements, one to three consecutive sentences, shortest first."""
    if isinstance(source, ToolUse) or source.speaker != "user":
        return
    own = list(stated_sentences(source))
    for size in range(1, min(_WINDOW, len(own)) + 1):
        for first in range(len(own) - size + 1):
            text = " ".join(own[first : first + size])
            yield _Passage(source, text, frozenset(terms(expand_contractions(text))))


def _share(wanted: frozenset[str], said: frozenset[str]) -> float:
    """Return the share of a claim's content words that occur in a passage."""
    return len(wanted & said) / len(wanted) if wanted else 0.0


def _same_sense(claim: str, said: str) -> bool:
    """Return whether a claim does not turn what was said into its opposite, or say it of someone
    else.
    """
    if not _is_english(said) or _negated(claim) != _negated(said):
        return False
    if not _states_the_same(claim, said):
        return False
    verdict = compare_sentences(said, claim)
    same_fact = fact_of(said) is not None and verdict in (Verdict.SAME, Verdict.MORE)
    same_person = same_fact or _is_of_user(said) or not _is_of_user(claim)
    if verdict is Verdict.CHANGED or not same_person:
        return False
    order = iter(terms(expand_contractions(said)))
    return all(one in order for one in terms(expand_contractions(claim)) if one not in FRAME)


def _states_the_same(claim: str, said: str) -> bool:
    """Return whether a claim says of its words what was said of them.

    "I visited Paris" has every content word of "The user lives in Paris", and does not say so. What
    rules know to be a fact must be the same fact; else the claim must be put in words that were
    said.
    """
    told, put_in = fact_of(claim), frozenset(terms(expand_contractions(claim)))
    parts = [part for one in sentences(said) for part in (one, *clauses(one))]
    facts = [fact for one in parts if (fact := fact_of(one)) is not None]
    if told is not None and facts:
        return any(_is_same_fact(told, one) for one in facts)
    framed = not facts or any(one.frame & put_in for one in facts)
    return framed and (put_in & FRAME) - _REPORTING <= frozenset(terms(expand_contractions(said)))


def _is_same_fact(told: Fact, said: Fact) -> bool:
    if (told.slot, told.relation) != (said.slot, said.relation):
        return False
    if told.slot == "prefer":  # what is preferred, and to what
        return told.value == said.value
    return told.value <= said.value | said.about


def _clauses(text: str) -> list[str]:
    return [one for one in _BETWEEN_CLAUSES.split(text) if one.strip()]


def _is_opposite(claim: str, said: Sequence[_Clause]) -> bool:
    """Return whether a clause of a claim has the words of what was said, but not its sense."""
    for part in _clauses(claim):
        wanted = content_terms(part)
        saying = [one for one in said if wanted and wanted <= one.terms]
        if saying and not any(one.has_sense_of(part) for one in saying):
            return True
    return False


def _is_english(text: str) -> bool:
    """Return whether the rules know the language of a text, and so what negates it."""
    found = words(expand_contractions(text))
    return fact_of(text) is not None or sum(map(STOP_WORDS.__contains__, found)) * 3 >= len(found)


def _is_of_user(text: str) -> bool:
    """Return whether the one who speaks, or is called the user, does something in a text."""
    return not _SPEAKER.isdisjoint(words(expand_contractions(text)))


def _negated(text: str) -> bool:
    return not NEGATIONS.isdisjoint(words(expand_contractions(text)))


def _category(claimed: str, said: str) -> Category | None:
    """Return the category of a memory; user facts known to the rules never become the agent's."""
    fact = fact_of(said)
    if claimed not in _CATEGORIES:
        return fact and fact.category
    category = Category(claimed)
    if category.owner == "agent" and fact is not None and fact.category.owner == "user":
        return fact.category
    return category


def _verbatim(category: Category, passage: _Passage) -> Candidate:
    """Return the quoted words in place of the model's wording."""
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
