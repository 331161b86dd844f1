"""Fork points, and the start of an edited or regenerated branch.

A fork that edits or regenerates a message ends before that message and keeps the system message and
the grants of its source.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

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
from sennit.messages.provider_state import STATE_KEY

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The source of a fork, and how much of its history the fork shares."""

    branch_id: UUID
    """The branch it was forked from."""
    branch_name: str
    """The current name of the source; if it was removed, its name at the time of the fork."""
    created_at: datetime
    """The creation time of the source."""
    message_count: int
    """The number of messages before the fork, including the system message."""


def fork_point(branch: Branch) -> ForkPoint | None:
    """Return the fork point of a branch, if it is a fork."""
    origin = branch.metadata.get("forked_from")
    if origin is None:
        return None
    uid = UUID(origin["branch_id"])
    source = branch.session.get_branch(uid, None)
    return ForkPoint(
        branch_id=uid,
        branch_name=origin["branch_name"] if source is None else source.name,
        created_at=clock.from_iso(origin["created_at"]),
        message_count=origin["message_count"],
    )


def fork_metadata(source: Branch, length: int) -> dict[str, Any]:
    """Return the metadata of a fork that shares `length` messages, not counting the system's."""
    return {
        "forked_from": {
            "branch_id": str(source.id),
            "branch_name": source.name,
            "created_at": clock.to_iso(source.created_us),
            "message_count": length + (source.system_id is not None),
        }
    }


class ForkStart(NamedTuple):
    """The initial content of a fork."""

    length: int
    """The number of shared messages, not counting the system message."""
    system: Message | UUID | None
    messages: tuple[Message, ...] = ()
    """New messages after the shared history."""


def edit_start(
    branch: Branch, old: Message, content: MessageContent | Mapping[str, Any] | str
) -> ForkStart:
    """Return the start of a fork with an edited message; raises ValidationError."""
    from sennit.messages.parts import regroup_metadata  # slow to import

    metadata = regroup_metadata(old.metadata)
    metadata.pop(STATE_KEY, None)  # it belongs to the old content
    new = Message(
        old.content.with_text(content) if isinstance(content, str) else content,
        sender=old.sender,
        recipient=old.recipient,
        metadata={**metadata, "edited_from": str(old.id)},
    )
    if isinstance(new.content, SystemContent) != isinstance(old.content, SystemContent):
        raise ValidationError(
            f"A {old.content.kind} cannot become a {new.content.kind}; a system message "
            f"is set with session.set_branch_system()."
        )
    if old.id == branch.system_id:
        return ForkStart(branch._tail.total, new)
    return ForkStart(_length_before(branch, old), branch.system_id, (new,))


def regeneration_start(branch: Branch, old: Message) -> ForkStart:
    """Return the start of a fork that ends before a reply; raises ValidationError."""
    if old.role is not MessageRole.ASSISTANT:
        raise ValidationError(
            f"Only the assistant's messages can be regenerated, and message {old.id} is from the "
            f"{old.role.value}; use edit() instead."
        )
    return ForkStart(_length_before(branch, old), branch.system_id)


def _length_before(branch: Branch, message: Message) -> int:
    return branch.index(message.id) - (branch.system_id is not None)
