"""Automatic commits by number of messages, tokens or idle time.

Messages are counted as they are added, which is cheap; the commit runs on the background worker. A
count starts with the messages that no commit covers, so it continues where the last process
stopped, and restarts with each commit it triggers. Idle time is measured while a process runs; if
the process ended first, the next one with a policy commits after the same idle time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sennit.errors import suggesting_names
from sennit.messages.message import Message
from sennit.numbers import count, not_negative, positive
from sennit.services.models.usage import tokens_of_chars


@suggesting_names
@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCommit:
    """Conditions for automatic commits; a condition that is None never applies."""

    messages: int | None = None
    """Commit after this many messages."""
    tokens: int | None = None
    """Commit after about this many tokens."""
    idle: float | None = None
    """Commit after this many seconds without a new message."""
    keep_recent: int = 0
    """The number of messages that stay current."""

    def __post_init__(self) -> None:
        for name, check in (("messages", count), ("tokens", count), ("idle", positive)):
            value = getattr(self, name)
            if value is not None:
                check(value, name)
        not_negative(self.keep_recent, "keep_recent")


@dataclass(slots=True)
class _Counts:
    messages: int = 0
    chars: int = 0


@dataclass(slots=True)
class CommitCounter:
    """Counts the messages and tokens on branches since their last automatic commit."""

    policy: AutoCommit
    _counts: dict[UUID, _Counts] = field(default_factory=dict[UUID, _Counts])

    def is_due(
        self,
        branch: UUID,
        messages: Sequence[Message],
        load_current: Callable[[], Sequence[Message]],
    ) -> bool:
        """Count messages and return whether a commit is due now; if so, restart the count.

        The first count of a branch includes all messages of `load_current`.
        """
        counts = self._counts.get(branch)
        if counts is None:
            counts, messages = _Counts(), load_current()
        self._counts[branch] = counts
        counts.messages += len(messages)
        if self.policy.tokens is not None:
            counts.chars += sum(len(message.rendered) for message in messages)
        due = _is_reached(counts.messages, self.policy.messages) or _is_reached(
            tokens_of_chars(counts.chars), self.policy.tokens
        )
        if due:
            self._counts[branch] = _Counts()
        return due


def _is_reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit
