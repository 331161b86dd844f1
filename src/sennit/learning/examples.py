"""Examples: one per answered instruction of a branch.

An example is the prompt (all that came before, and the instruction) and what answered it. Nothing
is copied or read until someone looks: a list of ten thousand examples of a long conversation holds
ids, not ten thousand histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from sennit.errors import ValidationError, shown
from sennit.learning.exchanges import Exchange, leaves, of_programs, on_branch, on_branches
from sennit.learning.labels import Label, average, finite, label_many, labels_of
from sennit.messages.content import AssistantResponseContent, InstructionContent
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.sessions.branch import Branch
from sennit.sessions.session import BranchRef, SessionCore

Which: TypeAlias = BranchRef | Iterable[BranchRef] | None
"""Branches to learn from: one, several, or (None) all that no other one goes on from.

Branches with the own turns of a DSPy program's predictors are not among all of them.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """An instruction, what came before it, and what answered it."""

    exchange: Exchange = field(repr=False)
    labels: tuple[Label, ...] = ()
    """What people and metrics thought of the answer."""

    @property
    def branch(self) -> str:
        """The name of the branch it was found on; others may share it."""
        return self.exchange.branch

    @property
    def history(self) -> list[Message]:
        """All that was said before, the system message first; read when asked for."""
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
        """History, instruction and answer together."""
        return [*self.history, self.instruction, *self.answer]

    @property
    def asked(self) -> str:
        """The words of the instruction."""
        return self.instruction.content.words

    @property
    def answered(self) -> str:
        """The words of the answer, without tools."""
        texts = [
            message.content.words
            for message in self.answer
            if isinstance(message.content, AssistantResponseContent)
        ]
        return "\n\n".join(filter(None, texts))

    @property
    def score(self) -> float | None:
        """The average of the answer's labels; None without labels."""
        return average(self.labels)

    def to_chat(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The prompt as a model was sent it, and the answer, as messages of a chat API."""
        prompt = to_model_messages([*self.history, self.instruction])
        return prompt, to_model_messages([_ASKED, *self.answer])[1:]


_ASKED = Message(InstructionContent(instruction="?"))
"""Stands for the prompt where only the answer is told."""

Metric: TypeAlias = Callable[[Example], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of examples."""

    min_score: float | None = None
    """The lowest score to keep; then those without a score are left out too."""
    strict_trajectory: bool = False
    """Whether all that follows one left out on its branch is left out too."""
    by: str | None = None
    """Whose labels count; by default everyone's."""

    def __post_init__(self) -> None:
        if self.min_score is not None:
            finite(self.min_score)
        if self.strict_trajectory and self.min_score is None:
            raise ValidationError("strict_trajectory=True needs a min_score.")

    def keeps(self, example: Example) -> bool:
        """Return whether this example is good enough."""
        score = example.score
        return self.min_score is None or (score is not None and score >= self.min_score)


def examples(
    session: SessionCore, branches: Which = None, keep: Filter | None = None
) -> list[Example]:
    """The answered instructions of branches, each once, in order; raises NotFoundError."""
    keep = keep or Filter()
    known = labels_of(session, by=keep.by)
    chosen = branches_of(session, branches)
    if keep.strict_trajectory:
        return _unspoilt(chosen, known, keep)
    walked = on_branches(chosen)
    return [example for one in walked if keep.keeps(example := _labelled(one, known))]


def _unspoilt(
    branches: Sequence[Branch], known: dict[Any, list[Label]], keep: Filter
) -> list[Example]:
    """Up to the first that falls short on each branch; an exchange several share comes once."""
    found: dict[tuple[Any, ...], Example] = {}
    for branch in branches:
        for one in on_branch(branch):
            example = _labelled(one, known)
            if not keep.keeps(example):
                break
            found.setdefault((*one.place, one.answered), example)
    return list(found.values())


def _labelled(one: Exchange, known: dict[Any, list[Label]]) -> Example:
    labels = [label for uid in one.answered for label in known.get(uid, ())] if known else ()
    return Example(one, tuple(labels))


def branches_of(session: SessionCore, which: Which) -> list[Branch]:
    """The branches meant; raises NotFoundError for one that is not there."""
    if which is None:
        return of_programs(leaves(session.branches))
    if isinstance(which, (str, UUID, Branch)):
        return [session.get_branch(which)]
    return [session.get_branch(one) for one in which]


def score(
    session: SessionCore, metric: Metric, branches: Which = None, *, by: str | None = None
) -> list[Example]:
    """Ask a metric about each example, once, and label the answers with what it says.

    Labels are `by` the metric's name unless told otherwise. A metric that raises, or says something
    that is no number, leaves all labels as they were.
    """
    name = by or getattr(metric, "__name__", type(metric).__name__)
    found = examples(session, branches, Filter(by=name))
    scored = [(example, metric(example)) for example in found]
    label_many(
        session,
        [Label.of(example.exchange.answered[-1], value, by=name) for example, value in scored],
    )
    return examples(session, branches, Filter(by=name))


def merge_examples(*groups: Iterable[Example]) -> list[Example]:
    """Several lists as one, in order; an example that is in more than one comes once."""
    found: dict[tuple[Any, ...], Example] = {}
    for group in groups:
        for example in group:
            if not isinstance(example, Example):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValidationError(
                    f"merge_examples takes lists of Example, got {shown(example)}."
                )
            one = example.exchange
            found.setdefault((one.session.id, *one.place, one.answered), example)
    return list(found.values())
