"""The difference between two branches.

The common prefix is found by walking the segments that both share, so comparing two forks of a long
conversation costs time for what differs, not for what is shared. Rewritten branches share ids but
no segments; there, ids are compared one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.segments import Segment, tail_of


@dataclass(frozen=True, slots=True)
class BranchDiff:
    """The common prefix of two branches and the rest of each, without system messages."""

    a: Branch
    """The first branch."""
    b: Branch
    """The second branch."""
    common: int
    """The number of messages in the common prefix."""
    ancestor: Message | None
    """The last message of the common prefix, if any."""
    since_a: tuple[Message, ...]
    """The messages of the first branch after the last common one."""
    since_b: tuple[Message, ...]
    """The messages of the second branch after the last common one."""
    same_system: bool
    """Whether both branches have the same system message."""

    @property
    def sides(self) -> tuple[tuple[Branch, tuple[Message, ...]], ...]:
        """Each branch with its messages since the common prefix."""
        return (self.a, self.since_a), (self.b, self.since_b)

    def __str__(self) -> str:
        counted = f"{self.common} message{'' if self.common == 1 else 's'}"
        lines = [f"{self.a.name} and {self.b.name} share {counted}"]
        if not self.same_system:
            lines.append("  their system messages differ")
        for branch, since in self.sides:
            lines.append(f"{branch.name}: {len(since)} since")
            lines += [f"  {message.role.value}: {_line(message)}" for message in since]
        return "\n".join(lines)


def diff(a: Branch, b: Branch) -> BranchDiff:
    """Compare two branches of one session."""
    with a.session.lock:
        left, right = tail_of(a), tail_of(b)
        common = shared_length(left, right)
        rest_a, rest_b = left.between(common, left.total), right.between(common, right.total)
        messages = a.session.messages
        return BranchDiff(
            a=a,
            b=b,
            common=common,
            ancestor=messages.get(left.id_at(common - 1)) if common else None,
            since_a=tuple(map(messages.get, rest_a)),
            since_b=tuple(map(messages.get, rest_b)),
            same_system=a.system == b.system,
        )


def shared_length(a: Segment, b: Segment) -> int:
    """Return the length of the common prefix of two histories."""
    shared = _shared_in_segments(a, b)
    shortest = min(a.total, b.total)
    while shared < shortest and a.id_at(shared).int == b.id_at(shared).int:
        shared += 1
    return shared


def _shared_in_segments(a: Segment, b: Segment) -> int:
    """Return the length of the common prefix within shared segments."""
    shared = 0
    for (segment_a, count_a), (segment_b, count_b) in zip(a.chain(), b.chain(), strict=False):
        if segment_a is not segment_b:
            break
        shared += min(count_a, count_b)
        if count_a != count_b:
            break
    return shared


def _line(message: Message) -> str:
    text = " ".join(str(message.rendered).split())
    return text if len(text) <= 72 else f"{text[:71]}…"
