"""Deduplication of candidates: create, update, merge or skip.

Two texts are the same, more specific, different or opposite: facts are compared where rules know
them, words where they do not. A memory may have several sentences; a new text is compared with each
of them, and the result concerns only that sentence. In doubt two texts are different: one memory
too many does less harm than one that has absorbed another.

Each candidate is compared with the memories most similar to it and with the results of the
candidates before it, so a batch can neither contradict nor repeat itself. Events and cases are
never merged, changed or dropped; a word-for-word repeat of one only adds evidence.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from typing import TypeAlias

from sennit.memory.extraction.english.clauses import content_terms, expand
from sennit.memory.extraction.english.facts import NO_WORDS, Fact, Words
from sennit.memory.extraction.english.lexicon import ALTERNATIVES, ONE_AT_A_TIME
from sennit.memory.extraction.english.rules import fact_of
from sennit.memory.extraction.terms import (
    FRAME,
    NARROWING,
    NEGATIONS,
    content_tokens,
    is_number,
    stem,
    terms,
    tokens,
    words,
)
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Action, Candidate, Category, KnownMemory, MemoryDecision


class Verdict(Enum):
    """The relation of a new text to a known one."""

    SAME = "says the same"
    CHANGED = "says that it is otherwise"
    MORE = "says more of the same"
    BESIDE = "says something else of the same thing"
    OTHER = "is about something else"


@dataclass(frozen=True, slots=True)
class TextComparison:
    """A verdict, and the sentence of the known text that it concerns."""

    verdict: Verdict
    sentence: str = ""


_VERDICT_ORDER = (Verdict.SAME, Verdict.CHANGED, Verdict.MORE, Verdict.BESIDE, Verdict.OTHER)
_TASTES = frozenset({"like", "prefer", "use"})
_KINDS = tuple(frozenset(terms(names)) for names in ALTERNATIVES)
_SINGLE_VALUE_SLOTS = frozenset({"home", "age", "job", "status"})
"""Slots that have one value at a time."""


def compare(known: KnownMemory, candidate: Candidate) -> TextComparison:
    """Compare a candidate with a memory of the same category."""
    if is_repeat(known, candidate):
        return TextComparison(Verdict.SAME, known.text)
    if not candidate.category.mergeable or known.category is not candidate.category:
        return TextComparison(Verdict.OTHER)
    results = [
        TextComparison(compare_sentences(sentence, candidate.text), sentence)
        for sentence in sentences(known.text)
    ]
    if candidate.valid_to is not None and candidate.valid_to <= candidate.said_at:
        # A statement about a past period says nothing about the present.
        results = [result for result in results if result.verdict is not Verdict.CHANGED]
    return min(
        results,
        key=lambda result: _VERDICT_ORDER.index(result.verdict),
        default=TextComparison(Verdict.OTHER),
    )


def is_repeat(known: KnownMemory, candidate: Candidate) -> bool:
    """Return whether a candidate repeats a memory word for word; for events also the day."""
    if known.category is not candidate.category:
        return False
    if _token_key(known.text) != _token_key(candidate.text):
        return False
    if candidate.category is not Category.EVENTS:
        return True
    return _day(known.valid_from) == _day(candidate.valid_from)


@lru_cache(maxsize=4096)
def _token_key(text: str) -> tuple[str, ...]:
    return tuple(tokens(expand(text)))


def _day(moment: datetime | None) -> object:
    return moment and moment.date()


def compare_sentences(known: str, new: str) -> Verdict:
    """Compare one sentence with another.

    Two sentences that state the same fact are the same only if the new one has no word of its own:
    "I prefer short answers in German" says more than "I prefer short answers", and "I like C++"
    something else than "I like C".
    """
    if _token_key(known) == _token_key(new):
        return Verdict.SAME
    verdict = _compare_facts_or_terms(known, new)
    return Verdict.MORE if verdict is Verdict.SAME and not includes(known, new) else verdict


def _compare_facts_or_terms(known: str, new: str) -> Verdict:
    """Compare the facts of two sentences, or their terms where no rule finds a fact."""
    known_fact, new_fact = fact_of(known), fact_of(new)
    if known_fact is None or new_fact is None:
        return _compare_terms(known, new)
    if known_fact.category is Category.ENTITIES and new_fact.category is Category.ENTITIES:
        verdict = _compare_entities(known_fact, new_fact)
    else:
        verdict = _compare_facts(known_fact, new_fact)
    if verdict is not Verdict.SAME:
        return verdict
    added = _all_terms(new) - new_fact.frame - _all_terms(known) - known_fact.value
    return Verdict.MORE if added else Verdict.SAME


def _all_terms(text: str) -> Words:
    return frozenset(terms(expand(text)))


def includes(text: str, other: str) -> bool:
    """Return whether a text has every content token of another, in its order.

    The words a fact is put in may differ, as in "I live in Lisbon" and "My home is in Lisbon".
    """
    fact = fact_of(other)
    frame = fact.frame if fact else FRAME
    remaining = iter(content_tokens(expand(text)))
    return all(
        token in remaining for token in content_tokens(expand(other)) if stem(token) not in frame
    )


def covers(new: str, known: str) -> bool:
    """Return whether a new sentence says all that a known one says, in the same sense."""
    within = _all_terms(known) <= _all_terms(new) and includes(new, known)
    if not within or _narrows(known, new):
        return False
    return compare_sentences(known, new) in (Verdict.SAME, Verdict.MORE)


def _narrows(known: str, new: str) -> bool:
    """Return whether the words that a new sentence adds restrict it, or name something else.

    "I don't eat meat on Fridays" does not say that I don't eat meat, nor "I like Dune 2" that I
    like Dune.
    """
    known_tokens = frozenset(content_tokens(expand(known)))
    added = [token for token in content_tokens(expand(new)) if token not in known_tokens]
    if not added:
        return False
    only_numbers = all(map(is_number, added))
    return only_numbers or _negations(new) > 0 or not NARROWING.isdisjoint(added)


def _compare_facts(known: Fact, new: Fact) -> Verdict:
    if "stop" in (known.slot, new.slot):
        return _compare_stopped(known, new)
    if _contradicts_taste(known, new):
        return Verdict.CHANGED
    if new.replaces and new.replaces == known.value:
        return Verdict.CHANGED
    if known.slot != new.slot or known.about != new.about:
        return Verdict.OTHER
    if known.value == new.value:
        return _compare_polarity(known, new)
    is_nested = _is_nested(known.value, new.value)
    if known.positive != new.positive:
        return Verdict.CHANGED if known.single and is_nested else Verdict.OTHER
    if is_nested:
        shorter = known.single and new.value < known.value
        return Verdict.SAME if shorter else Verdict.MORE
    if known.single and new.single and new.positive:
        return Verdict.CHANGED
    return Verdict.CHANGED if _only_numbers_differ(known.value, new.value) else Verdict.OTHER


def _contradicts_taste(known: Fact, new: Fact) -> bool:
    """Return whether a known preference no longer holds after a new one of another kind.

    "I no longer like tea" and "I drink coffee now" both end "I prefer tea".
    """
    if known.slot not in _TASTES or not known.positive:
        return False
    if new.slot == "like" and not new.positive:
        return known.slot == "prefer" and known.value == new.value
    if not (new.change and new.positive and new.slot in (*_TASTES, "do")):
        return False
    kind = _alternatives(new)
    return bool(known.value & kind) and known.value.isdisjoint(new.value)


def _alternatives(fact: Fact) -> Words:
    """Return the group of alternatives, such as drinks, to which the value of a fact belongs."""
    return next((kind for kind in _KINDS if not kind.isdisjoint(fact.value)), NO_WORDS)


def _compare_stopped(known: Fact, new: Fact) -> Verdict:
    if not _is_nested(known.value, new.value):
        return Verdict.OTHER
    if known.slot == new.slot:
        return Verdict.SAME
    return Verdict.CHANGED if known.positive or new.positive else Verdict.SAME


def _compare_entities(known: Fact, new: Fact) -> Verdict:
    if known.relation != new.relation:
        return Verdict.OTHER
    if known.about and new.about and not _is_nested(known.about, new.about):
        bare = not known.value and not new.value
        another = bare and new.positive and known.relation in ONE_AT_A_TIME
        return Verdict.CHANGED if another else Verdict.OTHER
    if not new.value:
        return Verdict.SAME if new.positive else Verdict.CHANGED
    if known.value == new.value and (known.slot == new.slot or not known.slot or not new.slot):
        return _compare_polarity(known, new)
    if known.slot != new.slot or known.positive != new.positive:
        return Verdict.BESIDE
    if known.value and known.value < new.value:
        return Verdict.MORE
    is_replaced = new.slot in _SINGLE_VALUE_SLOTS or (new.slot == "use" and new.change)
    if is_replaced or _only_numbers_differ(known.value, new.value):
        return Verdict.CHANGED
    return Verdict.BESIDE


def _compare_polarity(known: Fact, new: Fact) -> Verdict:
    return Verdict.SAME if known.positive == new.positive else Verdict.CHANGED


def _compare_terms(known: str, new: str) -> Verdict:
    known_terms, new_terms = _all_terms(known), _all_terms(new)
    if not known_terms or not new_terms:
        return Verdict.OTHER
    same_sense = _negations(known) % 2 == _negations(new) % 2
    if known_terms == new_terms:
        return Verdict.SAME if same_sense else Verdict.CHANGED
    if not same_sense:
        return Verdict.OTHER
    if _only_numbers_differ(known_terms, new_terms):
        return Verdict.CHANGED
    return (
        Verdict.MORE
        if known_terms < new_terms and len(new_terms) <= 2 * len(known_terms) > 2
        else Verdict.OTHER
    )


def _negations(text: str) -> int:
    return sum(word in NEGATIONS for word in words(expand(text)))


def _is_nested(one: Words, other: Words) -> bool:
    return one <= other or other <= one


def _only_numbers_differ(one: Words, other: Words) -> bool:
    differing = one ^ other
    return bool(one & other) and bool(differing) and all(map(is_number, differing))


Similar: TypeAlias = Callable[[Candidate], Sequence[KnownMemory]]
"""Returns known memories of the candidate's owner and category, most similar first."""

