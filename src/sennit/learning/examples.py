"""Training examples: one per answered instruction of a branch.

An example is a prompt (the history and the instruction) and its answer. It copies no messages: it
holds message ids and the segment of its instruction, and pins that segment, so a later rewrite
creates a new one; its history is read from there lazily.

Forks share history, so iterating over all branches goes back from the end of each branch only to
the first position that was already visited: a chain of ten thousand forks costs its distinct
messages, not the sum of its branches.

A predictor of a DSPy program may have turns of its own, on a separate branch. They repeat the turns
of the program, so they are used only if their branch is selected by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from sennit.errors import ValidationError, short_repr
from sennit.learning.labels import Label, average_score, finite_score, label_many, labels_by_message
from sennit.messages.content import AssistantResponseContent, InstructionContent, MessageRole
from sennit.messages.message import Message
from sennit.messages.openai_chat import accepted_chat
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.sessions.blobs import inline_blobs
from sennit.sessions.branch import Branch
from sennit.sessions.segments import Segment, tail_of
from sennit.sessions.session import BranchRef, SessionCore

METADATA_KEY = "dspy"
"""The message metadata key of DSPy sessions."""
NODE_FIELD = "node"
"""The field of that metadata that names the predictor of a turn."""

BranchSelection: TypeAlias = BranchRef | Iterable[BranchRef] | None
"""Branches to learn from: one, several, or (None) all leaves.

