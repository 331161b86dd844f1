"""A call of a session: the history it is given and the turn it will record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

from sennit.learning.dspy.call_lock import CallLock
from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import Fields, HistorySpan, Told
from sennit.learning.dspy.node_memory import NodeMemory, PredictorNode
from sennit.learning.dspy.state import SessionState
from sennit.learning.dspy.turn import Turn

_P = ParamSpec("_P")
_R = TypeVar("_R")
_OPEN = CallLock("none")


class SessionCall:
    """One call; its past is fixed when its turn comes."""

    def __init__(
        self,
        *,
        program: Any,
        state: SessionState,
        inputs: dict[str, Any],
        given: list[Told] | None,
        keeps: bool,
        parent: Any,
        tell_as: str | None,
        alone: bool,
        memory: NodeMemory | None = None,
    ) -> None:
        self._program, self.state, self.inputs, self.given = program, state, inputs, given
        self.keeps, self.parent, self._tell_as, self._memory = keeps, parent, tell_as, memory
        self.alone = alone
        """Whether its program speaks on no other conversation."""
        self.nodes: dict[str, dict[str, Any]] = {}
        self.span: HistorySpan | None = None
        self.turn: Turn | None = None
        """What was kept of it."""
        self._told: Any = None

    @property
    def lock(self) -> CallLock:
        """The lock that excludes other calls; a nested call of the same conversation may enter."""
        outer = self.parent
        while outer is not None:
            if outer.state is self.state:
                return _OPEN
            outer = outer.parent
        return self.state.lock

    def begun(self) -> SessionCall:
        """The call, now that it is its turn."""
        self.span = self.state.log.caught_up()
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the program."""
        if self._tell_as is None:
            return self.inputs
        self._told = History(messages=self._messages())
        return {**self.inputs, self._tell_as: self._told}

    def told(self, history: Any) -> bool:
        """Return whether this is the history that the program was called with."""
        return history is self._told

    def _messages(self) -> list[Told]:
        if self.given is not None:
            return self.given
        return [] if self.span is None else self.span.messages()

    def history_for(self, node: str, fields: Fields) -> Any:
        """The history for a predictor: its own turns, or those of the program it could have had."""
        if self.given is not None:
            fitting = [one for told in self.given if (one := fields.fit(told, {})) is not None]
        elif self._memory is not None:
            fitting = self._memory.history_for(node, fields, self.state.log.initial)
        elif self.span is not None:
            fitting = self.state.log.fitted(self.span, node, fields)
        else:
            fitting = []
        return History.model_construct(messages=fitting)

    def memory_for(self, node: str) -> str:
        """Return the consolidated memory of a predictor."""
        return "" if self._memory is None else self._memory.remembered(node)

    def heard(self, node: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Take note of what a predictor was asked and said."""
        # Where the turn has none of its inputs, nothing else would tell what it was asked.
        apart = self._memory is None and inputs.keys().isdisjoint(self.inputs)
        self.nodes[node] = {**inputs, **outputs} if apart else outputs
        if self._memory is not None:
            self._memory.heard(node, inputs, outputs)

    @property
    def nodes_now(self) -> dict[str, PredictorNode]:
        """The nodes with a past of their own, by name."""
        return {} if self._memory is None else self.state.nodes.all()

    def node(self, name: str) -> PredictorNode | None:
        """The node that a predictor speaks on, if it has a past of its own."""
        return None if self._memory is None else self._memory.node(name)

    @property
    def inside(self) -> dict[str, Any]:
        """Data to store inside the turn, once the nodes have consolidated it."""
        if self._memory is None:
            return {"nodes": self.nodes}
        self._memory.consolidate()
        return {
            "nodes": self.nodes,
            "call": self._memory.call,
            "memories": self._memory.memories,
        }

    @contextmanager
    def attempt(self) -> Generator[None]:
        """The time in which the program answers and its turn is kept, or neither."""
        try:
            yield
        finally:
            self._settle()

    @asynccontextmanager
    async def awaited_attempt(self) -> AsyncGenerator[None]:
        """The same for a program that is awaited."""
        try:
            yield
        finally:
            await self.aside(self._settle)

    def _settle(self) -> None:
        if self._memory is None:
            return
        if self.turn is None:
            self._memory.take_back()
        else:
            self._memory.end_episode()

    async def aside(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Do what may wait for the store, where no event loop waits with it."""
        return await self.state.aside(work, *args, **kwargs)

    @cached_property
    def _predictors(self) -> set[int]:
        return {id(one) for one in self._program.predictors()}

    def holds(self, predictor: Any) -> bool:
        """Return whether this predictor is part of the program."""
        return id(predictor) in self._predictors
