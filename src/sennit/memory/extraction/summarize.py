"""Summaries of a conversation: text, one-line abstract and overview.

Without a model a summary is made of the conversation's own sentences, the same every time. With one
it is a single call, and what the model names as a concept must occur in the conversation. Either
way the Markdown has one form, within its limits, with no line that could pass for a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sennit.memory.extraction.cases import is_problem, is_solution
from sennit.memory.extraction.clauses import (
    expand_contractions,
    is_injection,
    is_request,
    is_unsafe,
)
from sennit.memory.extraction.terms import fold, stem, terms, words
from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.memory.extraction.values import MAX_ABSTRACT_CHARS, MAX_OVERVIEW_CHARS, Summary

_NOTHING = "Nothing was said"
_STEPS = 12
_CONCEPTS = 10
_FEW_CONCEPTS = 4
_PENDING = 8
_STEP_LETTERS = 160
_READ = 20_000
_TERM = re.compile(r"`([^`\n]{2,40})`|\b([^\W\d_](?:[\w+#-]|\.(?=\w)){3,39})\b")
_TODO = re.compile(
    r"\b(?:to-?do|remind me|still (?:need|have|must)|need(?:s)? to|next step|later|tomorrow|"
    r"follow up|remains? to|not yet|until then|I will (?!be\b)|we will)\b",
    re.IGNORECASE,
)
_SMALL_TALK = re.compile(
    r"(?:hi|hello|hey|welcome|thanks|thank you|ok|okay|great|sure|yes|no|good \w+)\b"
    r"[\w ,]{0,20}[.!]*",
    re.IGNORECASE,
)


def summary_by_rules(conversation: Utterances) -> Summary:
    """A summary without a model; the same for the same conversation."""
    heard = [_Heard.of(one) for one in conversation.said]
    asked = [one for one in heard if one.speaker == "user"]
    told = [one for one in heard if one.speaker == "assistant"]
    concepts = _concepts(conversation)
    pending = _pending(heard)
    said = [one.gist for one in asked if one.gist]
    intents = [line for line in said if is_request(line) or is_problem(line)] or said
    intent = next(iter(intents or (one.gist for one in told if one.gist)), _NOTHING)
    result = told[-1].gist if told else "No answer yet"
    return Summary(
        topic=", ".join(concepts[:3]) or "Utterances",
        intent=_short(intent, 90),
        result=_short(result or "No answer yet", 60),
        status=f"{len(pending)} pending" if pending else "Done" if told else "Open",
        analysis=tuple(_steps(heard)),
        request=" ".join(_short(line, 300) for line in _spread(intents, 3)),
        concepts=tuple(concepts),
        pending=tuple(pending),
    )


@dataclass(frozen=True, slots=True)
class _Heard:
    """Something that was said or done, as far as a summary may repeat it."""

    speaker: str
    told: tuple[str, ...]
    """Its sentences; of a tool, what became of it."""
    gist: str
    """The first sentence that says something, other than small talk."""

    @classmethod
    def of(cls, one: Utterance | ToolUse) -> _Heard:
        if isinstance(one, ToolUse):
            return cls("tool", (), one.name if one.success else f"{one.name} (failed)")
        told = tuple(_told(one))
        return cls(one.speaker, told, _gist(told))


def summary_from(answer: dict[str, Any], conversation: Utterances) -> Summary:
    """The summary in a model's answer, without secrets, orders and concepts nobody mentioned."""
    said = {stem(word) for one in conversation.utterances for word in words(one.text)}

    def is_mentioned(concept: str) -> bool:
        found = [stem(word) for word in words(concept)]
        return bool(found) and all(word in said for word in found)

    return Summary(
        topic=_safe(answer["topic"]) or "Utterances",
        intent=_safe(answer["intent"]) or _NOTHING,
        result=_safe(answer["result"]) or "No answer yet",
        status=_safe(answer["status"]) or "Open",
        analysis=_lines(answer["analysis"]),
        request=_safe(answer["request"]),
        concepts=tuple(filter(is_mentioned, _lines(answer["concepts"]))),
        pending=_lines(answer["pending"]),
    )


def abstract(summary: Summary) -> str:
    """The summary as `.abstract.md` keeps it: one line of at most 256 characters."""
    return _short(_line(summary.one_line), MAX_ABSTRACT_CHARS)


