"""Preferences: pairs of a chosen and a rejected answer to the same prompt.

Forks make them by themselves: whoever regenerates an answer, asks a second model or tries another
system message has several answers to one question. Where their scores differ, the best answer is
chosen and each lower one rejected.

Prompts are compared by what was said, not by who said it or on which branch: the same question
asked on each of two forks is the same prompt. System messages are not compared, because trying two
of them is a reason to fork. The prompt of a pair is the one that the chosen answer followed, with
its system message.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit.errors import ValidationError, shown
from sennit.learning.examples import Example, Filter, Which, examples
from sennit.learning.exchanges import Exchange, of_programs
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
    rejected: Example

    @property
    def prompt(self) -> list[Message]:
        """All that the chosen answer followed, the system message first, the instruction last.

        The rejected answer followed the same, but maybe another system message.
        """
        return [*self.chosen.history, self.chosen.instruction]

    @property
    def margin(self) -> float:
        """By how much the chosen answer was liked better."""
        return (self.chosen.score or 0.0) - (self.rejected.score or 0.0)

    def to_chat(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Prompt, chosen and rejected answer as messages of a chat API."""
        prompt, chosen = self.chosen.to_chat()
        return prompt, chosen, self.rejected.to_chat()[1]


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The answers of a session, compared."""

    pairs: list[Preference]
    left_out: Counter[str]
    """How many answers are in no pair, by the reason."""


def preferences(
    session: SessionCore,
    branches: Which = None,
    *,
    by: str | None = None,
    min_margin: float = 0.0,
) -> list[Preference]:
    """The best answer to each prompt against each that was liked less, by more than `min_margin`.

    By default all branches are looked at; `by` counts one judge's labels only. Raises
    ValidationError for a margin below 0.
    """
    return compare(session, branches, by=by, min_margin=min_margin).pairs


def compare(
    session: SessionCore,
    branches: Which = None,
    *,
    by: str | None = None,
    min_margin: float = 0.0,
) -> AnswerComparison:
    """Pair the answers as `preferences` does, and count those that are in no pair."""
    if not min_margin >= 0:
        raise ValidationError(f"min_margin is at least 0, got {shown(min_margin)}.")
    everywhere = of_programs(session.branches) if branches is None else branches
    found = examples(session, everywhere, Filter(by=by))
    scored = [example for example in found if example.score is not None]
    made = AnswerComparison([], Counter({NO_SCORE: len(found) - len(scored)}))
    prompts = _Prompts(session)
    answers: dict[bytes, list[Example]] = {}
    for example in scored:
        key = prompts.digest(example.exchange) if len(scored) > 1 else b""
        answers.setdefault(key, []).append(example)
    for group in answers.values():
        _compare(group, min_margin, made)
    return AnswerComparison(made.pairs, +made.left_out)


def _compare(answers: list[Example], min_margin: float, made: AnswerComparison) -> None:
    """Add the pairs among the scored answers to one prompt."""
    if len(answers) == 1:
        made.left_out[ONLY_ANSWER] += 1
        return
    best = max(answers, key=lambda example: example.score or 0.0)
    pairs = [Preference(best, other) for other in answers if other is not best]
    kept = [pair for pair in pairs if pair.margin > min_margin]
    made.pairs.extend(kept)
    made.left_out[SAME_SCORE] += len(pairs) - len(kept) + (not kept)


class _Prompts:
    """Digests of prompts without their system messages; shared history is read once."""

    def __init__(self, session: SessionCore) -> None:
        self._messages = session.messages
        self._lock = session.lock
        self._known: dict[UUID, list[bytes]] = {}
        """Of each segment: the digest of all below it, then of all up to each of its entries."""

    def digest(self, exchange: Exchange) -> bytes:
        """The digest of what an exchange answers, its instruction included."""
        with self._lock:
            position = exchange.home.position(exchange.asked)
            if position is None:  # erased since
                return exchange.asked.bytes
            return self._upto(exchange.home, position + 1)

    def _upto(self, home: Segment, length: int) -> bytes:
        """The digest of the first `length` messages of a history."""
        needed: list[tuple[Segment, int]] = []
        segment: Segment | None = home.holder(length - 1)
        while segment is not None:
            needed.append((segment, length - segment.offset))
            if len(self._known.get(segment.id, ())) > needed[-1][1]:
                break
            segment, length = segment.base, segment.offset
        found = b""
        for segment, count in reversed(needed):
            found = self._within(segment, count, found)
        return found

    def _within(self, segment: Segment, count: int, below: bytes) -> bytes:
        """The digest up to the first `count` entries of a segment, with what is below it."""
        known = self._known.setdefault(segment.id, [below])
        for uid in segment[len(known) - 1 : count]:
            record = self._messages.get(uid).to_record()
            said = dumps([record["type"], record.get("content")])
            known.append(hashlib.sha256(known[-1] + said).digest())
        return known[count]
