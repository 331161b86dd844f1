"""Summaries of a conversation: text, one-line abstract and overview.

Without a model a summary consists of the conversation's own sentences and is deterministic. With
one it is a single call, and concepts that the model names must occur in the conversation. Either
way the Markdown has one form, within its limits, and no line of text can pass for a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sennit.memory.extraction.english.clauses import expand, is_injection, is_request, is_unsafe
from sennit.memory.extraction.extract import is_problem, is_solution
from sennit.memory.extraction.terms import fold, stem, terms, words
from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.memory.extraction.values import MAX_ABSTRACT_CHARS, MAX_OVERVIEW_CHARS, Summary

_NO_INTENT = "Nothing was said"
_MAX_STEPS = 12
_MAX_CONCEPTS = 10
_MIN_CONCEPTS = 4
_MAX_PENDING = 8
_MAX_STEP_CHARS = 160
_MAX_READ_CHARS = 20_000
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
    """Return a summary without a model; deterministic."""
    turns = [_Turn.of(item) for item in conversation.items]
    user_turns = [turn for turn in turns if turn.speaker == "user"]
    assistant_turns = [turn for turn in turns if turn.speaker == "assistant"]
    concepts = _concepts(conversation)
    pending = _pending(turns)
    gists = [turn.gist for turn in user_turns if turn.gist]
    intents = [line for line in gists if is_request(line) or is_problem(line)] or gists
    intent = next(iter(intents or (turn.gist for turn in assistant_turns if turn.gist)), _NO_INTENT)
    result = assistant_turns[-1].gist if assistant_turns else "No answer yet"
    return Summary(
        topic=", ".join(concepts[:3]) or "Conversation",
        intent=_truncate(intent, 90),
        result=_truncate(result or "No answer yet", 60),
        status=f"{len(pending)} pending" if pending else "Done" if assistant_turns else "Open",
        analysis=tuple(_steps(turns)),
        request=" ".join(_truncate(line, 300) for line in _spread(intents, 3)),
        concepts=tuple(concepts),
        pending=tuple(pending),
    )


@dataclass(frozen=True, slots=True)
class _Turn:
    """An utterance or tool call, as far as a summary may repeat it."""

    speaker: str
    sentences: tuple[str, ...]
    """Its sentences; none for a tool."""
    gist: str
    """The first sentence that is not small talk; for a tool, its name."""

    @classmethod
    def of(cls, item: Utterance | ToolUse) -> _Turn:
        if isinstance(item, ToolUse):
            return cls("tool", (), item.name if item.success else f"{item.name} (failed)")
        sentences = tuple(_safe_sentences(item))
        return cls(item.speaker, sentences, _gist(sentences))


def summary_from(answer: dict[str, Any], conversation: Utterances) -> Summary:
    """Return the summary in a model's answer without secrets, injections and invented concepts."""
    spoken_stems = {
        stem(word) for utterance in conversation.utterances for word in words(utterance.text)
    }

    def is_mentioned(concept: str) -> bool:
        stems = [stem(word) for word in words(concept)]
        return bool(stems) and all(word in spoken_stems for word in stems)

    return Summary(
        topic=_safe(answer["topic"]) or "Conversation",
        intent=_safe(answer["intent"]) or _NO_INTENT,
        result=_safe(answer["result"]) or "No answer yet",
        status=_safe(answer["status"]) or "Open",
        analysis=_safe_lines(answer["analysis"]),
        request=_safe(answer["request"]),
        concepts=tuple(filter(is_mentioned, _safe_lines(answer["concepts"]))),
        pending=_safe_lines(answer["pending"]),
    )


def abstract(summary: Summary) -> str:
    """Return the summary for `.abstract.md`: one line of at most 256 characters."""
    return _truncate(_line(summary.one_line), MAX_ABSTRACT_CHARS)


