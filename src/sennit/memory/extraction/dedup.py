"""Deduplication of candidates: create, update, merge or skip.

Each candidate is compared with the memories most similar to it and with what the candidates before
it have become, so a batch cannot contradict or repeat itself. Events and cases are never merged,
changed or dropped; only a word-for-word repeat of one adds nothing but evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from sennit.memory.extraction.compare import TextComparison, Verdict, compare, covers, is_repeat
from sennit.memory.extraction.similarity import MAX_SIMILAR, Similar, TextRanker
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Action, Candidate, KnownMemory, MemoryDecision

_ACTIONS = {
    Verdict.SAME: Action.SKIP,
    Verdict.CHANGED: Action.UPDATE,
    Verdict.MORE: Action.MERGE,
    Verdict.BESIDE: Action.MERGE,
    Verdict.OTHER: Action.CREATE,
}
_FIRST = (Action.SKIP, Action.UPDATE, Action.MERGE, Action.CREATE)
MAX_MEMORY_CHARS = 4000
"""A memory that would grow past this many characters is not merged with; a new one is begun."""


def decide_by_rules(candidates: Iterable[Candidate], similar: Similar) -> list[MemoryDecision]:
    """A decision for each candidate, in order, without a model."""
    batch = Deduplicator(similar)
    return [batch.decide(candidate) for candidate in candidates]


class Deduplicator:
    """Decides on candidates one after another, each in view of the decisions before it."""

    def __init__(self, similar: Similar) -> None:
        self._similar = similar
        self._own = TextRanker()
        self._now: dict[str, KnownMemory] = {}
        """What memories say after the decisions so far."""
        self._became: dict[str, str] = {}
        """The memory that a candidate became part of, if it did not become one of its own."""
        self._absorbed: set[str] = set()
        """Memories that were merged into another one."""

    def known(self, candidate: Candidate) -> list[KnownMemory]:
        """Return memories about the same subject: own candidates first, then by rank."""
        similar = (one for one in self._similar(candidate) if one.id not in self._absorbed)
        stored = [self._now.get(one.id, one) for one in islice(similar, MAX_SIMILAR)]
        return [one for one in (*self._own(candidate), *stored) if comparable(one, candidate)]

    def latest(self, known: KnownMemory) -> KnownMemory:
        """A memory, or what became of a candidate, after the decisions so far."""
        id = self._became.get(known.id, known.id)
        return self._own.get(id) or self._now.get(id) or replace(known, id=id)

    def decide(self, candidate: Candidate) -> MemoryDecision:
        """The decision of rules."""
        found = [(one, compare(one, candidate)) for one in self.known(candidate)]
        found = [(one, told) for one, told in found if is_applicable(told, one, candidate)]
        best = min(found, key=lambda pair: _FIRST.index(_ACTIONS[pair[1].verdict]), default=None)
        if best is None:
            return self.record(create_decision(candidate))
        decision = decision_from(candidate, *best)
        if decision.action is Action.MERGE:
            others = (one for one, _ in found if one.id != decision.target)
            covered = (one.id for one in others if is_covered(one.text, candidate.text))
            decision = replace(decision, absorbed=tuple(dict.fromkeys(covered)))
        return self.record(decision)

    def record(self, decision: MemoryDecision) -> MemoryDecision:
        """Note a decision, whoever made it; those that follow see what it changed."""
        candidate = decision.candidate
        if decision.action is not Action.CREATE and decision.target is not None:
            self._became[candidate.id] = decision.target
        if decision.action is Action.CREATE:
            self._own.put(
                KnownMemory(
                    id=candidate.id,
                    category=candidate.category,
                    text=decision.text,
                    valid_from=candidate.valid_from,
                    valid_to=candidate.valid_to,
                )
            )
        elif decision.target is not None and decision.action is not Action.SKIP:
            self._changed(decision.target, decision)
        for id in decision.absorbed:
            self._became[id] = decision.target or ""
            self._own.drop(id)
            self._absorbed.add(id)
        return decision

    def _changed(self, target: str, decision: MemoryDecision) -> None:
        changed = KnownMemory(id=target, category=decision.candidate.category, text=decision.text)
        if self._own.get(target):
            self._own.put(changed)
        else:
            self._now[target] = changed


def comparable(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a memory can decide on a candidate: of its category, and about the same time.

    What ceased to hold is not known now, unless the candidate speaks of the past in the same words.
    """
    if known.category is not candidate.category:
        return False
    past = candidate.valid_to is not None and is_repeat(known, candidate)
    return known.valid_to is None or past


def create_decision(
    candidate: Candidate, reason: str = "nothing like it is known"
) -> MemoryDecision:
    """The decision to write a new memory."""
    return MemoryDecision(
        action=Action.CREATE, candidate=candidate, text=candidate.text, reason=reason
    )


def decision_from(candidate: Candidate, known: KnownMemory, told: TextComparison) -> MemoryDecision:
    """The decision that a comparison leads to."""
    action = _ACTIONS[told.verdict]
    if action is Action.CREATE:
        return create_decision(candidate)
    decision = MemoryDecision(
        action=action,
        candidate=candidate,
        target=known.id,
        text=known.text,
        reason=f"{told.verdict.value}: {told.sentence}",
    )
    if action is Action.UPDATE:
        closed_at = candidate.valid_from or candidate.said_at
        text = replace_sentence(known.text, told.sentence, candidate.text)
        return replace(decision, text=text, closed_at=closed_at)
    if action is Action.MERGE:
        return replace(decision, text=merge_texts(known.text, candidate.text))
    return decision


def is_applicable(told: TextComparison, known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a comparison leads anywhere; a memory does not grow without end."""
    if told.verdict in (Verdict.MORE, Verdict.BESIDE):
        return len(known.text) + len(candidate.text) < MAX_MEMORY_CHARS
    return told.verdict is not Verdict.OTHER


def merge_texts(known: str, new: str) -> str:
    """One text that says what both say, each in its own words.

    A known sentence that the new one says in full, and more, is not said twice.
    """
    left = known
    for sentence in sentences(known):
        if covers(new, sentence):
            left = left.replace(sentence, "", 1)
    left = left.strip()
    if not left:
        return new
    ended = left if left.endswith((".", "!", "…")) else f"{left}."
    return f"{ended} {new}"


def is_covered(known: str, new: str) -> bool:
    """Return whether a new text says all that a known memory says, so that the two can become
    one.
    """
    told = sentences(known)
    return bool(told) and all(covers(new, sentence) for sentence in told)


def replace_sentence(text: str, sentence: str, new: str) -> str:
    """Replace one sentence of a text; without such a sentence the new one is the text."""
    return text.replace(sentence, new, 1) if sentence and sentence in text else new
