"""State of a DSPy session: turns, initial history and node states.

It can be saved, loaded, and bound to a session inside a block, so one program can serve many
conversations at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec, Self, SupportsIndex, TypeVar

from sennit.errors import ConflictError, InvalidTypeError, ValidationError
from sennit.finish_uncancelled import finish_uncancelled
from sennit.learning.dspy.call_lock import CallLock, LockMode
from sennit.learning.dspy.history import HistoryEntry, Turn, parse_history
from sennit.learning.dspy.node_memory import PredictorNodes
from sennit.learning.dspy.options import Options
from sennit.learning.dspy.state_file import (
    VERSION,
    SavedState,
    options_to_dict,
    parse_state,
    read_file,
    turn_fields,
    turns_to_dict,
    write_file,
)
from sennit.learning.dspy.turn_log import TurnLog
from sennit.learning.examples import METADATA_KEY
from sennit.sessions.client import ClientCore

_P = ParamSpec("_P")
_R = TypeVar("_R")


class SessionState:
    """A conversation that a session can be bound to.

    `session.new_state()` returns an empty one with the options of a session.
    """

    log: TurnLog
    lock: CallLock

    def __init__(
        self,
        turns: Iterable[Turn] = (),
        initial_history: Any = None,
        *,
        l2_memory: str = "",
        node_states: Mapping[str, SessionState] | None = None,
    ) -> None:
        """Create a conversation in memory from turns and those of its predictors, by name.

        Histories are built again from the turns. `l2_memory` is a consolidated memory.
        """
        saved = [turn_fields(turn) for turn in turns]
        initial = [] if initial_history is None else parse_history(initial_history)
        self._open(TurnLog.of(Options(), initial, (), saved))
        if l2_memory:
            self.log.memory = l2_memory
        for name, state in (node_states or {}).items():
            self._set_node(name, state.log.copy_in_memory(), state.l2_memory)

    @classmethod
    def of(cls, log: TurnLog, lock: LockMode = "none") -> Self:
        """Return the conversation in a log."""
        state = cls.__new__(cls)
        state._open(log, lock)
        return state

    def _open(self, log: TurnLog, lock: LockMode = "none") -> None:
        self.log, self.lock = log, CallLock(lock)
        self._nodes: PredictorNodes | None = None
        self._nested_states: dict[str, SessionState] = {}
        self._create_lock = Lock()

    def _set_node(self, name: str, log: TurnLog, memory: str) -> None:
        node = self.nodes.of(name)
        node.replace_with(log)
        node.memory = memory

    @property
    def node_states(self) -> dict[str, SessionState]:
        """The turns of single predictors as conversations, by name."""
        return {name: SessionState.of(log) for name, log in self._all_nodes().items()}

    @property
    def l2_memory(self) -> str:
        """The consolidated memory: of a predictor, or as it was passed or loaded."""
        system = self.log.branch.system if self.log.has_branch else None
        # A stored conversation may have a system message of its own.
        is_memory = system is not None and METADATA_KEY in system.metadata
        return self.log.memory if is_memory else ""

    @property
    def nodes(self) -> PredictorNodes:
        """The turns of single predictors, if they have their own."""
        with self._create_lock:  # or concurrent calls would each create their own
            if self._nodes is None:
                self._nodes = PredictorNodes(self.log.branch, self.log.options)
            return self._nodes

    def inside(self, name: str) -> SessionState:
        """Return the conversation of a session nested in the program, stored like a node."""
        log = self.nodes.of(name)
        with self._create_lock:
            return self._nested_states.setdefault(name, SessionState.of(log))

    @classmethod
    def kept(
        cls,
        store: ClientCore[Any] | None,
        key: str | None,
        branch: str | None,
        options: Options,
    ) -> Self:
        """Return the conversation under a key of a store, or a new one in memory."""
        if store is None and key is None and branch is None:
            return cls.of(TurnLog(options), options.lock)
        if store is None or key is None:
            raise ValidationError("A stored session needs both store=client and key='...'.")
        session = store.session(key)
        used = session.default_branch if branch is None else session.get_branch(branch)
        return cls.of(TurnLog(options, used), options.lock)

    async def aside(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Run work that may wait for a store, to its end despite cancellation."""
        return await finish_uncancelled(self.log.read(partial(work, *args, **kwargs)))

    @property
    def turns(self) -> list[Turn]:
        """The turns, oldest first."""
        return list(self.log.turns)

    @property
    def initial_history(self) -> list[HistoryEntry]:
        """The initial history."""
        return list(self.log.initial)

    def adopt(self, options: Options) -> None:
        """Apply the history options and the lock mode of a session."""
        self.log.set_options(options)
        if options.lock != "none":
            self.lock.mode = options.lock

    def fork(self, *, with_nodes: bool) -> SessionState:
        """Return the same turns on a fork of the branch, to continue independently."""
        state = SessionState.of(self.log.fork(), self.lock.mode)
        if with_nodes:
            state._nodes = self.nodes.fork(state.log.branch)
        return state

    def detached(self, *, with_nodes: bool) -> SessionState:
        """Return the same turns in memory."""
        state = SessionState.of(self.log.copy_in_memory(), self.lock.mode)
        if with_nodes:
            state._nodes = self.nodes.copy_in_memory(state.log.branch)
        return state

    def begin(self, initial: list[HistoryEntry]) -> None:
        """Set the initial history, unless another process has written to the branch."""
        try:
            self.log.restart_with(initial)
        except ConflictError:
            self.log.catch_up()

    def undo(self, steps: int) -> list[Turn]:
        """Undo the last turns, with their node turns and memories; return them, newest first."""
        undone = self.log.undo(steps)
        if calls := {turn.call for turn in undone if turn.call is not None}:
            self.nodes.undo_calls(calls, [turn.memories for turn in undone])
        return undone

    def reset(self) -> None:
        """Remove all turns and node memories; keep the initial history."""
        self.log.catch_up()
        self.log.restart_with(self.log.initial)
        for node in self._all_nodes().values():
            node.clear()

    def _all_nodes(self) -> dict[str, TurnLog]:
        """Return all nodes, including those that are only in the store."""
        return self.nodes.all() if self._nodes is not None or self.log.has_branch else {}

    def to_dict(self, options: Options | None = None) -> dict[str, Any]:
        """Return the state as plain data, with the options of a session, by default its own."""
        nodes = self._all_nodes()
        for log in (self.log, *nodes.values()):
            log.catch_up()
        saved_options = options_to_dict(options or self.log.options)
        state = {"version": VERSION, **saved_options, **turns_to_dict(self.log)}
        if memory := self.l2_memory:
            state["l2_memory"] = memory
        if nodes:
            state["nodes"] = {
                name: {**turns_to_dict(log), "memory": log.memory} for name, log in nodes.items()
            }
        return state

    def fill(self, saved: SavedState) -> None:
        """Replace the turns and the saved nodes by a saved state."""
        self.log.replace_with(saved.conversation.to_log(self.log.options))
        if saved.conversation.memory:
            self.log.memory = saved.conversation.memory
        for name, turns in saved.nodes.items():
            self._set_node(name, turns.to_log(self.log.options), turns.memory)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError(
            "A SessionState cannot be copied or pickled: use state.save(path) and "
            "SessionState.load(path), or state.fork()."
        )

    def save(self, path: str | Path) -> None:
        """Write the state to a file."""
        write_file(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a state from a file into memory; raises ValidationError if it is not one."""
        return cls._loaded(read_file(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the conversation that `to_dict` wrote; raises ValidationError if it is not one."""
        return cls._loaded(parse_state(dict(data), "The dict"))

    @classmethod
    def _loaded(cls, saved: SavedState) -> Self:
        state = cls.of(TurnLog(Options(**saved.options)))
        state.fill(saved)
        return state
