"""Decisions of a model about candidates, validated before they count.

A model may see sooner than rules that two texts are about the same thing, and merge or update
them. It may not lose a word, change what happened, or write what neither text says. Only a repeat
is skipped: a model that skips what says more has it merged. Where it tries anything else, rules
decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, cast

from sennit.memory.extraction.clauses import expand_contractions
from sennit.memory.extraction.compare import TextComparison, Verdict, compare, includes
from sennit.memory.extraction.dedup import (
    MAX_MEMORY_CHARS,
    Deduplicator,
    comparable,
    create_decision,
    is_covered,
    merge_texts,
    replace_sentence,
)
from sennit.memory.extraction.rules import fact_of
from sennit.memory.extraction.similarity import Similar, TextRanker
from sennit.memory.extraction.terms import content_tokens, terms
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Action, Candidate, KnownMemory, MemoryDecision

_LETTER = re.compile(r"\b[A-Z]\b")
_KNOWN = 4
"""How many known memories a model is shown for each candidate."""


@dataclass(frozen=True, slots=True)
class DecisionPrompt:
    """The candidates a model is asked about, with what is known."""

    text: str
    asked: dict[int, dict[str, KnownMemory]]
    """Number of the candidate, and letter of the known memory."""
    left_out: int = 0
    """How many candidates did not fit; rules decide on them."""


def decision_prompt(
    candidates: Sequence[Candidate], similar: Similar, letters: int
) -> DecisionPrompt:
    """Return the question for the model; exact repeats and unrelated candidates need none."""
    earlier = TextRanker()
    blocks: list[str] = []
    asked: dict[int, dict[str, KnownMemory]] = {}
    left_out = 0
    for number, candidate in enumerate(candidates, 1):
        known = _shown(candidate, earlier, similar)
        earlier.put(as_known(candidate))
        repeated = any(compare(one, candidate).verdict is Verdict.SAME for one in known)
        if not known or repeated:
            continue
        listed = dict(zip(ascii_uppercase, known, strict=False))
        block = _block(number, candidate, listed)
        if len(block) > letters:
            left_out += 1
            continue
        letters -= len(block) + 1
        blocks.append(block)
        asked[number] = listed
    return DecisionPrompt("\n".join(blocks), asked, left_out)


def as_known(candidate: Candidate) -> KnownMemory:
    """A candidate as those after it see it."""
    return KnownMemory(id=candidate.id, category=candidate.category, text=candidate.text)


def _shown(candidate: Candidate, earlier: TextRanker, similar: Similar) -> list[KnownMemory]:
    known = [*earlier(candidate)[:_KNOWN], *similar(candidate)[:_KNOWN]]
    fitting = (one for one in known if comparable(one, candidate))
    return [*{one.id: one for one in fitting}.values()]


def _block(number: int, candidate: Candidate, listed: Mapping[str, KnownMemory]) -> str:
    known = "".join(f"\n  {letter}: {_line(one.text)}" for letter, one in listed.items())
    return f"Candidate {number} ({candidate.category}): {_line(candidate.text)}{known}"


def _line(text: str) -> str:
    return " ".join(text.split())


def decide_by_model(
    candidates: Sequence[Candidate],
    similar: Similar,
    asked: DecisionPrompt,
    answer: Mapping[str, Any],
) -> tuple[list[MemoryDecision], int]:
    """A decision for each candidate, and on how many rules had to decide against the model."""
    batch = Deduplicator(similar)
    told = _told(answer)
    decisions: list[MemoryDecision] = []
    overruled = 0
    for number, candidate in enumerate(candidates, 1):
        listed = asked.asked.get(number)
        decision = _decision(candidate, batch, listed, told.get(number)) if listed else None
        overruled += listed is not None and decision is None
        decisions.append(batch.record(decision) if decision else batch.decide(candidate))
    return decisions, overruled


def _told(answer: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    found: dict[int, Mapping[str, Any]] = {}
    for item in cast("list[Any]", answer.get("decisions", [])):
        match item:
            case {"candidate": int(number), "action": str()}:
                found.setdefault(number, cast("Mapping[str, Any]", item))
            case _:
                pass
    return found


def _decision(
    candidate: Candidate,
    batch: Deduplicator,
    listed: Mapping[str, KnownMemory],
    told: Mapping[str, Any] | None,
) -> MemoryDecision | None:
    """Return a model's decision if it is allowed; None lets the rules decide."""
    if told is None or told["action"] not in list(Action):
        return None
    action = Action(told["action"])
    letters = _LETTER.findall(str(told.get("known") or "").upper().removeprefix("KNOWN"))
    shown = [batch.latest(listed[one]) for one in letters if one in listed]
    known = shown[0] if shown else None
    if action is Action.CREATE:
        # A repeat or a contradiction that rules are sure of does not stand beside the old text.
        sure = any(compare(one, candidate).verdict in _SURE for one in batch.known(candidate))
        return None if sure else create_decision(candidate, "the model finds nothing like it")
    if known is None or not candidate.category.mergeable or not _may(action, known, candidate):
        return None
    told_by_rules = compare(known, candidate)
    if action is Action.SKIP and told_by_rules.verdict is not Verdict.SAME:
        action = Action.MERGE
    if action is Action.UPDATE and _leaves_it_true(told_by_rules, candidate):
        action = Action.MERGE
    decision = MemoryDecision(
        action=action,
        candidate=candidate,
        target=known.id,
        text=known.text,
        reason=f"the model: {known.text}",
    )
    said = _line(str(told.get("text") or ""))
    if action is Action.MERGE:
        return _merging(decision, shown, said)
    if action is Action.UPDATE:
        text = _updated(known, candidate, said)
        return replace(decision, text=text, closed_at=candidate.valid_from or candidate.said_at)
    return decision


