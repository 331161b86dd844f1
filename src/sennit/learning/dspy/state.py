"""State of a DSPy session: turns, initial history and node states.

It can be saved, loaded, and bound to a session for a while, so that one program serves many
conversations at once.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec, Self, SupportsIndex, TypeVar

from sennit.errors import ConflictError, InvalidTypeError, ValidationError
from sennit.finish_uncancelled import finish_uncancelled
from sennit.learning.dspy.call_lock import CallLock, LockMode
from sennit.learning.dspy.history import Told
from sennit.learning.dspy.history_options import HistoryOptions
from sennit.learning.dspy.node_memory import PredictorNode, PredictorNodes
from sennit.learning.dspy.state_file import SavedState, read_file, write_file
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.turn_log import TurnLog
from sennit.sessions.client import ClientCore

_P = ParamSpec("_P")
_R = TypeVar("_R")


class SessionState:
    """A conversation that sessions can speak on."""

    def __init__(self, log: TurnLog | None = None, lock: LockMode = "none") -> None:
        self.log = TurnLog(HistoryOptions()) if log is None else log
        self.lock = CallLock(lock)
        self._nodes: PredictorNodes | None = None
        self._inside: dict[str, SessionState] = {}
        self._making = Lock()

    @property
    def nodes(self) -> PredictorNodes:
        """The pasts of single predictors, where they have their own."""
        with self._making:  # or calls at once would each have their own
            if self._nodes is None:
                self._nodes = PredictorNodes(self.log.branch, self.log.telling)
            return self._nodes

    def inside(self, name: str) -> SessionState:
        """The conversation of a session inside the program, kept as a node is."""
        log = self.nodes.of(name).log
        with self._making:
            return self._inside.setdefault(name, SessionState(log))

    @classmethod
    def kept(
        cls,
        store: ClientCore[Any] | None,
        key: str | None,
        branch: str | None,
        telling: HistoryOptions,
    ) -> Self:
        """The conversation under a key of a store, or a new one in memory."""
        if store is None and key is None and branch is None:
            return cls(TurnLog(telling))
        if store is None or key is None:
            raise ValidationError("A session in a store needs both: store=client and key='...'.")
        session = store.session(key)
        return cls(
            TurnLog(
                telling, session.default_branch if branch is None else session.get_branch(branch)
            )
        )

    async def aside(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Do what may wait for the store in a worker thread, to its end even if one is cancelled.

        What is in memory is done here and now.
        """
        if not self.log.durable:
            return work(*args, **kwargs)
        return await finish_uncancelled(to_thread(work, *args, **kwargs))

    @property
    def turns(self) -> list[Turn]:
        """The turns, the oldest first."""
        return list(self.log.turns)

    @property
    def initial_history(self) -> list[Told]:
        """The history it began with."""
        return list(self.log.initial)

    def adopt(self, telling: HistoryOptions, lock: LockMode) -> None:
        """Be told as a session tells its turns, and kept as apart as it wants."""
        self.log.tell_as(telling)
        if lock != "none":
            self.lock.mode = lock

    def fork(self, *, with_nodes: bool) -> SessionState:
        """The same turns, to go on with apart from these."""
        made = SessionState(self.log.fork(), self.lock.mode)
        if with_nodes:
            made._nodes = self.nodes.forked(made.log.branch)
        return made

    def detached(self, *, with_nodes: bool) -> SessionState:
        """The same turns in memory."""
        made = SessionState(self.log.detached(), self.lock.mode)
        if with_nodes:
            made._nodes = self.nodes.detached(made.log.branch)
        return made

    def begin(self, initial: list[Told]) -> None:
        """Have a history to begin with, unless someone else has begun meanwhile."""
        try:
            self.log.begin_with(initial)
        except ConflictError:
            self.log.catch_up()

    def undo(self, steps: int) -> list[Turn]:
        """Take back the last turns, the last one first, with what nodes said and learnt in them."""
        taken = self.log.take_back(steps)
        if calls := {turn.call for turn in taken if turn.call is not None}:
            self.nodes.take_back(calls, [turn.memories for turn in taken])
        return taken

    def reset(self) -> None:
        """Begin anew with the history it began with; the nodes with nothing."""
        self.log.catch_up()
        self.log.begin_with(self.log.initial)
        for node in self._known_nodes().values():
            node.clear()

    def _known_nodes(self) -> dict[str, PredictorNode]:
        """The nodes there are, also those that only the store knows of yet."""
        return self.nodes.all() if self._nodes is not None or self.log.laid_out else {}

    def saved(self, **options: Any) -> SavedState:
        """All of it as plain data, with the options of a session."""
        self.log.catch_up()
        nodes = self._known_nodes()
        for one in nodes.values():
            one.log.catch_up()
        told = {name: (one.log, one.memory) for name, one in nodes.items()}
        return SavedState.of(self.log, told, options)

    def fill(self, saved: SavedState) -> None:
        """Have what was saved, and nothing else."""
        self.log.become(saved.conversation.log(self.log.telling))
        for name, (turns, memory) in saved.nodes.items():
            node = self.nodes.of(name)
            node.log.become(turns.log(self.log.telling))
            node.memory = memory

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError(
            "A SessionState cannot be copied or pickled: use state.save(path) and "
            "SessionState.load(path), or state.fork()."
        )

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        write_file(path, self.saved())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The state in a file, in memory; raises ValidationError if it is none."""
        saved = read_file(path)
        made = cls(TurnLog(saved.telling))
        made.fill(saved)
        return made
