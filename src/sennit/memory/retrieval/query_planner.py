"""Query planning: up to five typed queries from a conversation.

"When was that?" says nothing without the messages before it. Rules carry keywords over from the
last messages, and repeat the query in the category of memories that the question is about. A model
does the same better, if there is one; if it fails, the rules do it. A greeting or thanks needs no
search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from sennit.errors import SennitError
from sennit.memory.extraction.pipeline import MODELS_TOO_SMALL
from sennit.memory.extraction.prompts import PLAN_SCHEMA, Prompts
from sennit.memory.extraction.values import Category
from sennit.memory.retrieval.embedders import VectorIndex
from sennit.memory.retrieval.find import MESSAGE, Match, SearchFilter, find
from sennit.memory.scope import MemoryScope
from sennit.messages.output_schema import ModelSchema
from sennit.messages.output_validation import validate_output
from sennit.operations.structured_output import ask
from sennit.services.models.protocol import Model
from sennit.services.models.request import ModelRequest
from sennit.stores.search import tokenizer

MAX_QUERIES = 5
_CONTEXT_MESSAGES = 4  # messages that a question may refer to
_MAX_CARRIED_WORDS = 8  # keywords taken from them
_REFERENCES = """
    it its that this those these he she they him her them there then one ones same again
"""
_SMALL_TALK = """
    hi hello hey thanks thank ok okay yes no yeah yep nope sure great good morning evening night bye
    goodbye cool nice fine please well lol wow welcome cheers
"""
_REFERENCE_WORDS = frozenset(_REFERENCES.split())
_SMALL_TALK_WORDS = frozenset(_SMALL_TALK.split())
_CATEGORY_PATTERNS: tuple[tuple[re.Pattern[str], Category], ...] = (
    (re.compile(r"\b(when|date|day|year|month|happened|last time|ago)\b", re.I), Category.EVENTS),
    (
        re.compile(r"\b(prefer\w*|favou?rite|like|likes|dislike\w*|hate\w*|usually)\b", re.I),
        Category.PREFERENCES,
    ),
    (re.compile(r"\b(who|whose|called|named?)\b", re.I), Category.ENTITIES),
    (
        re.compile(r"\b(am i|my (age|job|name|address|birthday|home)|live)\b", re.I),
        Category.PROFILE,
    ),
    (re.compile(r"\b(error|fails?|failed|broken|fix|fixed|solve\w*|bug)\b", re.I), Category.CASES),
    (re.compile(r"\b(how (do|to|can|should)|best way|steps?)\b", re.I), Category.PATTERNS),
)


@dataclass(frozen=True, slots=True)
class TypedQuery:
    """One query."""

    text: str
    """The text to search for."""
    category: str | None = None
    """The category to search; None for everything."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The queries that were run, and their results, best first."""

    queries: tuple[TypedQuery, ...]
    """The queries that were searched for."""
    matches: list[Match]
    """The matches of all queries, best first."""


def plan_by_rules(question: str, history: Sequence[str] = ()) -> list[TypedQuery]:
    """Return the queries for a question at the end of a history; none for small talk."""
    is_question = "?" in question
    question = question[: tokenizer.MAX_QUERY_LENGTH]
    keywords = [word for word in tokenizer.query_words(question) if word not in _SMALL_TALK_WORDS]
    if not keywords or all(word in tokenizer.STOP_WORDS for word in keywords):
        keywords = []
    is_dependent = len(keywords) < 3 or bool(
        _REFERENCE_WORDS & set(re.findall(r"\w+", question.lower()))
    )
    if not keywords and not is_question:
        return []
    text = " ".join([*keywords, *(_carry_over(history, keywords) if is_dependent else ())])
    if not text:
        return []
    queries = [TypedQuery(question)] if keywords else []
    if not keywords or (is_dependent and history):
        queries.append(TypedQuery(text))
    categories = [
        str(category) for pattern, category in _CATEGORY_PATTERNS if pattern.search(question)
    ]
    queries += [TypedQuery(text, category) for category in categories]
    return list(dict.fromkeys(queries))[:MAX_QUERIES]


def _carry_over(history: Sequence[str], keywords: Iterable[str]) -> list[str]:
    """Return keywords of the last messages: names first, then the newest first."""
    names: dict[str, None] = {}
    others: dict[str, None] = {}
    for message in reversed(history[-_CONTEXT_MESSAGES:]):
        text = message[: tokenizer.MAX_QUERY_LENGTH]
        capitalized = {word.lower() for word in re.findall(r"(?<=[a-z,;] )[A-Z]\w+", text)}
        for word in tokenizer.query_words(text):
            if word not in _SMALL_TALK_WORDS and word not in tokenizer.STOP_WORDS and len(word) > 2:
                (names if word in capitalized else others).setdefault(word)
    excluded = set(keywords)
    return [word for word in {**names, **others} if word not in excluded][:_MAX_CARRIED_WORDS]


async def plan(
    question: str, history: Sequence[str], model: Model | None, prompts: Prompts
) -> list[TypedQuery]:
    """Return the queries of a model, or of rules if there is none or it fails."""
    if model is None or model.name in MODELS_TOO_SMALL:
        return plan_by_rules(question, history)
    material = "\n".join(
        [*(f"- {text[:500]}" for text in history[-_CONTEXT_MESSAGES:]), f"- {question[:2000]}"]
    )
    schema = ModelSchema(PLAN_SCHEMA["title"], dict(PLAN_SCHEMA))
    turns = [{"role": "system", "content": prompts.plan}, {"role": "user", "content": material}]
    output = schema if model.supports_output_schema else None
    try:
        reply = await ask(model, ModelRequest(messages=turns, output=output))
        answer = validate_output(reply.text, schema)
    except SennitError:
        return plan_by_rules(question, history)
    return _queries(answer)


def _queries(answer: Any) -> list[TypedQuery]:
    kinds = {MESSAGE, *map(str, Category)}
    rows = cast("list[dict[str, Any]]", answer["queries"])
    queries = [
        TypedQuery(row["text"].strip(), row["kind"] if row["kind"] in kinds else None)
        for row in rows
        if row["text"].strip()
    ]
    return list(dict.fromkeys(queries))[:MAX_QUERIES]


def search(
    scope: MemoryScope,
    queries: Sequence[TypedQuery],
    filters: SearchFilter,
    *,
    limit: int,
    vectors: VectorIndex | None,
) -> SearchResult:
    """Run all queries and return each result once, with its best score."""
    best: dict[object, Match] = {}
    for query in queries:
        query_filters = _filters_for(query, filters)
        for match in find(scope, query.text, query_filters, limit=limit, vectors=vectors):
            key = (match.uri, match.evidence if match.category == MESSAGE else ())
            if key not in best or best[key].score < match.score:
                best[key] = match
    matches = sorted(best.values(), key=lambda match: match.score, reverse=True)
    return SearchResult(tuple(queries), matches[:limit])


def _filters_for(query: TypedQuery, filters: SearchFilter) -> SearchFilter:
    if query.category is None:
        return filters
    if query.category == MESSAGE:
        return replace(filters, files=())
    return replace(filters, messages=False, categories=(query.category,))
