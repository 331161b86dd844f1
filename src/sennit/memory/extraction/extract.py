"""Rule-based extraction of memories, without a model.

Statements of the user about themselves, others and events become user memories, clause by clause,
in the user's own words. What the assistant says about the user is never extracted.

Solved problems and patterns of tool use become memories of the agent. A case needs both parts: a
user states a problem, and later either how it was solved or that the assistant's advice has worked.
Of tool use only success teaches, and one success is no pattern: it takes a failed call that another
call of the same tool corrects, or the same two tools in a row in two requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import filterfalse, pairwise

from sennit.memory.extraction.english.clauses import (
    clauses,
    expand,
    is_injection,
    is_unsafe,
    stated_sentences,
    to_sentence,
)
from sennit.memory.extraction.english.dates import Period, period
from sennit.memory.extraction.english.facts import Fact
from sennit.memory.extraction.english.referents import is_dangling, person_in, with_person
from sennit.memory.extraction.english.rules import fact_of
from sennit.memory.extraction.terms import slug, words
from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.memory.extraction.values import (
    Candidate,
    Category,
    Extraction,
    QuotedEvidence,
    abstract_of,
)
from sennit.messages.codec import dumps
from sennit.stores.search.tokenizer import STOP_WORDS

_UNDATED_SLOTS = frozenset({"birthday", "age"})
"""Slots in which a date is the value, not a validity."""
_ADDRESSED_SLOTS = frozenset({"instruct", "answer", "keep", "do", "prefer", "like", "name"})
"""Slots of statements to the assistant, in which "you" is clear."""

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
    """Yield a candidate for each fact that a user utterance states.

    A clause about "she" takes the person named in the sentence before; one that refers to anything
    else outside of itself is left out.
    """
    before, person = "", None
    for sentence in stated_sentences(utterance):
        for clause in clauses(sentence):
            resolved = person and with_person(clause, person)
            if resolved:
                fact, quote = fact_of(resolved), f"{before} {clause.strip()}"
                if fact is not None and not is_dangling(resolved):
                    yield candidate_of(fact, resolved, utterance, quote=quote)
                continue
            fact = fact_of(clause)
            if fact is not None and not _is_meaningless_alone(fact, clause):
                yield candidate_of(fact, clause, utterance)
            named = person_in(clause)
            before, person = (clause.strip(), named) if named else (before, person)


def _is_meaningless_alone(fact: Fact, clause: str) -> bool:
    """Return whether a fact refers to something that only the conversation names."""
    to_assistant = fact.slot in _ADDRESSED_SLOTS or fact.category is Category.PATTERNS
    return is_dangling(clause, to_assistant=to_assistant)


def candidate_of(fact: Fact, clause: str, utterance: Utterance, *, quote: str = "") -> Candidate:
    """Return a fact as a candidate, in the words in which it was stated."""
    when = Period() if fact.slot in _UNDATED_SLOTS else period(clause, utterance.at)
    return Candidate(
        category=fact.category,
        text=to_sentence(clause),
        slug=slug_of(fact, when),
        evidence=(QuotedEvidence(utterance.message_id, quote or clause.strip()),),
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
        yield (
            f"{subject} not to be in English. The rules read English only; set a model "
            "with client.memory.use(model=...) to remember other languages."
        )


def is_foreign(text: str) -> bool:
    prose_words = words(_CODE_LINE.sub("", text[:2000]))
    # A single letter is a rest of "m'appelle" as well as of "I'm".
    english = sum(word in STOP_WORDS and (len(word) > 1 or word in "ai") for word in prose_words)
    return len(prose_words) > 4 and english * 8 < len(prose_words)


_I = re.IGNORECASE
_PROBLEM = re.compile(
    r"\b(?:errors?|exception|traceback|fail(?:s|ed|ing|ure)?|crash(?:es|ed|ing)?|broken|bug|"
    r"(?:does|do|did|is|will) not (?:work|start|load|open|compile|build|run|connect|respond)\w*|"
    r"not working|can not (?!stand)|unable to|stuck|timeout|timed out|hangs?|denied|refused)\b",
    _I,
)
_SOLVED = re.compile(
    r"\b(?:(?:I|we) (?:have )?(?:fixed|solved|resolved) (?:it|this|that|the \w+) (?:by|with)|"
    r"the (?:fix|solution|cause|problem|culprit) (?:is|was)|(?:it|this) works (?:now )?"
    r"(?:after|once|because|when|with|if)|turns out (?:that )?(?:it|I|we|the))\b",
    _I,
)
_CONFIRMED = re.compile(
    r"\b(?:that|this|it) (?:has )?(?:worked|works|fixed it|solved it|did it|did the trick|helped|"
    r"solved the \w+|fixed the \w+)\b|\bworks now\b|\bproblem solved\b|^fixed\b|^solved\b|"
    r"\ball (?:tests )?(?:pass|green)(?:es)? now\b",
    _I,
)
_DOUBT = re.compile(r"\b(?:not|never|still|but|if|unless)\b|\?", _I)
_MAX_ADVICE_CHARS = 400


@dataclass(frozen=True, slots=True)
class _Statement:
    utterance: Utterance
    sentence: str

    @property
    def evidence(self) -> QuotedEvidence:
        return QuotedEvidence(self.utterance.message_id, self.sentence)


@lru_cache(maxsize=4096)
def is_problem(sentence: str) -> bool:
    """Return whether a sentence says that something does not work."""
    return _PROBLEM.search(expand(sentence)) is not None


@lru_cache(maxsize=4096)
def is_solution(sentence: str) -> bool:
    """Return whether a sentence says how a problem was solved, or that it was."""
    text = expand(sentence)
    return _SOLVED.search(text) is not None or (
        _CONFIRMED.search(text) is not None and _DOUBT.search(text) is None
    )


def cases(conversation: Utterances) -> Iterator[Candidate]:
    """Yield the problems that were solved, each with its solution."""
    problem: _Statement | None = None
    proposed: _Statement | None = None
    for item in conversation.items:
        if isinstance(item, ToolUse) or is_injection(item.text):
            continue
        if item.speaker == "assistant":
            proposed = (problem and _proposal(item)) or proposed
            continue
        for sentence in filterfalse(is_unsafe, item.sentences):
            solved = problem is not None and is_solution(sentence)
            solution = _solution(_Statement(item, sentence), proposed) if solved else None
            if problem and solution:
                yield _case(problem, solution, _Statement(item, sentence))
                problem = proposed = None
            elif is_problem(sentence):
                problem, proposed = _Statement(item, sentence), None


def _solution(statement: _Statement, proposed: _Statement | None) -> _Statement | None:
    """Return the statement that explains the solution, else the assistant's advice."""
    return statement if _SOLVED.search(expand(statement.sentence)) else proposed


