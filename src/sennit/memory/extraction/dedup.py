"""Deduplication of candidates: create, update, merge or skip.

Each candidate is compared with the memories most similar to it and with the results of the
candidates before it, so a batch can neither contradict nor repeat itself. Events and cases are
never merged, changed or dropped; a word-for-word repeat of one only adds evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from sennit.memory.extraction.compare import TextComparison, Verdict, compare, covers, is_repeat
from sennit.memory.extraction.english.clauses import content_terms
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
_ACTION_ORDER = (Action.SKIP, Action.UPDATE, Action.MERGE, Action.CREATE)
MAX_MEMORY_CHARS = 4000
"""The size past which a memory is not merged into any more; a new one is created instead."""


def decide_by_rules(candidates: Iterable[Candidate], similar: Similar) -> list[MemoryDecision]:
    """Return a decision for each candidate, in order, without a model."""
    batch = Deduplicator(similar)
    return [batch.decide(candidate) for candidate in candidates]


class Deduplicator:
    """Decides on candidates one after another, each in view of the decisions before it."""

    def __init__(self, similar: Similar) -> None:
        self._similar = similar
        self._batch = TextRanker()
        self._updated: dict[str, KnownMemory] = {}
        """Memories as they are after the decisions so far."""
        self._targets: dict[str, str] = {}
        """The memory that a candidate or an absorbed memory became part of."""
        self._absorbed: set[str] = set()
        """Memories that were merged into another one."""

    def known(self, candidate: Candidate) -> list[KnownMemory]:
        """Return memories to compare with: those of this batch first, then stored ones by rank."""
        similar = (memory for memory in self._similar(candidate) if memory.id not in self._absorbed)
        stored = [self._updated.get(memory.id, memory) for memory in islice(similar, MAX_SIMILAR)]
        return [
            memory for memory in (*self._batch(candidate), *stored) if comparable(memory, candidate)
        ]

    def latest(self, known: KnownMemory) -> KnownMemory:
        """Return a memory, or the one a candidate became part of, after the decisions so far."""
        uid = self._targets.get(known.id, known.id)
        return self._batch.get(uid) or self._updated.get(uid) or replace(known, id=uid)

    def decide(self, candidate: Candidate) -> MemoryDecision:
        """Decide by rules."""
        pairs = [(memory, compare(memory, candidate)) for memory in self.known(candidate)]
        pairs = [
            (memory, comparison)
            for memory, comparison in pairs
            if is_applicable(comparison, memory, candidate)
        ]
        best = min(
            pairs, key=lambda pair: _ACTION_ORDER.index(_ACTIONS[pair[1].verdict]), default=None
        )
        if best is None:
            return self.record(create_decision(candidate))
        decision = decision_from(candidate, *best)
        if decision.action is Action.MERGE:
            others = (memory for memory, _ in pairs if memory.id != decision.target)
            covered = (memory.id for memory in others if is_covered(memory.text, candidate.text))
            decision = replace(decision, absorbed=tuple(dict.fromkeys(covered)))
        return self.record(decision)

    def record(self, decision: MemoryDecision) -> MemoryDecision:
        """Record a decision by rules or a model; later decisions see what it changed."""
        candidate = decision.candidate
        if decision.action is not Action.CREATE and decision.target is not None:
            self._targets[candidate.id] = decision.target
        if decision.action is Action.CREATE:
            known = as_known(candidate, decision.text)
            dated = replace(known, valid_from=candidate.valid_from, valid_to=candidate.valid_to)
            self._batch.put(dated)
        elif decision.superseded_at is not None:
            pass  # the known memory stays as it is
        elif decision.target is not None and decision.action is not Action.SKIP:
            self._update(decision.target, decision)
        for uid in decision.absorbed:
            self._targets[uid] = decision.target or ""
            self._batch.drop(uid)
            self._absorbed.add(uid)
        return decision

    def _update(self, target: str, decision: MemoryDecision) -> None:
        changed = replace(as_known(decision.candidate, decision.text), id=target)
        if self._batch.get(target):
            self._batch.put(changed)
        else:
            self._updated[target] = changed


def comparable(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a memory can decide on a candidate: of its category, and of its time.

    A memory that no longer holds counts only if the candidate repeats it about the past.
    """
    if known.category is not candidate.category:
        return False
    if known.valid_to is None:
        return True
    start = candidate.valid_from or candidate.said_at
    past = known.valid_from is not None and known.valid_from <= start < known.valid_to
    return (past or candidate.valid_to is not None) and is_repeat(known, candidate)


