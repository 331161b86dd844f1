"""Cases: problems and their solutions, extracted from a conversation.

A case needs both: somebody says what is wrong, and later either how it was mended or that what the
assistant proposed has worked. A problem nobody solved is no case; it is a pending task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import filterfalse

from sennit.memory.extraction.clauses import (
    expand_contractions,
    is_injection,
    is_unsafe,
    to_sentence,
)
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
_MENDED = re.compile(
    r"\b(?:(?:I|we) (?:have )?(?:fixed|solved|resolved) (?:it|this|that|the \w+) (?:by|with)|"
    r"the (?:fix|solution|cause|problem|culprit) (?:is|was)|(?:it|this) works (?:now )?"
    r"(?:after|once|because|when|with|if)|turns out (?:that )?(?:it|I|we|the))\b",
    _I,
)
_WORKED = re.compile(
    r"\b(?:that|this|it) (?:has )?(?:worked|works|fixed it|solved it|did it|did the trick|helped|"
    r"solved the \w+|fixed the \w+)\b|\bworks now\b|\bproblem solved\b|^fixed\b|^solved\b|"
    r"\ball (?:tests )?(?:pass|green)(?:es)? now\b",
    _I,
)
_DOUBT = re.compile(r"\b(?:not|never|still|but|if|unless)\b|\?", _I)
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class _Said:
    utterance: Utterance
    sentence: str

    @property
    def evidence(self) -> QuotedEvidence:
        return QuotedEvidence(self.utterance.message_id, self.sentence)


@lru_cache(maxsize=4096)
def is_problem(sentence: str) -> bool:
    """Return whether a sentence says that something does not work."""
    return _PROBLEM.search(expand_contractions(sentence)) is not None


@lru_cache(maxsize=4096)
def is_solution(sentence: str) -> bool:
    """Return whether a sentence says how something was mended, or that it was."""
    said = expand_contractions(sentence)
    return _MENDED.search(said) is not None or (
        _WORKED.search(said) is not None and _DOUBT.search(said) is None
    )


def cases(conversation: Utterances) -> Iterator[Candidate]:
    """The problems that were solved, each with its solution."""
    problem: _Said | None = None
    proposed: _Said | None = None
    for one in conversation.said:
        if isinstance(one, ToolUse) or is_injection(one.text):
            continue
        if one.speaker == "assistant":
            proposed = (problem and _proposal(one)) or proposed
            continue
        for sentence in filterfalse(is_unsafe, one.sentences):
            solved = problem is not None and is_solution(sentence)
            solution = _solution(_Said(one, sentence), proposed) if solved else None
            if problem and solution:
                yield _case(problem, solution, _Said(one, sentence))
                problem = proposed = None
            elif is_problem(sentence):
                problem, proposed = _Said(one, sentence), None


def _solution(said: _Said, proposed: _Said | None) -> _Said | None:
    """Return the solution, once somebody says that the problem is solved."""
    return said if _MENDED.search(expand_contractions(said.sentence)) else proposed


def _proposal(utterance: Utterance) -> _Said | None:
    """Return the assistant's advice: its first sentences that are not questions."""
    told = [one for one in utterance.sentences if not one.endswith("?")]
    advice = " ".join(told[:3])[:_LONGEST]
    return _Said(utterance, advice) if advice and not is_unsafe(advice) else None


def _case(problem: _Said, solution: _Said, confirmed: _Said) -> Candidate:
    evidence = dict.fromkeys((problem.evidence, solution.evidence, confirmed.evidence))
    return Candidate(
        category=Category.CASES,
        text=f"Problem: {to_sentence(problem.sentence)} Solution: {to_sentence(solution.sentence)}",
        slug=slug(" ".join(problem.sentence.split()[:10])),
        evidence=tuple(evidence),
        said_at=confirmed.utterance.at,
    )
