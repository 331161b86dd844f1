"""Decisions of a model about candidates, validated before they count.

A model may see sooner than rules that two texts are about the same thing, and merge or update them.
It may not lose a word, change what happened, or write what neither text says. Only a repeat is
skipped: if a model skips a candidate that says more, it is merged. Any other decision is left to
the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, cast

from sennit.memory.extraction.dedup import (
    MAX_MEMORY_CHARS,
    Deduplicator,
    Similar,
    TextComparison,
    TextRanker,
    Verdict,
    as_known,
    comparable,
    compare,
    create_decision,
    includes,
    is_covered,
    merge_texts,
    replace_sentence,
    update_decision,
)
from sennit.memory.extraction.english.clauses import expand
from sennit.memory.extraction.english.rules import fact_of
from sennit.memory.extraction.terms import content_tokens, terms
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Action, Candidate, KnownMemory, MemoryDecision

_LETTER = re.compile(r"\b[A-Z]\b")
_MAX_SHOWN = 4
"""The number of known memories that a model is shown for each candidate."""


@dataclass(frozen=True, slots=True)
class DecisionPrompt:
    """The candidates a model is asked about, with the known memories."""

    text: str
    memories: dict[int, dict[str, KnownMemory]]
    """The known memories by number of the candidate and letter."""
    left_out: int = 0
    """The number of candidates that did not fit; rules decide on them."""


def decision_prompt(
    candidates: Sequence[Candidate], similar: Similar, budget: int
) -> DecisionPrompt:
    """Return the prompt for candidates; exact repeats and unrelated candidates are left out."""
    earlier = TextRanker()
    blocks: list[str] = []
    memories: dict[int, dict[str, KnownMemory]] = {}
    left_out = 0
    for number, candidate in enumerate(candidates, 1):
        known = _memories_to_show(candidate, earlier, similar)
        earlier.put(as_known(candidate, candidate.text))
        repeated = any(compare(memory, candidate).verdict is Verdict.SAME for memory in known)
        if not known or repeated:
            continue
        listed = dict(zip(ascii_uppercase, known, strict=False))
        block = _block(number, candidate, listed)
        if len(block) > budget:
            left_out += 1
            continue
        budget -= len(block) + 1
        blocks.append(block)
        memories[number] = listed
    return DecisionPrompt("\n".join(blocks), memories, left_out)


def _memories_to_show(
    candidate: Candidate, earlier: TextRanker, similar: Similar
) -> list[KnownMemory]:
    known = [*earlier(candidate)[:_MAX_SHOWN], *similar(candidate)[:_MAX_SHOWN]]
    comparable_memories = (memory for memory in known if comparable(memory, candidate))
    return [*{memory.id: memory for memory in comparable_memories}.values()]


def _block(number: int, candidate: Candidate, listed: Mapping[str, KnownMemory]) -> str:
    known = "".join(f"\n  {letter}: {_line(memory.text)}" for letter, memory in listed.items())
    return f"Candidate {number} ({candidate.category}): {_line(candidate.text)}{known}"


def _line(text: str) -> str:
    return " ".join(text.split())


def decide_by_model(
    candidates: Sequence[Candidate],
    similar: Similar,
    prompt: DecisionPrompt,
    answer: Mapping[str, Any],
) -> tuple[list[MemoryDecision], int]:
    """Return a decision for each candidate, and on how many the rules overruled the model."""
    batch = Deduplicator(similar)
    items = _decisions_by_number(answer)
    decisions: list[MemoryDecision] = []
    overruled = 0
    for number, candidate in enumerate(candidates, 1):
        listed = prompt.memories.get(number)
        decision = _validate(candidate, batch, listed, items.get(number)) if listed else None
        overruled += listed is not None and decision is None
        decisions.append(batch.record(decision) if decision else batch.decide(candidate))
    return decisions, overruled


def _decisions_by_number(answer: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    by_number: dict[int, Mapping[str, Any]] = {}
    for item in cast("list[Any]", answer.get("decisions", [])):
        match item:
            case {"candidate": int(number), "action": str()}:
                by_number.setdefault(number, cast("Mapping[str, Any]", item))
            case _:
                pass
    return by_number


def _validate(
    candidate: Candidate,
    batch: Deduplicator,
    listed: Mapping[str, KnownMemory],
    item: Mapping[str, Any] | None,
) -> MemoryDecision | None:
    """Return a model's decision if it is allowed; None leaves it to the rules."""
    if item is None or item["action"] not in list(Action):
        return None
    action = Action(item["action"])
    letters = _LETTER.findall(str(item.get("known") or "").upper().removeprefix("KNOWN"))
    shown = [batch.latest(listed[letter]) for letter in letters if letter in listed]
    known = shown[0] if shown else None
    if action is Action.CREATE:
        # Rules are sure that it repeats or contradicts a memory: it must not stand beside it.
        sure = any(
            compare(memory, candidate).verdict in _CERTAIN for memory in batch.known(candidate)
        )
        return None if sure else create_decision(candidate, "the model finds nothing like it")
    if (
        known is None
        or not candidate.category.mergeable
        or not _is_related(action, known, candidate)
    ):
        return None
    comparison = compare(known, candidate)
    if action is Action.SKIP and comparison.verdict is not Verdict.SAME:
        action = Action.MERGE
    if action is Action.UPDATE and _is_compatible(comparison, candidate):
        action = Action.MERGE
    decision = MemoryDecision(
        action=action,
        candidate=candidate,
        target=known.id,
        text=known.text,
        reason=f"the model: {known.text}",
    )
    model_text = _line(str(item.get("text") or ""))
    if action is Action.MERGE:
        return _merge(decision, shown, model_text)
    if action is Action.UPDATE:
        outdated = _outdated_sentence(known, candidate)
        text = _updated_text(known, candidate, outdated, model_text)
        return update_decision(decision, known, outdated, text)
    return decision


