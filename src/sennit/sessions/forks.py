"""Fork points, and the start of an edited or regenerated branch.

A fork in which a message is edited, or is to be said anew, ends before that message and keeps the
system message and the grants of the branch it leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sennit import clock
from sennit.errors import ValidationError
from sennit.messages.content import MessageContent, MessageRole, SystemContent
from sennit.messages.message import Message

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The fork point of a branch."""

    branch_id: UUID
    branch_name: str
    """What the branch it left is called; if that is gone, what it was called then."""
    created_at: datetime
    """When the branch it left was created."""
    message_count: int
    """How many of its messages come before the fork, its system message included."""


def fork_point(branch: Branch) -> ForkPoint | None:
    """Return the fork point of a branch, if it is a fork."""
    origin = branch.metadata.get("forked_from")
    if origin is None:
        return None
    uid = UUID(origin["branch_id"])
    left = branch.session.get_branch(uid, None)
    return ForkPoint(
        branch_id=uid,
        branch_name=origin["branch_name"] if left is None else left.name,
        created_at=clock.from_iso(origin["created_at"]),
        message_count=origin["message_count"],
    )


class ForkStart(NamedTuple):
    """The initial content of a fork."""

    length: int
    """How much of the history it shares, not counting the system message."""
    system: Message | UUID | None
    said: tuple[Message, ...] = ()
    """New messages that stand on it."""


def edited(
    branch: Branch, old: Message, content: MessageContent | Mapping[str, Any] | str
) -> ForkStart:
    """A fork in which a message says `content` instead; raises ValidationError."""
    from sennit.messages.parts import regrouped  # late: not everyone speaks in parts

    new = Message(
        old.content.with_text(content) if isinstance(content, str) else content,
        sender=old.sender,
        recipient=old.recipient,
        metadata={**regrouped(old.metadata), "edited_from": str(old.id)},
    )
    if isinstance(new.content, SystemContent) != isinstance(old.content, SystemContent):
        raise ValidationError(
            f"A {old.content.kind} cannot become a {new.content.kind}; a system message "
            f"is set with session.set_branch_system()."
        )
    if old.id == branch.system_id:
        return ForkStart(branch.tail.total, new)
    return ForkStart(_before(branch, old), branch.system_id, (new,))


def unanswered(branch: Branch, old: Message) -> ForkStart:
    """A fork that ends before an answer; raises ValidationError for what is none."""
    if old.role is not MessageRole.ASSISTANT:
        raise ValidationError(
            f"Only the assistant's messages can be regenerated, and message {old.id} is from the "
            f"{old.role.value}; use edit() instead."
        )
    return ForkStart(_before(branch, old), branch.system_id)


def _before(branch: Branch, message: Message) -> int:
    return branch.index(message.id) - (branch.system_id is not None)