def _merging(decision: MemoryDecision, shown: Sequence[KnownMemory], said: str) -> MemoryDecision:
    """Merge a candidate into the first of some memories, and the others too if no word is lost."""
    new = decision.candidate.text
    known = [one for one in dict.fromkeys(shown) if len(one.text) + len(new) < MAX_MEMORY_CHARS]
    texts = [one.text for one in known]
    if len(known) > 1 and _keeps(said, new, *texts):
        return replace(decision, text=said, absorbed=tuple(one.id for one in known[1:]))
    covered = [one.id for one in known[1:] if is_covered(one.text, new)]
    first = shown[0].text
    text = said if _keeps(said, new, first) else merge_texts(first, new)
    return replace(decision, text=text, absorbed=tuple(covered))


def _updated(known: KnownMemory, candidate: Candidate, said: str) -> str:
    """The known text with the candidate in place of the sentence that no longer holds.

    A text of the model is taken instead if it says the candidate and all the other sentences.
    """
    told = compare(known, candidate)
    ended = told.sentence
    if told.verdict is Verdict.OTHER:
        new = frozenset(terms(candidate.text))
        ended = max(sentences(known.text), key=lambda one: len(new & frozenset(terms(one))))
    others = [one for one in sentences(known.text) if one != ended]
    if _within(said, known, candidate) and all(_tells(said, one) for one in others):
        return said
    return replace_sentence(known.text, ended, candidate.text)


def _leaves_it_true(told: TextComparison, candidate: Candidate) -> bool:
    """Return whether rules know that both hold: one says more, or they are facts of different
    kinds.
    """
    if told.verdict is Verdict.MORE:
        return True
    if told.verdict is not Verdict.BESIDE:
        return False
    one, other = fact_of(told.sentence), fact_of(candidate.text)
    return one is not None and other is not None and one.slot != other.slot


def _is_apart(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether rules know that a candidate states another fact than a memory, so that both
    hold.
    """
    facts = [fact_of(one) for one in (candidate.text, *sentences(known.text))]
    return None not in facts and compare(known, candidate).verdict is Verdict.OTHER


_SURE = (Verdict.SAME, Verdict.CHANGED)


def _may(action: Action, known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether two texts have enough in common to be dropped, changed or merged for one
    another.
    """
    verdict = compare(known, candidate).verdict
    if action is Action.SKIP and verdict is Verdict.CHANGED:
        return False
    if action is Action.UPDATE and _is_apart(known, candidate):
        return False
    new, old = frozenset(terms(candidate.text)), frozenset(terms(known.text))
    one, other = fact_of(candidate.text), fact_of(known.text)
    return bool(new & old) or bool(one and other and one.slot == other.slot)


def _within(said: str, known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a text says the candidate, and nothing that neither text says."""
    found, new = frozenset(terms(said)), frozenset(terms(candidate.text))
    return new <= found <= new | frozenset(terms(known.text)) and _tells(said, candidate.text)


def _keeps(said: str, *texts: str) -> bool:
    """Return whether a text has every content word of some others, and no other."""
    wanted = frozenset(term for text in texts for term in terms(text))
    return frozenset(terms(said)) == wanted and _tells(said, *texts)


def _tells(said: str, *texts: str) -> bool:
    """Tell whether a text has all that some others tell, "before" and "C++" included, in order."""
    found = frozenset(content_tokens(expand_contractions(said)))
    return bool(said) and all(
        includes(said, text) and found.issuperset(content_tokens(expand_contractions(text)))
        for text in texts
    )
