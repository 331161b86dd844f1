"""Exchanges: an instruction and the messages that answer it.

Branches share history, so most of what a fork shows was said once, on another branch. Walking all
branches therefore goes down from each end only as far as nobody has been before: a chain of ten
thousand forks costs what was said in it, not the sum of its branches.

A predictor of a DSPy program may have turns of its own, on a branch beside the program's. They tell
what the turns of the program tell, so they are learnt from only where their branch is named.

An exchange copies nothing. It names its messages and the segment its instruction stands in, which
from then on is rewritten beside it, never in place; its history is read there when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

from sennit.messages.content import (
    MessageRole,
)
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.segments import Segment
from sennit.sessions.session import SessionCore

KEY = "dspy"
"""Under which metadata of messages say what they are to a program."""
NODE = "node"
"""What names there the predictor whose own turn a message ends."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An instruction and what answered it."""

    session: SessionCore = field(repr=False)
    branch: str
    """The branch it was found on; others may share it."""
    system: UUID | None
    home: Segment = field(repr=False)
    """Where the instruction stands."""
    asked: UUID
    answered: tuple[UUID, ...]

    @property
    def place(self) -> tuple[UUID | None, UUID, UUID]:
        """The same for all exchanges that answer one and the same prompt."""
        return self.system, self.home.id, self.asked

    def before(self) -> list[Message]:
        """All that was said before the instruction, the system message first."""
        with self.session.lock:
            position = self.home.position(self.asked)
            earlier = [] if position is None else self.home.between(0, position)
            first = [] if self.system is None else [self.system]
            return self.session.messages.pick([*first, *earlier])

    def instruction(self) -> Message:
        """Return the instruction; raises NotFoundError if it was erased."""
        return self.session.messages.get(self.asked)

    def answer(self) -> list[Message]:
        """Return the answer's messages in order; raises NotFoundError if one was erased."""
        return self.session.messages.pick(self.answered)


def of_predictor(last: Mapping[str, Any]) -> bool:
    """Return whether a history has the own turns of a predictor, by the metadata of its last
    message.
    """
    note = last.get(KEY)
    return isinstance(note, Mapping) and NODE in note


def of_programs(branches: Iterable[Branch]) -> list[Branch]:
    """The branches that do not only have own turns of predictors."""
    return [
        one
        for one in branches
        if not one.tail.total
        or not of_predictor(one.session.messages.get(one.tail.id_at(one.tail.total - 1)).metadata)
    ]


def on_branch(branch: Branch) -> Iterator[Exchange]:
    """The answered instructions of a branch, in order."""
    return _from(branch, 0)


def on_branches(branches: Iterable[Branch]) -> Iterator[Exchange]:
    """Those of several branches, each once, and none that another only goes on with."""
    walked: dict[UUID, int] = {}
    for branch in branches:
        first = _unwalked(branch.tail, walked)
        if first < branch.tail.total:
            yield from _from(branch, first)


class BranchView(Protocol):
    """A branch, or what is kept of one."""

    @property
    def tail(self) -> Segment:
        """The last segment of its history."""
        ...

    @property
    def system(self) -> Message | UUID | None:
        """Its system message."""
        ...


_S = TypeVar("_S", bound=BranchView)


def leaves(branches: Iterable[_S]) -> list[_S]:
    """The branches that no other one goes on from; of several that say the same, the first."""
    ends: dict[tuple[UUID, int, Message | UUID | None], _S] = {}
    longest: dict[UUID, int] = {}
    built_on: dict[UUID, int] = {}
    for branch in branches:
        last, total = _end(branch.tail)
        ends.setdefault((last.id, total, branch.system), branch)
        longest[last.id] = max(longest.get(last.id, 0), total)
        _note_bases(last, built_on)
    return [
        branch
        for (last, total, _), branch in ends.items()
        if total == longest[last] and total > built_on.get(last, -1)
    ]


def _end(tail: Segment) -> tuple[Segment, int]:
    """The segment in which a history ends, and its length."""
    return (tail.holder(tail.total - 1) if tail.total else tail), tail.total


def _note_bases(segment: Segment, built_on: dict[UUID, int]) -> None:
    """Note how much of the segments below one is built on, as far as it is not known yet."""
    while (base := segment.base) is not None and built_on.get(base.id, -1) < segment.offset:
        built_on[base.id] = segment.offset
        segment = base


def _unwalked(tail: Segment, walked: dict[UUID, int]) -> int:
    """The position from which on nobody has walked; from now on all of it has been."""
    segment: Segment | None = tail
    limit = tail.total
    while segment is not None:
        known = walked.get(segment.id, segment.offset)
        walked[segment.id] = max(known, limit)
        if known > segment.offset:
            return min(known, limit)
        segment, limit = segment.base, segment.offset
    return 0


def _from(branch: Branch, first: int) -> Iterator[Exchange]:
    """The exchanges that reach past a position, the one that begins before it included."""
    session, tail = branch.session, branch.tail
    with session.lock:
        start = _instruction_at_or_before(branch, first)
        ids = tail.between(start, tail.total)
        said = session.messages.pick(ids)
        system = branch.system
    uid = None if system is None else system.id
    for begin, end in _spans(said):
        if start + end > first:
            home = tail.holder(start + begin)
            home.hold(start + begin + 1)
            yield Exchange(session, branch.name, uid, home, ids[begin], tuple(ids[begin + 1 : end]))


def _instruction_at_or_before(branch: Branch, position: int) -> int:
    messages = branch.session.messages
    while position > 0 and not _asks(messages.get(branch.tail.id_at(position))):
        position -= 1
    return position


def _asks(message: Message) -> bool:
    return message.content.from_user and not message.content.empty


def _spans(said: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each answered instruction."""
    begin: int | None = None
    answered = False
    for index, message in enumerate(said):
        if _asks(message):
            if begin is not None and answered:
                yield begin, index
            begin, answered = index, False
        elif message.role is MessageRole.ASSISTANT:
            answered = True
    if begin is not None and answered:
        yield begin, len(said)
