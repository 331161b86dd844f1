"""Cases: problems and their solutions, extracted from a conversation.

A case needs both: a user states a problem, and later either how it was solved or that the
assistant's advice has worked. An unsolved problem is no case but a pending task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import filterfalse

from sennit.memory.extraction.english.clauses import expand, is_injection, is_unsafe, to_sentence
from sennit.memory.extraction.terms import slug
from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.memory.extraction.values import Candidate, Category, QuotedEvidence

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
