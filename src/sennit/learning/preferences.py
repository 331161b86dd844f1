"""Preferences: two answers to one and the same prompt, of which one was liked better.

Forks make them by themselves: whoever regenerates an answer, or forks and asks a second model, has
two branches that share everything up to the instruction. Where their answers are scored differently
the better one is chosen and the other rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sennit.errors import ValidationError, shown
from sennit.learning.examples import Example, Filter, Which, examples
from sennit.messages.message import Message
from sennit.sessions.session import SessionCore


@dataclass(frozen=True, slots=True)
class Preference:
    """A prompt with a better and a worse answer."""

    chosen: Example
    rejected: Example

    @property
    def prompt(self) -> list[Message]:
        """All that both answers follow, the instruction last."""
        return [*self.chosen.history, self.chosen.instruction]

    @property
    def margin(self) -> float:
        """By how much the chosen answer was liked better."""
        return (self.chosen.score or 0.0) - (self.rejected.score or 0.0)

    def to_chat(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
        """Prompt, chosen and rejected answer as messages of a chat API."""
        prompt, chosen = self.chosen.to_chat()
        return prompt, chosen, self.rejected.to_chat()[1]


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
    if not min_margin >= 0:
        raise ValidationError(f"min_margin is at least 0, got {shown(min_margin)}.")
    everywhere = list(session.branches) if branches is None else branches
    found: dict[Any, list[Example]] = {}
    for example in examples(session, everywhere, Filter(by=by)):
        if example.score is not None:
            found.setdefault(example.exchange.place, []).append(example)
    return [pair for answers in found.values() for pair in _pairs(answers, min_margin)]


def _pairs(answers: list[Example], min_margin: float) -> list[Preference]:
    best = max(answers, key=lambda example: example.score or 0.0)
    pairs = [Preference(best, other) for other in answers if other is not best]
    return [pair for pair in pairs if pair.margin > min_margin]