MAX_SIMILAR = 10
"""The number of similar memories that are compared."""
_MAX_POSTINGS = 300
"""The number of postings read for a candidate, so that a batch does not take quadratic time."""

_CUES = {
    "home": "live lives moved based home relocated resides",
    "employer": "work works working joined employer employed job",
    "job": "work works job profession am is",
    "age": "years old age turned",
    "status": "married single divorced engaged widowed",
    "diet": "vegetarian vegan eat",
    "name": "name called",
    "use": "use uses switched",
    "answer": "answer reply respond speak please",
    "prefer": "prefer",
    "favourite": "favourite favorite",
}


def search_text(candidate: Candidate) -> str:
    """Return the search text: the candidate, and other wordings for facts of its slot.

    "I moved to Berlin" has no word in common with "I live in Lisbon", which it changes.
    """
    fact = fact_of(candidate.text)
    cues = "" if fact is None else f"{_CUES.get(fact.slot, '')} {fact.relation}"
    return " ".join([candidate.text, cues, *sorted(_alternatives_if_changed(fact))]).strip()


def _alternatives_if_changed(fact: Fact | None) -> Words:
    """Return what a change of taste may concern: "I drink coffee now" may end "I prefer tea"."""
    return _alternatives(fact) if fact is not None and fact.change else NO_WORDS


