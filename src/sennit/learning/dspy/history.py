"""Turns, and the history each was given: a span of one shared list of entries.

Every turn appends one entry, a dict, to a growing list. The history of a call is a span of that
list, stored with the turn as two positions, whatever the length of the conversation. A span is
converted to a `dspy.History` lazily.

The list is append-only. An undo or an eviction continues with a new list, so an undone turn still
has its history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

from pydantic import model_serializer

from sennit.errors import InvalidTypeError, short_repr
from sennit.learning.dspy.dspy_imports import History

HistoryEntry: TypeAlias = dict[str, Any]


class HistorySpan(NamedTuple):
    """A range of the shared list of entries, preceded by entries of the initial history."""

    entries: list[HistoryEntry]
    start: int
    stop: int
    initial: Sequence[HistoryEntry] = ()
    """The entries of the initial history that belong to the span."""
    dropped: int = 0
    """The number of entries that were dropped before the start of the list."""

    def messages(self) -> list[HistoryEntry]:
        """Return the history entries of the span."""
        return [*self.initial, *self.entries[self.start : self.stop]]


class HistorySnapshot(History):  # pyright: ignore[reportUntypedBaseClass]
    """A dspy.History that reads its messages from a span on first access."""

    @classmethod
    def of(cls, span: HistorySpan) -> Any:
        """Return the history of a span, not read yet."""
        snapshot = cls.model_construct()
        object.__setattr__(snapshot, "_span", span)
        return snapshot

    def __getattr__(self, name: str) -> Any:
        if name != "messages":
            return super().__getattr__(name)  # pyright: ignore
        span = cast("HistorySpan", object.__getattribute__(self, "_span"))
        # Copies, so that callers cannot change the shared entries.
        messages = self.__dict__["messages"] = [dict(entry) for entry in span.messages()]
        return messages

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.messages == cast("Any", other).messages

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History(messages={self.messages!r})"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        return History(messages=self.messages).__deepcopy__(memo)

    @model_serializer(mode="plain")
    def _serialize(self) -> dict[str, Any]:
        return {"messages": self.messages}


def parse_history(value: Any) -> list[HistoryEntry]:
    """Return the messages of a History, its dict or a list of dicts; raises InvalidTypeError."""
    messages: Any = value.messages if isinstance(value, History) else value
    if isinstance(messages, Mapping):
        messages = cast("Mapping[str, Any]", messages).get("messages")
    if not isinstance(messages, (list, tuple)) or not all(
        isinstance(message, Mapping) for message in cast("Iterable[Any]", messages)
    ):
        raise InvalidTypeError(
            f"A history must be a dspy.History or a list of dicts such as "
            f"[{{'question': '...', 'answer': '...'}}], got {short_repr(value)}."
        )
    return [dict(message) for message in cast("Sequence[Mapping[str, Any]]", messages)]


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a predictor without its history field."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    optional: frozenset[str] = frozenset()
    """The outputs that may be None."""

    def fit_all(self, entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
        """Return the entries that fit this predictor."""
        return [fitted for entry in entries if (fitted := self.fit(entry, {})) is not None]

    def fit(
        self,
        entry: HistoryEntry,
        node_values: Mapping[str, Any],
        turn_inputs: AbstractSet[str] = frozenset(),
    ) -> HistoryEntry | None:
        """Return a history entry for this predictor; None if it has none of its outputs.

        Outputs that the entry lacks stay missing, as do those that are None without being optional.
        `node_values` are the predictor's own values in that turn. They supply outputs that the
        program did not return, such as the reasoning, and inputs that the program does not have.
        `turn_inputs` are the names of the turn's inputs. An entry without any input of this
        predictor is used only if the turn has outputs of the predictor.
        """
        merged = {**node_values, **entry} if node_values else entry
        unset = {name for name in self.outputs - self.optional if merged.get(name, self) is None}
        present = (self.outputs & merged.keys()) - unset
        if not present:
            return None
        if self.inputs.isdisjoint(merged) and not (present & entry.keys()) - turn_inputs:
            return None
        return {name: merged[name] for name in merged if name not in unset} if unset else merged


class Turn:
    """One call of a session; `history_snapshot` is the history it was given."""

    __slots__ = (
        "asked",
        "call",
        "index",
        "inputs",
        "memories",
        "message",
        "node",
        "nodes",
        "outputs",
        "past",
        "score",
    )

    def __init__(
        self,
        index: int,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        history_snapshot: Any,
        score: float | None = None,
        *,
        nodes: dict[str, dict[str, Any]] | None = None,
        call: str | None = None,
        memories: dict[str, str] | None = None,
        node: str | None = None,
    ) -> None:
        self.index, self.inputs, self.outputs, self.score = index, inputs, outputs, score
        self.nodes = nodes or {}
        """The values of nested predictors that are not in the turn's own fields, by name."""
        self.call = call
        """The id of the program's call; None without node memory."""
        self.memories = memories or {}
        """The node memories before this call, of the nodes whose memory it changed."""
        self.node = node
        """The name of the predictor whose own turn it is; None for a turn of the program."""
        self.asked: UUID | None = None
        self.message: UUID | None = None
        """The ids of the instruction (`asked`) and the answer on the branch, if it is on one."""
        self.past = history_snapshot
        """The history as stored: a HistorySpan or a dspy.History."""

    @property
    def history_snapshot(self) -> Any:
        """The history it was given, as a dspy.History."""
        return HistorySnapshot.of(self.past) if isinstance(self.past, HistorySpan) else self.past

    def again(self, **changes: object) -> Turn:
        """Return a copy with other attributes, such as another score."""
        turn = copy(self)
        for name, value in changes.items():
            setattr(turn, name, value)
        return turn

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Turn):
            return NotImplemented
        return _comparison_key(self) == _comparison_key(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Turn(index={self.index}, inputs={self.inputs!r}, outputs={self.outputs!r}, "
            f"history_snapshot={self.history_snapshot!r}, score={self.score!r})"
        )


def _comparison_key(turn: Turn) -> tuple[Any, ...]:
    return turn.index, turn.inputs, turn.outputs, turn.score, turn.history_snapshot


def format_ledger(turns: Sequence[Turn]) -> str:
    """Return turns as text."""
    lines: list[str] = []
    for turn in turns:
        lines.append(f"- turn: {turn.index}")
        for name, fields in (("inputs", turn.inputs), ("outputs", turn.outputs)):
            lines.append(f"  {name}:")
            lines += [f"    {field}: {_indent(value)}" for field, value in fields.items()]
    return "\n".join(lines)


def _indent(value: Any) -> str:
    lines = str(value).split("\n")
    return lines[0] if len(lines) == 1 else "\n".join(["|", *(f"      {line}" for line in lines)])
