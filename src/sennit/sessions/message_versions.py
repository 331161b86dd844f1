"""Versions of a message where branches diverge.

Where two branches diverge, their messages at that position are versions of one message. Positions
are computed from shared segments, without reading any content.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sennit.sessions.branch import Branch
from sennit.sessions.diff import shared_length


@dataclass(frozen=True, slots=True)
class MessageVersion:
    """A version of a message, and the first branch that has it."""

    branch: Branch
    message: UUID


def versions(branch: Branch) -> dict[int, list[MessageVersion]]:
    """Return all versions of the branch's messages by index, its own included, oldest first.

    Indices where all branches agree are left out.
    """
    by_index: dict[int, dict[int, MessageVersion]] = {}
    with branch.session.lock:
        mine, first = branch._tail, len(branch) - branch._tail.total
        for other in branch.session.branches:
            position = shared_length(mine, other._tail)
            if other is branch or position >= min(mine.total, other._tail.total):
                continue
            alternatives = by_index.setdefault(position + first, {})
            for candidate in (branch, other):
                uid = candidate._tail.id_at(position)
                alternatives.setdefault(uid.int, MessageVersion(candidate, uid))
        messages = branch.session.messages

        def creation_key(version: MessageVersion) -> tuple[int, UUID]:
            # Not by id alone: ids that clients supply need not be ordered by time.
            return messages.get(version.message).created_us, version.message

        return {
            index: sorted(alternatives.values(), key=creation_key)
            for index, alternatives in by_index.items()
        }