def as_known(candidate: Candidate, text: str) -> KnownMemory:
    """Return a candidate, written as a text, as a known memory for those after it."""
    return KnownMemory(
        id=candidate.id,
        category=candidate.category,
        text=text,
        stated=(candidate.said_at,) * len(sentences(text)),
    )


def create_decision(
    candidate: Candidate, reason: str = "nothing like it is known"
) -> MemoryDecision:
    """Return the decision to create a memory."""
    return MemoryDecision(
        action=Action.CREATE, candidate=candidate, text=candidate.text, reason=reason
    )


def decision_from(
    candidate: Candidate, known: KnownMemory, comparison: TextComparison
) -> MemoryDecision:
    """Return the decision that follows from a comparison."""
    action = _ACTIONS[comparison.verdict]
    if action is Action.CREATE:
        return create_decision(candidate)
    decision = MemoryDecision(
        action=action,
        candidate=candidate,
        target=known.id,
        text=known.text,
        reason=f"{comparison.verdict.value}: {comparison.sentence}",
    )
    if action is Action.UPDATE:
        text = replace_sentence(known.text, comparison.sentence, candidate.text)
        return update_decision(decision, known, comparison.sentence, text)
    if action is Action.MERGE:
        return replace(decision, text=merge_texts(known.text, candidate.text))
    return decision


def update_decision(
    decision: MemoryDecision, known: KnownMemory, sentence: str, text: str
) -> MemoryDecision:
    """Return the decision to replace a sentence, or to store an older statement as history.

    The time of the statements decides, not the order of the commits: a candidate that was stated
    before the known sentence, and is not about a later time, changes nothing that holds now.
    """
    candidate = decision.candidate
    start = candidate.valid_from or candidate.said_at
    times = dict(zip(sentences(known.text), known.stated, strict=False))
    newer = times.get(sentence, known.valid_from)
    if newer is None or max(start, candidate.said_at) >= newer:
        return replace(decision, text=text, closed_at=start)
    began = known.valid_from if known.valid_from and known.valid_from > start else newer
    reason = f"is older than: {sentence}"
    return replace(decision, text=candidate.text, superseded_at=began, reason=reason)


def stated_after(
    before: Mapping[str, int], text: str, candidate: Candidate, said_at: int
) -> tuple[int, ...]:
    """Return when each sentence of a text was last stated, after a candidate was applied to it."""
    return tuple(
        max(before.get(sentence, said_at), said_at)
        if supports(candidate, sentence)
        else before.get(sentence, said_at)
        for sentence in sentences(text)
    )


def supports(candidate: Candidate, text: str) -> bool:
    """Return whether a candidate and its quotes contain every content term of a text."""
    evidence_text = " ".join((candidate.text, *(quoted.quote for quoted in candidate.evidence)))
    return content_terms(text) <= content_terms(evidence_text)


def is_applicable(comparison: TextComparison, known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a comparison leads to a decision; a memory must not grow past its limit."""
    if comparison.verdict in (Verdict.MORE, Verdict.BESIDE):
        return len(known.text) + len(candidate.text) < MAX_MEMORY_CHARS
    return comparison.verdict is not Verdict.OTHER


def merge_texts(known: str, new: str) -> str:
    """Return one text with the statements of both, each in its own words.

    A known sentence that the new text covers is dropped.
    """
    remaining = known
    for sentence in sentences(known):
        if covers(new, sentence):
            remaining = remaining.replace(sentence, "", 1)
    remaining = remaining.strip()
    if not remaining:
        return new
    ended = remaining if remaining.endswith((".", "!", "…")) else f"{remaining}."
    return f"{ended} {new}"


def is_covered(known: str, new: str) -> bool:
    """Return whether a new text says all that a known memory says."""
    known_sentences = sentences(known)
    return bool(known_sentences) and all(covers(new, sentence) for sentence in known_sentences)


def replace_sentence(text: str, sentence: str, new: str) -> str:
    """Replace a sentence of a text; if the text lacks it, return the new text."""
    return text.replace(sentence, new, 1) if sentence and sentence in text else new
