"""Versions of a message where branches diverge.

Two branches share a history up to some place; what each has there are two versions of one message.
It is read from the segments the branches share, without looking at what any message says.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sennit.sessions.branch import Branch
from sennit.sessions.diff import shared_length


@dataclass(frozen=True, slots=True)
class MessageVersion:
    """A message at some place, and the first branch that has it there."""

    branch: Branch
    message: UUID


def versions(branch: Branch) -> dict[int, list[MessageVersion]]:
    """By index on the branch, all versions of what stands there, its own included, oldest first.

    Places where all branches agree are left out.
    """
    found: dict[int, dict[int, MessageVersion]] = {}
    with branch.session.lock:
        mine, first = branch.tail, len(branch) - branch.tail.total
        for other in branch.session.branches:
            place = shared_length(mine, other.tail)
            if other is branch or place >= min(mine.total, other.tail.total):
                continue
            here = found.setdefault(place + first, {})
            for one in (branch, other):
                uid = one.tail.id_at(place)
                here.setdefault(uid.int, MessageVersion(one, uid))
        messages = branch.session.messages

        def made(version: MessageVersion) -> tuple[int, UUID]:
            # Not by id alone: one that a client has made need not grow with time.
            return messages.get(version.message).created_us, version.message

        return {index: sorted(here.values(), key=made) for index, here in found.items()}
