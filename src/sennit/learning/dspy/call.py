"""A call of a session: its history, and the turn it records."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from sennit.finish_uncancelled import finish_uncancelled
from sennit.learning.dspy.call_lock import CallLock
from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import Fields, HistoryEntry, HistorySpan, Turn, parse_history
from sennit.learning.dspy.node_memory import NodeMemory
from sennit.learning.dspy.reducers import HistoryReducer
from sennit.learning.dspy.state import SessionState
from sennit.learning.dspy.turn_log import TurnLog

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NO_LOCK = CallLock("none")


class SessionCall:
    """One call; its history is fixed when it holds the lock and begins."""

    def __init__(
        self,
        *,
        program: Any,
        state: SessionState,
        inputs: dict[str, Any],
        explicit_history: list[HistoryEntry] | None,
        records_turn: bool,
        parent: Any,
        history_argument: str | None,
        is_exclusive: bool,
        nested_logs: Callable[[], dict[str, TurnLog]],
        reducers: Sequence[HistoryReducer] = (),
        memory: NodeMemory | None = None,
    ) -> None:
        self._program, self.state, self.inputs, self.parent = program, state, inputs, parent
        self.explicit_history, self.records_turn = explicit_history, records_turn
        self._history_argument, self._reducers = history_argument, reducers
        self.nested_logs = nested_logs
        """Returns the turns of the sessions nested in the program, by name."""
        self.memory = memory
        """The turns of single predictors in this call; None if they have none of their own."""
        self.is_exclusive = is_exclusive
        """True if the program serves no other conversation."""
        self.nodes: dict[str, dict[str, Any]] = {}
        self.span: HistorySpan | None = None
        self.turn: Turn | None = None
        """The recorded turn; None until then, or if the call records none."""
        self._history: Any = None

    @property
    def lock(self) -> CallLock:
        """The lock of the conversation; none for a call nested in one of the same conversation."""
        outer = self.parent
        while outer is not None:
            if outer.state is self.state:
                return _NO_LOCK
            outer = outer.parent
        return self.state.lock

    def begin(self) -> SessionCall:
        """Fix the history of the call and return the call."""
        self.span = self.state.log.current_span()
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the program."""
        if self._history_argument is None:
            return self.inputs
        self._history = History(messages=self._messages())
        return {**self.inputs, self._history_argument: self._history}

    def is_own_history(self, history: Any) -> bool:
        """Return whether this is the history that the program was called with."""
        return history is self._history

    def _messages(self) -> list[HistoryEntry]:
        if self.explicit_history is not None:
            return self.explicit_history
        return [] if self.span is None else self.span.messages()

    def history_for(self, node: str, fields: Fields) -> Any:
        """Return the history for a predictor: its own turns, or the program's that fit it."""
        if self.explicit_history is not None:
            entries = fields.fit_all(self.explicit_history)
        elif self.memory is not None:
            entries = self.memory.history_for(node, fields, self.state.log.initial)
        elif self.span is not None:
            entries = self.state.log.entries_for(self.span, node, fields)
        else:
            entries = []
        for reduce in self._reducers:
            entries = parse_history(reduce([dict(entry) for entry in entries], fields))
        return History.model_construct(messages=entries)

    def memory_for(self, node: str) -> str:
        """Return the consolidated memory of a predictor."""
        return "" if self.memory is None else self.memory.memory_of(node)

    def record(self, node: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Record the inputs and outputs of a predictor."""
        # If the program has none of its inputs, they are stored nowhere else.
        keep_inputs = self.memory is None and inputs.keys().isdisjoint(self.inputs)
        self.nodes[node] = {**inputs, **outputs} if keep_inputs else outputs
        if self.memory is not None:
            self.memory.record(node, inputs, outputs)

    @property
    def turn_details(self) -> dict[str, Any]:
        """The fields to store with the turn; reading them consolidates the node memories."""
        if self.memory is None:
            return {"nodes": self.nodes}
        self.memory.consolidate()
        return {
            "nodes": self.nodes,
            "call": self.memory.call,
            "memories": self.memory.memories,
        }

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Run the program in this context; node turns are rolled back if no turn is recorded."""
        try:
            yield
        finally:
            self._finish()

    @asynccontextmanager
    async def async_attempt(self) -> AsyncGenerator[None]:
        """Run the program as in `attempt`, without blocking the event loop on the store."""
        try:
            yield
        finally:
            await self.run_off_loop(self._finish)

    def _finish(self) -> None:
        if self.memory is None:
            return
        if self.turn is None:
            self.memory.rollback()
        else:
            self.memory.end_episode()

    async def run_off_loop(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Run work that may block on the store or a reducer, without blocking the event loop."""
        if self._reducers:
            return await finish_uncancelled(to_thread(work, *args, **kwargs))
        return await self.state.aside(work, *args, **kwargs)

    @cached_property
    def _predictors(self) -> set[int]:
        return {id(predictor) for predictor in self._program.predictors()}

    def holds(self, predictor: Any) -> bool:
        """Return whether the program contains this predictor."""
        return id(predictor) in self._predictors
