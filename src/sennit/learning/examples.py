"""Training examples: one per answered instruction of a branch.

An example is a prompt (the history and the instruction) and its answer. Messages are read lazily:
a list of ten thousand examples of a long conversation holds ids, not ten thousand histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from sennit.errors import ValidationError, short_repr
from sennit.learning.exchanges import (
    Exchange,
    branch_exchanges,
    distinct_exchanges,
    leaves,
    program_branches,
)
from sennit.learning.labels import Label, average_score, finite_score, label_many, labels_by_message
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.sessions.branch import Branch
from sennit.sessions.session import BranchRef, SessionCore

BranchSelection: TypeAlias = BranchRef | Iterable[BranchRef] | None
"""Branches to learn from: one, several, or (None) all leaves.

All leaves excludes branches with the turns of single predictors of a DSPy program.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """An instruction with its history, answer and labels."""

    exchange: Exchange = field(repr=False)
    labels: tuple[Label, ...] = ()
    """The scores that people and metrics gave the answer."""

    @property
    def branch(self) -> str:
        """The name of the branch it was read from; other branches may share it."""
        return self.exchange.branch

    @property
    def history(self) -> list[Message]:
        """The messages before the instruction, system message first; read on each access."""
        return self.exchange.before()

    @property
    def instruction(self) -> Message:
        """The instruction."""
        return self.exchange.instruction()

    @property
    def answer(self) -> list[Message]:
        """The answer: texts, tool calls and their results, in order."""
        return self.exchange.answer()

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
        prompt = to_model_messages([*self.history, self.instruction])
        return prompt, to_model_messages([_PLACEHOLDER_INSTRUCTION, *self.answer])[1:]


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
    labelled = (_with_labels(exchange, labels) for exchange in distinct_exchanges(selected))
    return list(filter(keep.keeps, labelled))


def _until_first_rejected(
    branches: Sequence[Branch], labels: dict[Any, list[Label]], keep: Filter
) -> list[Example]:
    """Return the examples of each branch before the first rejected one, without duplicates."""
    distinct: dict[tuple[Any, ...], Example] = {}
    for branch in branches:
        for exchange in branch_exchanges(branch):
            example = _with_labels(exchange, labels)
            if not keep.keeps(example):
                break
            distinct.setdefault((*exchange.prompt_key, exchange.answer_ids), example)
    return list(distinct.values())


def _with_labels(exchange: Exchange, labels: dict[Any, list[Label]]) -> Example:
    if not labels:
        return Example(exchange)
    return Example(exchange, tuple(x for uid in exchange.answer_ids for x in labels.get(uid, ())))


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
        [Label.of(example.exchange.answer_ids[-1], value, by=name) for example, value in scored],
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
            exchange = example.exchange
            key = (exchange.session.id, *exchange.prompt_key, exchange.answer_ids)
            merged.setdefault(key, example)
    return list(merged.values())
