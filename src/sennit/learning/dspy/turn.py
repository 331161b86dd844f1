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
        self._past = history_snapshot

    @property
    def history_snapshot(self) -> Any:
        """The history it was given, as a dspy.History."""
        return HistorySnapshot.of(self._past) if isinstance(self._past, HistorySpan) else self._past

    def again(self, score: float | None = None, past: Any = None) -> Turn:
        """Return a copy with another score or another history."""
        new_score = self.score if score is None else score
        new_past = self._past if past is None else past
        turn = Turn(
            self.index,
            self.inputs,
            self.outputs,
            new_past,
            new_score,
            nodes=self.nodes,
            call=self.call,
            memories=self.memories,
            node=self.node,
        )
        turn.asked, turn.message = self.asked, self.message
        return turn

    @property
    def past(self) -> Any:
        """The history as stored: a HistorySpan or a dspy.History."""
        return self._past

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
