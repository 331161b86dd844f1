"""The difference between two branches.

The shared beginning is found by walking the segments the two have in common, so comparing two forks
of a long conversation costs what they differ in, not what they share. Branches that were rewritten
share ids rather than segments; from there on ids are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.segments import Segment


@dataclass(frozen=True, slots=True)
class BranchDiff:
    """The messages that two branches share, and those that each has since; system messages
    apart.
    """

    a: Branch
    b: Branch
    common: int
    """How many messages of the history both begin with."""
    ancestor: Message | None
    """The last message both have, if any."""
    since_a: tuple[Message, ...]
    since_b: tuple[Message, ...]
    same_system: bool

    def __str__(self) -> str:
        counted = f"{self.common} message{'' if self.common == 1 else 's'}"
        lines = [f"{self.a.name} and {self.b.name} share {counted}"]
        if not self.same_system:
            lines.append("  their system messages differ")
        for branch, since in ((self.a, self.since_a), (self.b, self.since_b)):
            lines.append(f"{branch.name}: {len(since)} since")
            lines += [f"  {message.role.value}: {_line(message)}" for message in since]
        return "\n".join(lines)


def diff(a: Branch, b: Branch) -> BranchDiff:
    """Compare two branches of one session."""
    with a.session.lock:
        left, right = a.tail, b.tail
        common = shared_length(left, right)
        mine, other = left.between(common, left.total), right.between(common, right.total)
        messages = a.session.messages
        return BranchDiff(
            a=a,
            b=b,
            common=common,
            ancestor=messages.get(left.id_at(common - 1)) if common else None,
            since_a=tuple(map(messages.get, mine)),
            since_b=tuple(map(messages.get, other)),
            same_system=a.system == b.system,
        )


def shared_length(a: Segment, b: Segment) -> int:
    """Return the number of messages at which two histories begin to differ."""
    shared = _in_same_segments(a, b)
    shortest = min(a.total, b.total)
    while shared < shortest and a.id_at(shared).int == b.id_at(shared).int:
        shared += 1
    return shared


def _in_same_segments(a: Segment, b: Segment) -> int:
    """Return the number of messages that two branches share by standing in the same segments."""
    shared = 0
    for (left, mine), (right, other) in zip(a.chain(), b.chain(), strict=False):
        if left is not right:
            break
        shared += min(mine, other)
        if mine != other:
            break
    return shared


def _line(message: Message) -> str:
    said = " ".join(str(message.rendered).split())
    return said if len(said) <= 72 else f"{said[:71]}…"
