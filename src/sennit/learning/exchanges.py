"""Exchanges: an instruction and the messages that answer it.

Forks share history, so iterating over all branches goes back from the end of each branch only to
the first position that was already visited: a chain of ten thousand forks costs its distinct
messages, not the sum of its branches.

A predictor of a DSPy program may have turns of its own, on a separate branch. They repeat the turns
of the program, so they are used only if their branch is selected by name.

An exchange copies no messages. It holds message ids and the segment of its instruction, and pins
that segment, so a later rewrite creates a new one; its history is read from there lazily.
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

METADATA_KEY = "dspy"
"""The message metadata key of DSPy sessions."""
NODE_FIELD = "node"
"""The field of that metadata that names the predictor of a turn."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An instruction and the ids of its answer."""

    session: SessionCore = field(repr=False)
    branch: str
    """The branch it was read from; other branches may share it."""
    system: UUID | None
    segment: Segment = field(repr=False)
    """The segment that contains the instruction."""
    instruction_id: UUID
    answer_ids: tuple[UUID, ...]

    @property
    def prompt_key(self) -> tuple[UUID | None, UUID, UUID]:
        """A key that is equal for all exchanges with the same prompt."""
        return self.system, self.segment.id, self.instruction_id

    def before(self) -> list[Message]:
        """Return the messages before the instruction, system message first."""
        with self.session.lock:
            position = self.segment.position(self.instruction_id)
            earlier = [] if position is None else self.segment.between(0, position)
            system = [] if self.system is None else [self.system]
            return self.session.messages.pick([*system, *earlier])

    def instruction(self) -> Message:
        """Return the instruction; raises NotFoundError if it was erased."""
        return self.session.messages.get(self.instruction_id)

    def answer(self) -> list[Message]:
        """Return the answer's messages in order; raises NotFoundError if one was erased."""
        return self.session.messages.pick(self.answer_ids)


def is_predictor_turn(metadata: Mapping[str, Any]) -> bool:
    """Return whether message metadata belongs to a turn of a single predictor."""
    dspy_metadata = metadata.get(METADATA_KEY)
    return isinstance(dspy_metadata, Mapping) and NODE_FIELD in dspy_metadata


def program_branches(branches: Iterable[Branch]) -> list[Branch]:
    """Return the branches whose last message is not a turn of a single predictor."""
    return [
        branch
        for branch in branches
        if not branch.tail.total
        or not is_predictor_turn(
            branch.session.messages.get(branch.tail.id_at(branch.tail.total - 1)).metadata
        )
    ]


def branch_exchanges(branch: Branch) -> Iterator[Exchange]:
    """Yield the answered instructions of a branch, in order."""
    return _exchanges_from(branch, 0)


def distinct_exchanges(branches: Iterable[Branch]) -> Iterator[Exchange]:
    """Yield the answered instructions of several branches, without shared duplicates."""
    visited: dict[UUID, int] = {}
    for branch in branches:
        first = _visit(branch.tail, visited)
        if first < branch.tail.total:
            yield from _exchanges_from(branch, first)


class BranchView(Protocol):
    """A branch, or the stored record of one."""

    @property
    def tail(self) -> Segment:
        """The last segment of the history."""
        ...

    @property
    def system(self) -> Message | UUID | None:
        """The system message, or its id."""
        ...


_S = TypeVar("_S", bound=BranchView)


def leaves(branches: Iterable[_S]) -> list[_S]:
    """Return the branches that no other one extends; of equal ones, the first."""
    ends: dict[tuple[UUID, int, Message | UUID | None], _S] = {}
    longest: dict[UUID, int] = {}
    built_on: dict[UUID, int] = {}
    for branch in branches:
        last, total = _last_segment(branch.tail)
        ends.setdefault((last.id, total, branch.system), branch)
        longest[last.id] = max(longest.get(last.id, 0), total)
        _record_bases(last, built_on)
    return [
        branch
        for (last, total, _), branch in ends.items()
        if total == longest[last] and total > built_on.get(last, -1)
    ]


def _last_segment(tail: Segment) -> tuple[Segment, int]:
    """Return the segment with the last message of a history, and the history's length."""
    return (tail.segment_at(tail.total - 1) if tail.total else tail), tail.total


def _record_bases(segment: Segment, built_on: dict[UUID, int]) -> None:
    """Record up to which position the base segments of a segment are extended."""
    while (base := segment.base) is not None and built_on.get(base.id, -1) < segment.offset:
        built_on[base.id] = segment.offset
        segment = base


def _visit(tail: Segment, visited: dict[UUID, int]) -> int:
    """Mark a history as visited; return the first position that was not visited before."""
    segment: Segment | None = tail
    limit = tail.total
    while segment is not None:
        visited_length = visited.get(segment.id, segment.offset)
        visited[segment.id] = max(visited_length, limit)
        if visited_length > segment.offset:
            return min(visited_length, limit)
        segment, limit = segment.base, segment.offset
    return 0


def _exchanges_from(branch: Branch, first: int) -> Iterator[Exchange]:
    """Yield the exchanges that end after a position, including one that starts before it."""
    session, tail = branch.session, branch.tail
    with session.lock:
        start = _instruction_at_or_before(branch, first)
        ids = tail.between(start, tail.total)
        messages = session.messages.pick(ids)
        system = branch.system
    system_id = None if system is None else system.id
    for begin, end in _spans(messages):
        if start + end > first:
            segment = tail.segment_at(start + begin)
            segment.mark_shared(start + begin + 1)
            yield Exchange(
                session, branch.name, system_id, segment, ids[begin], tuple(ids[begin + 1 : end])
            )


def _instruction_at_or_before(branch: Branch, position: int) -> int:
    messages = branch.session.messages
    while position > 0 and not _is_instruction(messages.get(branch.tail.id_at(position))):
        position -= 1
    return position


def _is_instruction(message: Message) -> bool:
    return message.content.from_user and not message.content.empty


def _spans(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each answered instruction."""
    begin: int | None = None
    answered = False
    for index, message in enumerate(messages):
        if _is_instruction(message):
            if begin is not None and answered:
                yield begin, index
            begin, answered = index, False
        elif message.role is MessageRole.ASSISTANT:
            answered = True
    if begin is not None and answered:
        yield begin, len(messages)
