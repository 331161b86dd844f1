"""Preferences: pairs of a chosen and a rejected answer to the same prompt.

Forks produce them: regenerating an answer, asking a second model or trying another system message
gives several answers to one question. If their scores differ, the best answer is chosen and each
lower one rejected.

Prompts are compared by content, not by sender or branch: the same question on two forks is the same
prompt. System messages are not compared, because trying two of them is a reason to fork. The prompt
of a pair is that of the chosen answer, with its system message.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit.errors import ValidationError, short_repr
from sennit.learning.examples import (
    BranchSelection,
    Example,
    Filter,
    examples,
    program_branches,
)
from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.sessions.segments import Segment
from sennit.sessions.session import SessionCore

NO_SCORE = "is an answer without a score"
ONLY_ANSWER = "is the only scored answer to its prompt"
SAME_SCORE = "is scored like the best answer to its prompt"


@dataclass(frozen=True, slots=True)
class Preference:
    """A prompt with a better and a worse answer."""

    chosen: Example
    """The better answer."""
    rejected: Example
    """The worse answer."""

    @property
    def prompt(self) -> list[Message]:
        """The messages before the chosen answer, system message first, instruction last.

        The rejected answer has the same prompt, but may have another system message.
        """
        return [*self.chosen.history, self.chosen.instruction]

    @property
    def margin(self) -> float:
        """The score of the chosen answer minus that of the rejected one."""
        return (self.chosen.score or 0.0) - (self.rejected.score or 0.0)

    def to_chat(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the prompt, the chosen and the rejected answer as chat API messages."""
        prompt, chosen = self.chosen.to_chat()
        return prompt, chosen, self.rejected.to_chat()[1]


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The preference pairs of a session, and the answers without a pair."""

    pairs: list[Preference]
    left_out: Counter[str]
    """The number of answers in no pair, by reason."""


def compare(
    session: SessionCore,
    branches: BranchSelection = None,
    *,
    by: str | None = None,
    min_margin: float = 0.0,
) -> AnswerComparison:
    """Pair the best answer to a prompt with each one scored lower by more than `min_margin`.

    By default all branches are compared; `by` selects the labels of one judge. Raises
    ValidationError for a margin below 0.
    """
    if not min_margin >= 0:
        raise ValidationError(f"min_margin must be at least 0, got {short_repr(min_margin)}.")
    selected = program_branches(session.branches) if branches is None else branches
    all_examples = examples(session, selected, Filter(by=by))
    scored = [example for example in all_examples if example.score is not None]
    comparison = AnswerComparison([], Counter({NO_SCORE: len(all_examples) - len(scored)}))
    digests = _PromptDigests(session)
    answers_by_prompt: dict[bytes, list[Example]] = {}
    for example in scored:
        key = digests.digest(example) if len(scored) > 1 else b""
        answers_by_prompt.setdefault(key, []).append(example)
    for group in answers_by_prompt.values():
        _add_pairs(group, min_margin, comparison)
    return AnswerComparison(comparison.pairs, +comparison.left_out)


def _add_pairs(answers: list[Example], min_margin: float, comparison: AnswerComparison) -> None:
    """Add the pairs of the scored answers to one prompt."""
    if len(answers) == 1:
        comparison.left_out[ONLY_ANSWER] += 1
        return
    best = max(answers, key=lambda example: example.score or 0.0)
    pairs = [Preference(best, other) for other in answers if other is not best]
    distinct = [pair for pair in pairs if pair.margin > min_margin]
    comparison.pairs.extend(distinct)
    comparison.left_out[SAME_SCORE] += len(pairs) - len(distinct) + (not distinct)


class _PromptDigests:
    """Digests of prompts without their system messages, cached by segment."""

    def __init__(self, session: SessionCore) -> None:
        self._messages = session.messages
        self._lock = session.lock
        self._digests: dict[UUID, list[bytes]] = {}
        """By segment: the digest of the history before it, then up to each of its entries."""

    def digest(self, example: Example) -> bytes:
        """Return the digest of the history of an example, including its instruction."""
        with self._lock:
            position = example.segment.position(example.instruction_id)
            if position is None:  # erased since
                return example.instruction_id.bytes
            return self._history_digest(example.segment, position + 1)

    def _history_digest(self, last_segment: Segment, length: int) -> bytes:
        """Return the digest of the first `length` messages of a history."""
        missing: list[tuple[Segment, int]] = []
        segment: Segment | None = last_segment.segment_at(length - 1)
        while segment is not None:
            missing.append((segment, length - segment.offset))
            if len(self._digests.get(segment.id, ())) > missing[-1][1]:
                break
            segment, length = segment.base, segment.offset
        digest = b""
        for segment, count in reversed(missing):
            digest = self._segment_digest(segment, count, digest)
        return digest

    def _segment_digest(self, segment: Segment, count: int, base_digest: bytes) -> bytes:
        """Return the digest up to the first `count` entries of a segment, after `base_digest`."""
        digests = self._digests.setdefault(segment.id, [base_digest])
        for uid in segment[len(digests) - 1 : count]:
            record = self._messages.get(uid).to_record()
            encoded = dumps([record["type"], record.get("content")])
            digests.append(hashlib.sha256(digests[-1] + encoded).digest())
        return digests[count]