def _proposal(utterance: Utterance) -> _Statement | None:
    """Return the assistant's advice: its first sentences that are not questions."""
    sentences = [sentence for sentence in utterance.sentences if not sentence.endswith("?")]
    advice = " ".join(sentences[:3])[:_MAX_ADVICE_CHARS]
    return _Statement(utterance, advice) if advice and not is_unsafe(advice) else None


def _case(problem: _Statement, solution: _Statement, confirmed: _Statement) -> Candidate:
    evidence = dict.fromkeys((problem.evidence, solution.evidence, confirmed.evidence))
    return Candidate(
        category=Category.CASES,
        text=f"Problem: {to_sentence(problem.sentence)} Solution: {to_sentence(solution.sentence)}",
        slug=slug(" ".join(problem.sentence.split()[:10])),
        evidence=tuple(evidence),
        said_at=confirmed.utterance.at,
    )


_MAX_CHARS = 160


def patterns(conversation: Utterances) -> Iterator[Candidate]:
    """Yield patterns learnt from the tool calls of a conversation."""
    for candidate in (*_corrected_calls(conversation.tool_uses), *_call_sequences(conversation)):
        if not is_unsafe(candidate.text) and not is_injection(candidate.text):
            yield candidate


def _corrected_calls(uses: list[ToolUse]) -> Iterator[Candidate]:
    failed: dict[str, ToolUse] = {}
    for use in uses:
        before = failed.pop(use.name, None)
        if not use.success:
            failed[use.name] = use
        elif before is not None and before.arguments != use.arguments:
            text = (
                f"Tool {use.name}: {_to_text(before.arguments)} failed "
                f"({abstract_of(before.result, _MAX_CHARS)}); {_to_text(use.arguments)} worked."
            )
            yield _candidate(
                text, slug(use.name, "works with", _to_text(use.arguments)), before, use
            )


def _call_sequences(conversation: Utterances) -> Iterator[Candidate]:
    """Yield pairs of tools that succeeded one right after the other, in more than one request."""
    seen: dict[tuple[str, str], ToolUse] = {}
    reported: set[tuple[str, str]] = set()
    for request in _successful_calls(conversation):
        pairs = {
            (first.name, second.name): second
            for first, second in pairwise(request)
            if first.name != second.name
        }
        for pair, use in pairs.items():
            if pair in seen and pair not in reported:
                reported.add(pair)
                text = f"Tool {pair[0]}, then tool {pair[1]}, worked in more than one request."
                yield _candidate(text, slug(pair[0], "then", pair[1]), seen[pair], use)
            seen.setdefault(pair, use)


def _successful_calls(conversation: Utterances) -> Iterator[list[ToolUse]]:
    """Yield the successful tool calls of each request of the user."""
    uses: list[ToolUse] = []
    for item in conversation.items:
        if isinstance(item, Utterance) and item.speaker == "user":
            yield uses
            uses = []
        elif isinstance(item, ToolUse) and item.success:
            uses.append(item)
    yield uses


def _candidate(text: str, name: str, *uses: ToolUse) -> Candidate:
    evidence = tuple(
        QuotedEvidence(id, use.name) for use in uses for id in (use.message_id, use.result_id)
    )
    return Candidate(
        category=Category.PATTERNS, text=text, slug=name, evidence=evidence, said_at=uses[-1].at
    )


def _to_text(arguments: dict[str, object]) -> str:
    return abstract_of(dumps(arguments).decode(), _MAX_CHARS)