def _merge(
    decision: MemoryDecision, shown: Sequence[KnownMemory], model_text: str
) -> MemoryDecision:
    """Merge a candidate into the first memory, and the others too if no word is lost."""
    new = decision.candidate.text
    known = [
        memory for memory in dict.fromkeys(shown) if len(memory.text) + len(new) < MAX_MEMORY_CHARS
    ]
    texts = [memory.text for memory in known]
    if len(known) > 1 and _keeps_all_terms(model_text, new, *texts):
        return replace(decision, text=model_text, absorbed=tuple(memory.id for memory in known[1:]))
    covered_ids = [memory.id for memory in known[1:] if is_covered(memory.text, new)]
    first = shown[0].text
    text = model_text if _keeps_all_terms(model_text, new, first) else merge_texts(first, new)
    return replace(decision, text=text, absorbed=tuple(covered_ids))


def _outdated_sentence(known: KnownMemory, candidate: Candidate) -> str:
    """Return the known sentence that a candidate replaces."""
    comparison = compare(known, candidate)
    if comparison.verdict is not Verdict.OTHER:
        return comparison.sentence
    new = frozenset(terms(candidate.text))
    return max(sentences(known.text), key=lambda sentence: len(new & frozenset(terms(sentence))))


def _updated_text(known: KnownMemory, candidate: Candidate, outdated: str, model_text: str) -> str:
    """Return the known text with the candidate in place of the outdated sentence.

    A text of the model is used if it includes the candidate and all other sentences.
    """
    others = [sentence for sentence in sentences(known.text) if sentence != outdated]
    if _is_limited_to(model_text, known, candidate) and all(
        _includes_all(model_text, sentence) for sentence in others
    ):
        return model_text
    return replace_sentence(known.text, outdated, candidate.text)


def _is_compatible(comparison: TextComparison, candidate: Candidate) -> bool:
    """Return whether rules know that both texts hold: one adds detail, or their slots differ."""
    if comparison.verdict is Verdict.MORE:
        return True
    if comparison.verdict is not Verdict.BESIDE:
        return False
    known_fact, new_fact = fact_of(comparison.sentence), fact_of(candidate.text)
    return known_fact is not None and new_fact is not None and known_fact.slot != new_fact.slot


def _is_other_fact(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether rules know that a candidate states another fact, so that both hold."""
    facts = [fact_of(text) for text in (candidate.text, *sentences(known.text))]
    return None not in facts and compare(known, candidate).verdict is Verdict.OTHER


_CERTAIN = (Verdict.SAME, Verdict.CHANGED)


def _is_related(action: Action, known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether two texts have enough in common to skip, update or merge."""
    verdict = compare(known, candidate).verdict
    if action is Action.SKIP and verdict is Verdict.CHANGED:
        return False
    if action is Action.UPDATE and _is_other_fact(known, candidate):
        return False
    new, old = frozenset(terms(candidate.text)), frozenset(terms(known.text))
    new_fact, old_fact = fact_of(candidate.text), fact_of(known.text)
    return bool(new & old) or bool(new_fact and old_fact and new_fact.slot == old_fact.slot)


def _is_limited_to(model_text: str, known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a text includes the candidate, and nothing that neither text says."""
    text_terms, new = frozenset(terms(model_text)), frozenset(terms(candidate.text))
    return new <= text_terms <= new | frozenset(terms(known.text)) and _includes_all(
        model_text, candidate.text
    )


def _keeps_all_terms(merged_text: str, *texts: str) -> bool:
    """Return whether a text has exactly the content terms of some others."""
    wanted = frozenset(term for text in texts for term in terms(text))
    return frozenset(terms(merged_text)) == wanted and _includes_all(merged_text, *texts)


def _includes_all(merged_text: str, *texts: str) -> bool:
    """Return whether a text has all content tokens of some others, in order, also "before" and
    "C++".
    """
    merged_tokens = frozenset(content_tokens(expand(merged_text)))
    return bool(merged_text) and all(
        includes(merged_text, text) and merged_tokens.issuperset(content_tokens(expand(text)))
        for text in texts
    )