class TextRanker:
    """Ranks memories by the terms they share with a candidate, as BM25 does."""

    def __init__(self, known: Iterable[KnownMemory] = ()) -> None:
        self._memories: dict[str, tuple[KnownMemory, Counter[str]]] = {}
        self._postings: defaultdict[tuple[Category, str], dict[str, None]] = defaultdict(dict)
        for memory in known:
            self.put(memory)

    def put(self, known: KnownMemory) -> None:
        """Add a memory, or replace the one with its id."""
        self.drop(known.id)
        frequencies = Counter(_index_terms(known.text))
        self._memories[known.id] = (known, frequencies)
        for word in frequencies:
            self._postings[known.category, word][known.id] = None

    def drop(self, uid: str) -> None:
        """Remove a memory, if it exists."""
        if uid in self._memories:
            old, frequencies = self._memories.pop(uid)
            for word in frequencies:
                self._postings[old.category, word].pop(uid)

    def get(self, uid: str) -> KnownMemory | None:
        """Return the memory with this id."""
        entry = self._memories.get(uid)
        return entry and entry[0]

    def __call__(self, candidate: Candidate) -> list[KnownMemory]:
        """Return the memories that share a term, most similar first; of equals, the latest."""
        scores: defaultdict[str, float] = defaultdict(float)
        budget = _MAX_POSTINGS
        for word, postings in self._rarest_first(candidate):
            rarity = math.log(1 + len(self._memories) / len(postings))
            for uid in islice(reversed(postings), budget):
                budget -= 1
                frequencies = self._memories[uid][1]
                scores[uid] += (
                    rarity * frequencies[word] / (frequencies[word] + 0.1 * len(frequencies))
                )
        best = nlargest(MAX_SIMILAR, scores, key=lambda uid: (scores[uid], uid))
        return [self._memories[uid][0] for uid in best]

    def _rarest_first(self, candidate: Candidate) -> list[tuple[str, dict[str, None]]]:
        changed = _alternatives_if_changed(fact_of(candidate.text))
        terms_to_find = {*_index_terms(candidate.text), *changed}
        postings_by_word = [
            (word, self._postings.get((candidate.category, word))) for word in terms_to_find
        ]
        present = [(word, postings) for word, postings in postings_by_word if postings]
        return sorted(present, key=lambda pair: (len(pair[1]), pair[0]))


def _index_terms(text: str) -> list[str]:
    """Return the terms of a text, and the slots of its facts."""
    facts = [fact for sentence in sentences(text) if (fact := fact_of(sentence))]
    about = [f"{fact.category}:{fact.slot}:{fact.relation}" for fact in facts]
    return [*about, *(terms(text) or map(stem, words(text)))]


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
    if newer is None or max(start, candidate.said_at) >= _milliseconds(newer):
        return replace(decision, text=text, closed_at=start)
    began = known.valid_from if known.valid_from and known.valid_from > start else newer
    reason = f"is older than: {sentence}"
    return replace(decision, text=candidate.text, superseded_at=began, reason=reason)


def _milliseconds(moment: datetime) -> datetime:
    """Truncate a time to milliseconds, the resolution of messages that were added by role."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


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