def markdown(summary: Summary) -> str:
    """Return the summary for `.overview.md`: at most 4000 characters, with every section."""
    analysis, pending = list(summary.analysis), list(summary.pending)
    request, concepts = summary.request, list(summary.concepts)
    text = _render(summary, analysis, request, concepts, pending)
    while len(text) > MAX_OVERVIEW_CHARS:
        if len(analysis) > 2:
            del analysis[len(analysis) // 2]
        elif len(pending) > 1:
            pending.pop()
        elif len(concepts) > 1:
            concepts.pop()
        else:
            analysis = [_truncate(line, 100) for line in analysis]
            pending = [_truncate(line, 100) for line in pending]
            concepts = [_truncate(line, 100) for line in concepts]
            request = _truncate(request, 1000)
            return _render(summary, analysis, request, concepts, pending)[:MAX_OVERVIEW_CHARS]
        text = _render(summary, analysis, request, concepts, pending)
    return text


def _render(
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


def _steps(turns: Iterable[_Turn]) -> list[str]:
    """Return the user's requests, each with its outcome."""
    steps: list[list[str]] = []
    for turn in turns:
        gist = _truncate(turn.gist, _MAX_STEP_CHARS)
        if turn.speaker == "user":
            if gist:
                steps.append([gist])
        elif not steps:
            continue
        elif turn.speaker == "tool":
            if len(steps[-1]) < 6:
                steps[-1].append(turn.gist)
        elif gist:
            steps[-1][1:] = [*steps[-1][1:6], gist]
    return [" → ".join(step) for step in _spread(steps, _MAX_STEPS)]


def _concepts(conversation: Utterances) -> list[str]:
    """Return the most frequent terms, as they were first written."""
    weights: dict[str, int] = {}
    spellings: dict[str, str] = {}
    for utterance in conversation.utterances:
        seen: set[str] = set()
        for term, weight in _weighted_terms(utterance):
            if (key := _concept_key(term)) and key not in seen:
                seen.add(key)
                spellings.setdefault(key, term)
                weights[key] = weights.get(key, 0) + weight
    ranked = sorted(weights, key=lambda key: -weights[key])
    repeated = sum(weights[key] > 1 for key in ranked)
    return [spellings[key] for key in ranked[: min(_MAX_CONCEPTS, max(repeated, _MIN_CONCEPTS))]]


def _weighted_terms(utterance: Utterance) -> list[tuple[str, int]]:
    """Return the terms of an utterance with weights; code and names weigh more."""
    weighted: list[tuple[str, int]] = []
    read = 0
    for sentence in utterance.sentences:
        if read > _MAX_READ_CHARS or is_unsafe(sentence):
            continue
        read += len(sentence)
        for code, word in _TERM.findall(sentence):
            if code or not word.islower():
                first = not code and word[1:].islower() and sentence.startswith(word)
                weighted.append((code or word, 1 if first else 3))
            else:
                weighted.append((word, 1))
    return weighted


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
def _concept_key(term: str) -> str:
    """Return a key under which spellings of one concept are equal; "" for common words."""
    return "" if fold(term) in _COMMON else " ".join(terms(term))


def _pending(turns: Sequence[_Turn]) -> list[str]:
    """Return open points: tasks, unsolved problems, unanswered questions."""
    open_: dict[str, None] = {}
    problem = ""
    for turn in turns:
        for sentence in turn.sentences:
            if turn.speaker == "user" and is_solution(sentence):
                problem = ""
            elif turn.speaker == "user" and is_problem(sentence):
                problem = sentence
            elif _TODO.search(expand(sentence)) and not sentence.endswith("?"):
                open_[_truncate(_line(sentence), _MAX_STEP_CHARS)] = None
    if problem:
        open_[_truncate(_line(problem), _MAX_STEP_CHARS)] = None
    if turns and turns[-1].speaker == "user":
        gist = next(filter(is_request, turns[-1].sentences), "")
        if gist:
            open_[_truncate(gist, _MAX_STEP_CHARS)] = None
    return list(open_)[-_MAX_PENDING:]


def _gist(sentences: Iterable[str]) -> str:
    for sentence in sentences:
        line = _line(sentence)
        if line and line != "…" and not _SMALL_TALK.fullmatch(line):
            return line
    return ""


def _safe_sentences(utterance: Utterance) -> Iterator[str]:
    """Yield the sentences a summary may repeat: no secrets, and nothing of an injection."""
    if not is_injection(utterance.text):
        yield from (sentence for sentence in utterance.sentences if not is_unsafe(sentence))


def _spread(items: list[Any], limit: int) -> list[Any]:
    """Return at most `limit` items, evenly spread, with the first and the last."""
    if len(items) <= limit:
        return items
    step = (len(items) - 1) / (limit - 1)
    return [items[round(number * step)] for number in range(limit)]


def _safe(text: Any) -> str:
    """Return a model's text as one line; "" if it contains a secret or an injection."""
    line = _line(text)
    return "" if is_unsafe(line) or is_injection(line) else line


def _safe_lines(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(line for value in values if (line := _safe(value)))


def _line(text: Any) -> str:
    """Return a text as one line that begins no heading, list or fence."""
    return " ".join(str(text).split()).lstrip("#>`*- ")


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
