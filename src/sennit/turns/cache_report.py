"""The use of providers' prompt caches on a branch, as the providers counted it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit.messages.message import Message
from sennit.sessions.branch import Branch


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer, and how much of its prompt was read from a cache."""

    message: UUID
    """The id of its last message."""
    model: str
    """The name of the model, as its provider gave it; empty if unknown."""
    input_tokens: int
    """The tokens of the prompt."""
    cached_tokens: int
    """The tokens of these that were read from a cache."""


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The answers on a branch, oldest first, with what their prompts read from a cache."""

    answers: tuple[CachedAnswer, ...]
    """The answers whose usage is known."""

    @classmethod
    def of(cls, branch: Branch) -> CacheReport:
        """Return the report of a branch; answers before a fork count too."""
        with branch.session.lock:
            messages = branch.messages
        return cls(
            tuple(_answer(message, usage) for message in messages if (usage := _usage(message)))
        )

    @property
    def input_tokens(self) -> int:
        """The tokens of all prompts."""
        return sum(answer.input_tokens for answer in self.answers)

    @property
    def cached_tokens(self) -> int:
        """The tokens that were read from a cache."""
        return sum(answer.cached_tokens for answer in self.answers)

    @property
    def share(self) -> float:
        """The share of tokens read from a cache, of those in the prompts after the first."""
        again = sum(answer.input_tokens for answer in self.answers[1:])
        return sum(answer.cached_tokens for answer in self.answers[1:]) / again if again else 0.0

    def __str__(self) -> str:
        count = len(self.answers)
        return (
            f"{self.cached_tokens:,} of {self.input_tokens:,} prompt tokens in {count} "
            f"answer{'' if count == 1 else 's'} were read from a cache; {self.share:.0%} after the "
            f"first."
        )


def _usage(message: Message) -> Mapping[str, Any] | None:
    match message.metadata.get("usage"):
        case {"input_tokens": int(count), **rest} if count:
            return {"input_tokens": count, **rest}
        case _:
            return None


def _answer(message: Message, usage: Mapping[str, Any]) -> CachedAnswer:
    model = str(message.metadata.get("model") or "")
    return CachedAnswer(message.id, model, usage["input_tokens"], usage.get("cached_tokens", 0))