def markdown(summary: Summary) -> str:
    """The summary as `.overview.md` keeps it: at most 4000 characters, every section there."""
    analysis, pending = list(summary.analysis), list(summary.pending)
    request, concepts = summary.request, list(summary.concepts)
    text = _written(summary, analysis, request, concepts, pending)
    while len(text) > MAX_OVERVIEW_CHARS:
        if len(analysis) > 2:
            del analysis[len(analysis) // 2]
        elif len(pending) > 1:
            pending.pop()
        elif len(concepts) > 1:
            concepts.pop()
        else:
            analysis = [_short(one, 100) for one in analysis]
            pending = [_short(one, 100) for one in pending]
            concepts = [_short(one, 100) for one in concepts]
            request = _short(request, 1000)
            return _written(summary, analysis, request, concepts, pending)[:MAX_OVERVIEW_CHARS]
        text = _written(summary, analysis, request, concepts, pending)
    return text


def _written(
    summary: Summary, analysis: list[str], request: str, concepts: list[str], pending: list[str]
) -> str:
    return (
        f"# Session Summary\n\n**One-line overview**: {abstract(summary)}\n\n"
        f"## Analysis\n{_numbered(analysis)}\n\n"
        f"## Primary Request and Intent\n{_line(request) or 'None'}\n\n"
        f"## Key Concepts\n{_bullets(concepts)}\n\n"
        f"## Pending Tasks\n{_bullets(pending)}\n"
    )


def _numbered(lines: Iterable[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1)) or "None"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "None"


def _steps(heard: Iterable[_Heard]) -> list[str]:
    """Return the user's requests, each with its outcome."""
    steps: list[list[str]] = []
    for one in heard:
        gist = _short(one.gist, _STEP_LETTERS)
        if one.speaker == "user":
            if gist:
                steps.append([gist])
        elif not steps:
            continue
        elif one.speaker == "tool":
            if len(steps[-1]) < 6:
                steps[-1].append(one.gist)
        elif gist:
            steps[-1][1:] = [*steps[-1][1:6], gist]
    return [" → ".join(step) for step in _spread(steps, _STEPS)]


def _concepts(conversation: Utterances) -> list[str]:
    """The terms that come up most, as they were first written."""
    counted: dict[str, int] = {}
    written: dict[str, str] = {}
    for one in conversation.utterances:
        named: set[str] = set()
        for term, weight in _named(one):
            if (key := _key(term)) and key not in named:
                named.add(key)
                written.setdefault(key, term)
                counted[key] = counted.get(key, 0) + weight
    best = sorted(counted, key=lambda key: -counted[key])
    often = sum(counted[key] > 1 for key in best)
    return [written[key] for key in best[: min(_CONCEPTS, max(often, _FEW_CONCEPTS))]]


def _named(utterance: Utterance) -> list[tuple[str, int]]:
    """The terms of an utterance; what is in code or written like a name weighs more."""
    found: list[tuple[str, int]] = []
    read = 0
    for sentence in utterance.sentences:
        if read > _READ or is_unsafe(sentence):
            continue
        read += len(sentence)
        for code, word in _TERM.findall(sentence):
            if code or not word.islower():
                first = not code and word[1:].islower() and sentence.startswith(word)
                found.append((code or word, 1 if first else 3))
            else:
                found.append((word, 1))
    return found


_COMMON_WORDS = """
    like want need know think make help please thanks thank hello good great time really would could
    should there their about which where when what this that with from have just some more than then
    your yours mine them they been were will well much many very also into over only even most such
    here sure yes okay first last next going used using does done it's that's i'm don't can't let's
    welcome worked moved
    actually remind noted nice give take look find show number part thing things
    name call called today tomorrow yesterday because while after before still
"""
_COMMON = frozenset(_COMMON_WORDS.split())


@lru_cache(maxsize=8192)
def _key(term: str) -> str:
    """Return a key under which spellings of one concept are equal; "" for other words."""
    return "" if fold(term) in _COMMON else " ".join(terms(term))


def _pending(heard: Sequence[_Heard]) -> list[str]:
    """Return open points: tasks, unsolved problems, unanswered questions."""
    open_: dict[str, None] = {}
    problem = ""
    for one in heard:
        for sentence in one.told:
            if one.speaker == "user" and is_solution(sentence):
                problem = ""
            elif one.speaker == "user" and is_problem(sentence):
                problem = sentence
            elif _TODO.search(expand_contractions(sentence)) and not sentence.endswith("?"):
                open_[_short(_line(sentence), _STEP_LETTERS)] = None
    if problem:
        open_[_short(_line(problem), _STEP_LETTERS)] = None
    if heard and heard[-1].speaker == "user":
        gist = next(filter(is_request, heard[-1].told), "")
        if gist:
            open_[_short(gist, _STEP_LETTERS)] = None
    return list(open_)[-_PENDING:]


def _gist(told: Iterable[str]) -> str:
    for sentence in told:
        line = _line(sentence)
        if line and line != "…" and not _SMALL_TALK.fullmatch(line):
            return line
    return ""


def _told(utterance: Utterance) -> Iterator[str]:
    """The sentences a summary may repeat: no secrets, and nothing of a text that gives orders."""
    if not is_injection(utterance.text):
        yield from (one for one in utterance.sentences if not is_unsafe(one))


def _spread(items: list[Any], most: int) -> list[Any]:
    """At most so many items, the first and the last among them."""
    if len(items) <= most:
        return items
    step = (len(items) - 1) / (most - 1)
    return [items[round(number * step)] for number in range(most)]


def _safe(text: Any) -> str:
    """A line of a model's, unless it holds what a summary must not."""
    line = _line(text)
    return "" if is_unsafe(line) or is_injection(line) else line


def _lines(given: Iterable[Any]) -> tuple[str, ...]:
    return tuple(line for one in given if (line := _safe(one)))


def _line(text: Any) -> str:
    """A text as one line that begins no heading, list or fence."""
    return " ".join(str(text).split()).lstrip("#>`*- ")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
