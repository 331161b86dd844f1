"""Query planning: up to five typed queries from a conversation.

"When was that?" says nothing by itself; what was said before does. Rules carry telling words over
from the last messages, and ask a second time among the kind of memories that a question is about. A
model does the same with more sense, if there is one; whatever it gets wrong, the rules do. A
greeting or thanks needs no look at all.
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
from sennit.memory.retrieval.find import MESSAGE, Match, SearchFilter, find
from sennit.memory.retrieval.vector_index import VectorIndex
from sennit.memory.scope import MemoryScope
from sennit.messages.output_schema import ModelSchema
from sennit.operations.output_validation import fitted
from sennit.operations.structured_output import ask
from sennit.services.models.protocol import Model
from sennit.services.models.request import ModelRequest
from sennit.stores.search import tokenizer

MAX_QUERIES = 5
_BEFORE = 4  # messages that a question may lean on
_CARRIED = 8  # words taken over from them
_POINTING = """
    it its that this those these he she they him her them there then one ones same again
"""
_SMALL = """
    hi hello hey thanks thank ok okay yes no yeah yep nope sure great good morning evening night bye
    goodbye cool nice fine please well lol wow welcome cheers
"""
_LEANS = frozenset(_POINTING.split())
_IDLE = frozenset(_SMALL.split())
_KINDS: tuple[tuple[re.Pattern[str], Category], ...] = (
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
    """One search."""

    text: str
    category: str | None = None
    """The kind it is kept to; None for everything."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The queries that were run, and their results, best first."""

    queries: tuple[TypedQuery, ...]
    matches: list[Match]


def plan_by_rules(question: str, said: Sequence[str] = ()) -> list[TypedQuery]:
    """The queries for a question at the end of what was said; none for small talk."""
    is_question = "?" in question
    question = question[: tokenizer.LONGEST_QUESTION]
    telling = [word for word in tokenizer.asked(question) if word not in _IDLE]
    if not telling or all(word in tokenizer.STOP_WORDS for word in telling):
        telling = []
    leans = len(telling) < 3 or bool(_LEANS & set(re.findall(r"\w+", question.lower())))
    if not telling and not is_question:
        return []
    text = " ".join([*telling, *(_carried(said, telling) if leans else ())])
    if not text:
        return []
    found = [TypedQuery(question)] if telling else []
    if not telling or (leans and said):
        found.append(TypedQuery(text))
    kinds = [str(kind) for sign, kind in _KINDS if sign.search(question)]
    found += [TypedQuery(text, kind) for kind in kinds]
    return list(dict.fromkeys(found))[:MAX_QUERIES]


def _carried(said: Sequence[str], known: Iterable[str]) -> list[str]:
    """Telling words of the last messages, names first, the newest first."""
    names: dict[str, None] = {}
    others: dict[str, None] = {}
    for one in reversed(said[-_BEFORE:]):
        text = one[: tokenizer.LONGEST_QUESTION]
        inside = {word.lower() for word in re.findall(r"(?<=[a-z,;] )[A-Z]\w+", text)}
        for word in tokenizer.asked(text):
            if word not in _IDLE and word not in tokenizer.STOP_WORDS and len(word) > 2:
                (names if word in inside else others).setdefault(word)
    already = set(known)
    return [word for word in {**names, **others} if word not in already][:_CARRIED]


async def plan(
    question: str, said: Sequence[str], model: Model | None, prompts: Prompts
) -> list[TypedQuery]:
    """The same by a model, if there is one that can; never raises for what a model does."""
    if model is None or model.name in MODELS_TOO_SMALL:
        return plan_by_rules(question, said)
    material = "\n".join([*(f"- {text[:500]}" for text in said[-_BEFORE:]), f"- {question[:2000]}"])
    wanted = ModelSchema(PLAN_SCHEMA["title"], dict(PLAN_SCHEMA))
    turns = [{"role": "system", "content": prompts.plan}, {"role": "user", "content": material}]
    output = wanted if model.shapes_output else None
    try:
        reply = await ask(model, ModelRequest(messages=turns, output=output))
        answer = fitted(reply.text, wanted)
    except SennitError:
        return plan_by_rules(question, said)
    return _queries(answer)


def _queries(answer: Any) -> list[TypedQuery]:
    kinds = {MESSAGE, *map(str, Category)}
    rows = cast("list[dict[str, Any]]", answer["queries"])
    found = [
        TypedQuery(row["text"].strip(), row["kind"] if row["kind"] in kinds else None)
        for row in rows
        if row["text"].strip()
    ]
    return list(dict.fromkeys(found))[:MAX_QUERIES]


def search(
    realm: MemoryScope,
    queries: Sequence[TypedQuery],
    limits: SearchFilter,
    *,
    limit: int,
    vectors: VectorIndex | None,
) -> SearchResult:
    """Run all queries and return each result once, with its best score."""
    best: dict[object, Match] = {}
    for query in queries:
        where = _kept_to(query, limits)
        for match in find(realm, query.text, where, limit=limit, vectors=vectors):
            key = (match.uri, match.evidence if match.category == MESSAGE else ())
            if key not in best or best[key].score < match.score:
                best[key] = match
    found = sorted(best.values(), key=lambda match: match.score, reverse=True)
    return SearchResult(tuple(queries), found[:limit])


def _kept_to(query: TypedQuery, limits: SearchFilter) -> SearchFilter:
    if query.category is None:
        return limits
    if query.category == MESSAGE:
        return replace(limits, files=())
    return replace(limits, messages=False, categories=(query.category,))
