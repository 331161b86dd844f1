"""A turn: inputs, outputs and the history it was given."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sennit.learning.dspy.history import HistorySnapshot, HistorySpan


class Turn:
    """One call of a session; `history_snapshot` is the history it was given."""

    __slots__ = (
        "_past",
        "asked",
        "call",
        "index",
        "inputs",
        "memories",
        "message",
        "node",
        "nodes",
        "outputs",
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
        """What nested predictors said, and were asked, that the turn does not tell, by name."""
        self.call = call
        """The call of the program it was said in, where nodes have turns of their own."""
        self.memories = memories or {}
        """What nodes remembered before this call, where it has changed that."""
        self.node = node
        """The predictor that said it, where it is one of its own turns and not the program's."""
        self.asked: UUID | None = None
        self.message: UUID | None = None
        """The instruction and the answer on the branch, where it is on one."""
        self._past = history_snapshot

    @property
    def history_snapshot(self) -> Any:
        """The history it was given, as a dspy.History."""
        return HistorySnapshot.of(self._past) if isinstance(self._past, HistorySpan) else self._past

    def again(self, score: float | None = None, past: Any = None) -> Turn:
        """The same turn, with a score or with its past told elsewhere."""
        judged = self.score if score is None else score
        known = self._past if past is None else past
        made = Turn(
            self.index,
            self.inputs,
            self.outputs,
            known,
            judged,
            nodes=self.nodes,
            call=self.call,
            memories=self.memories,
            node=self.node,
        )
        made.asked, made.message = self.asked, self.message
        return made

    @property
    def past(self) -> Any:
        """The same, as a stretch of what was told where it is one."""
        return self._past

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Turn):
            return NotImplemented
        return _told(self) == _told(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Turn(index={self.index}, inputs={self.inputs!r}, outputs={self.outputs!r}, "
            f"history_snapshot={self.history_snapshot!r}, score={self.score!r})"
        )


def _told(turn: Turn) -> tuple[Any, ...]:
    return turn.index, turn.inputs, turn.outputs, turn.score, turn.history_snapshot