All leaves excludes branches with the turns of single predictors of a DSPy program.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """An instruction with its history, answer and labels."""

    session: SessionCore = field(repr=False)
    """The session it comes from."""
    branch: str
    """The name of the branch it was read from; other branches may share it."""
    system_id: UUID | None = field(repr=False)
    """The id of the system message."""
    segment: Segment = field(repr=False)
    """The segment that contains the instruction."""
    instruction_id: UUID = field(repr=False)
    """The id of the message that was answered."""
    answer_ids: tuple[UUID, ...] = field(repr=False)
    """The ids of the answer's messages, tool calls and results included."""
    labels: tuple[Label, ...] = ()
    """The scores that people and metrics gave the answer."""

    @property
    def prompt_key(self) -> tuple[UUID | None, UUID, UUID]:
        """A key that is equal for all examples with the same prompt."""
        return self.system_id, self.segment.id, self.instruction_id

    @property
    def history(self) -> list[Message]:
        """The messages before the instruction, system message first; read on each access."""
        with self.session.lock:
            position = self.segment.position(self.instruction_id)
            earlier = [] if position is None else self.segment.between(0, position)
            system = [] if self.system_id is None else [self.system_id]
            return self.session.messages.pick([*system, *earlier])

    @property
    def instruction(self) -> Message:
        """The instruction; raises NotFoundError if it was erased."""
        return self.session.messages.get(self.instruction_id)

    @property
    def answer(self) -> list[Message]:
        """The answer: texts, tool calls and their results, in order; raises NotFoundError."""
        return self.session.messages.pick(self.answer_ids)

    @property
    def messages(self) -> list[Message]:
        """The messages of history, instruction and answer."""
        return [*self.history, self.instruction, *self.answer]

    @property
    def asked(self) -> str:
        """The text of the instruction."""
        return self.instruction.content.words

    @property
    def answered(self) -> str:
        """The text of the answer, without tool calls and results."""
        texts = [
            message.content.words
            for message in self.answer
            if isinstance(message.content, AssistantResponseContent)
        ]
        return "\n\n".join(filter(None, texts))

    @property
    def score(self) -> float | None:
        """The average of the answer's labels; None without labels."""
        return average_score(self.labels)

    def to_chat(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the prompt as sent to a model, and the answer, as chat API messages."""
        prompt = [*inline_blobs(self.session, [*self.history, self.instruction])]
        answer = [_PLACEHOLDER_INSTRUCTION, *inline_blobs(self.session, self.answer)]
        return accepted_chat(to_model_messages(prompt)), to_model_messages(answer)[1:]


_PLACEHOLDER_INSTRUCTION = Message(InstructionContent(instruction="?"))
"""A prompt for converting an answer alone, since a chat starts with a user message."""

Metric: TypeAlias = Callable[[Example], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of examples."""

    min_score: float | None = None
    """The minimum score; if set, examples without a score are left out too."""
    strict_trajectory: bool = False
    """True to leave out all examples after the first one left out on a branch."""
    by: str | None = None
    """The judge whose labels count; None for all judges."""

    def __post_init__(self) -> None:
        if self.min_score is not None:
            finite_score(self.min_score)
        if self.strict_trajectory and self.min_score is None:
            raise ValidationError("strict_trajectory=True needs a min_score.")

    def keeps(self, example: Example) -> bool:
        """Return whether an example reaches the minimum score."""
        score = example.score
        return self.min_score is None or (score is not None and score >= self.min_score)


def examples(
    session: SessionCore, branches: BranchSelection = None, keep: Filter | None = None
) -> list[Example]:
    """Return the answered instructions of branches, each once, in order; raises NotFoundError."""
    keep = keep or Filter()
    labels = labels_by_message(session, by=keep.by)
    selected = resolve_branches(session, branches)
    if keep.strict_trajectory:
        return _until_first_rejected(selected, labels, keep)
    labelled = (_with_labels(example, labels) for example in _distinct_examples(selected))
    return list(filter(keep.keeps, labelled))


def _until_first_rejected(
    branches: Sequence[Branch], labels: dict[Any, list[Label]], keep: Filter
) -> list[Example]:
    """Return the examples of each branch before the first rejected one, without duplicates."""
    distinct: dict[tuple[Any, ...], Example] = {}
    for branch in branches:
        for unlabelled in _examples_from(branch, 0):
            example = _with_labels(unlabelled, labels)
            if not keep.keeps(example):
                break
            distinct.setdefault((*example.prompt_key, example.answer_ids), example)
    return list(distinct.values())


def _with_labels(example: Example, labels: dict[Any, list[Label]]) -> Example:
    found = tuple(label for uid in example.answer_ids for label in labels.get(uid, ()))
    return replace(example, labels=found) if found else example


def resolve_branches(session: SessionCore, which: BranchSelection) -> list[Branch]:
    """Return the selected branches; raises NotFoundError for a missing one."""
    if which is None:
        return program_branches(leaves(session.branches))
    if isinstance(which, (str, UUID, Branch)):
        return [session.get_branch(which)]
    return [session.get_branch(ref) for ref in which]


def score(
    session: SessionCore, metric: Metric, branches: BranchSelection = None, *, by: str | None = None
) -> list[Example]:
    """Score each example once with a metric, and label the answers with the scores.

    The judge of the labels is `by`, by default the metric's name. If the metric raises or returns
    something that is not a number, no label is changed.
    """
    name = by or getattr(metric, "__name__", type(metric).__name__)
    unscored = examples(session, branches, Filter(by=name))
    scored = [(example, metric(example)) for example in unscored]
    label_many(
        session,
        [Label.of(example.answer_ids[-1], value, by=name) for example, value in scored],
    )
    return examples(session, branches, Filter(by=name))


def merge_examples(*groups: Iterable[Example]) -> list[Example]:
    """Merge lists of examples in order, without duplicates."""
    merged: dict[tuple[Any, ...], Example] = {}
    for group in groups:
        for example in group:
            if not isinstance(example, Example):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValidationError(
                    f"merge_examples takes lists of Example, got {short_repr(example)}."
                )
            key = (example.session.id, *example.prompt_key, example.answer_ids)
            merged.setdefault(key, example)
    return list(merged.values())


def is_predictor_turn(metadata: Mapping[str, Any]) -> bool:
    """Return whether message metadata belongs to a turn of a single predictor."""
    dspy_metadata = metadata.get(METADATA_KEY)
    return isinstance(dspy_metadata, Mapping) and NODE_FIELD in dspy_metadata


def program_branches(branches: Iterable[Branch]) -> list[Branch]:
    """Return the branches whose last message is not a turn of a single predictor."""
    return [
        branch
        for branch in branches
        if not tail_of(branch).total
        or not is_predictor_turn(
            branch.session.messages.get(tail_of(branch).id_at(tail_of(branch).total - 1)).metadata
        )
    ]


def _distinct_examples(branches: Iterable[Branch]) -> Iterator[Example]:
    """Yield the answered instructions of several branches, without shared duplicates."""
    visited: dict[UUID, int] = {}
    for branch in branches:
        first = _visit(tail_of(branch), visited)
        if first < tail_of(branch).total:
            yield from _examples_from(branch, first)


@dataclass(frozen=True, slots=True)
class StoredBranch:
    """A branch as stored."""

    tail: Segment
    system: UUID | None


_Branch = TypeVar("_Branch", Branch, StoredBranch)


def leaves(branches: Iterable[_Branch]) -> list[_Branch]:
    """Return the branches that no other one extends; of equal ones, the first."""
    ends: dict[tuple[UUID, int, Message | UUID | None], _Branch] = {}
    longest: dict[UUID, int] = {}
    built_on: dict[UUID, int] = {}
    for branch in branches:
        tail = branch.tail if isinstance(branch, StoredBranch) else tail_of(branch)
        last, total = _last_segment(tail)
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


def _examples_from(branch: Branch, first: int) -> Iterator[Example]:
    """Yield the examples that end after a position, including one that starts before it."""
    session, tail = branch.session, tail_of(branch)
    with session.lock:
        start = _instruction_at_or_before(branch, first)
        ids = tail.between(start, tail.total)
        messages = session.messages.pick(ids)
        system_id = branch.system_id
    for begin, end in _spans(messages):
        if start + end > first:
            segment = tail.segment_at(start + begin)
            segment.mark_shared(start + begin + 1)
            yield Example(
                session, branch.name, system_id, segment, ids[begin], tuple(ids[begin + 1 : end])
            )


def _instruction_at_or_before(branch: Branch, position: int) -> int:
    messages = branch.session.messages
    while position > 0 and not _is_instruction(messages.get(tail_of(branch).id_at(position))):
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
