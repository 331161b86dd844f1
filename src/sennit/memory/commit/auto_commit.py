"""Automatic commits by number of messages, tokens or idle time.

What is said is counted as it is said, which costs next to nothing; the commit itself is made by the
worker. A count begins with what no commit covers yet, so it goes on where the last program stopped,
and anew with each commit it has caused. A pause is noticed by a program that runs; one that nobody
saw the end of is made up for by the next program with a policy, when that has run as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sennit.messages.message import Message
from sennit.services.models.limits.validators import count, not_negative, positive
from sennit.services.models.usage import tokens_in


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCommit:
    """Conditions for automatic commits; a condition that is None never applies."""

    messages: int | None = None
    """After so many messages."""
    tokens: int | None = None
    """After about so many tokens."""
    idle: float | None = None
    """When nothing was said for so many seconds."""
    keep_recent: int = 0
    """How many messages stay current."""

    def __post_init__(self) -> None:
        for name, check in (("messages", count), ("tokens", count), ("idle", positive)):
            value = getattr(self, name)
            if value is not None:
                check(value, name)
        not_negative(self.keep_recent, "keep_recent")


@dataclass(slots=True)
class _Said:
    messages: int = 0
    letters: int = 0


@dataclass(slots=True)
class CommitCounter:
    """Counts the messages and tokens on branches since their last automatic commit."""

    policy: AutoCommit
    _said: dict[UUID, _Said] = field(default_factory=dict[UUID, _Said])

    def is_due(
        self,
        branch: UUID,
        messages: Sequence[Message],
        current: Callable[[], Sequence[Message]],
    ) -> bool:
        """Count messages; whether it is time to commit now. Then the count begins anew.

        Where nothing was counted yet, all that is `current` counts, these messages among it.
        """
        said = self._said.get(branch)
        if said is None:
            said, messages = _Said(), current()
        self._said[branch] = said
        said.messages += len(messages)
        if self.policy.tokens is not None:
            said.letters += sum(len(message.rendered) for message in messages)
        due = _reached(said.messages, self.policy.messages) or _reached(
            tokens_in(said.letters), self.policy.tokens
        )
        if due:
            self._said[branch] = _Said()
        return due


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit
