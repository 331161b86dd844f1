"""The state of a conversation with a program: its turns, what it began with, its nodes.

It can be saved, loaded, and bound to a session for a while, so that one program serves many
conversations at once. The saved form is version 2; version 1 is read as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from sennit.errors import ValidationError
from sennit.learning.dspy.locks import CallLock, LockMode
from sennit.learning.dspy.log import Telling, TurnLog
from sennit.learning.dspy.nodes import Nodes
from sennit.learning.dspy.past import Span, Told, history_from
from sennit.learning.dspy.plain import plain_fields
from sennit.learning.dspy.turn import Turn
from sennit.messages.codec import loads
from sennit.sessions.client import ClientCore
from sennit.sessions.session import SessionCore

VERSION = 2


class SessionState:
    """A conversation that sessions can speak on."""

    def __init__(self, log: TurnLog | None = None, lock: LockMode = "none") -> None:
        self.log = _in_memory(Telling()) if log is None else log
        self.lock = CallLock(lock)
        self._nodes: Nodes | None = None

    @property
    def nodes(self) -> Nodes:
        """The pasts of single predictors, where they have their own."""
        if self._nodes is None:
            branch = self.log.branch
            self._nodes = Nodes(branch.session, branch.name, self.log.telling)
        return self._nodes

    @classmethod
    def kept(
        cls, store: ClientCore[Any] | None, key: str | None, telling: Telling, lock: LockMode
    ) -> SessionState:
        """The conversation under a key of a store, or a new one in memory."""
        if (store is None) != (key is None):
            raise ValidationError("A session in a store needs both: store=client and key='...'.")
        if store is None or key is None:
            return cls(_in_memory(telling), lock)
        return cls(TurnLog(store.session(key).default_branch, telling), lock)

    @property
    def is_new(self) -> bool:
        """Whether nothing was said or told yet."""
        return not self.log.turns and not self.log.initial

    @property
    def turns(self) -> list[Turn]:
        """The turns, the oldest first."""
        return list(self.log.turns)

    def adopt(self, telling: Telling, lock: LockMode) -> None:
        """Be told as a session tells its turns."""
        self.log.telling = telling
        if self.lock.mode != lock:
            self.lock = CallLock(lock)

    def fork(self) -> SessionState:
        """The same turns, to go on with apart from these."""
        made = SessionState(self.log.fork(), self.lock.mode)
        if self._nodes is not None:
            self._nodes.copied(made.nodes, lambda log: log.fork())
        return made

    def detached(self) -> SessionState:
        """The same turns in memory."""
        made = SessionState(self.log.detached(), self.lock.mode)
        if self._nodes is not None:
            self._nodes.copied(made.nodes, lambda log: log.detached())
        return made


def _in_memory(telling: Telling) -> TurnLog:
    return TurnLog(SessionCore().create_branch(name="main"), telling)


def write_state(log: TurnLog, telling: Telling, policy: str) -> dict[str, Any]:
    """A conversation as plain data."""
    only = telling.only_inputs
    return {
        "version": VERSION,
        "history_field": telling.history_field,
        "max_turns": telling.max_turns,
        "max_stored_turns": telling.max_stored,
        "copy_mode": telling.copies,
        "exclude_fields": sorted(telling.exclude),
        "history_input_fields": None if only is None else sorted(only),
        "history_policy": policy,
        "initial_history": [plain_fields(told) for told in log.initial] or None,
        "earlier": [plain_fields(told) for told in log.earlier],
        "turns": [_written(turn) for turn in log.turns],
    }


def _written(turn: Turn) -> dict[str, Any]:
    past = turn.past
    known = isinstance(past, Span)
    return {
        "index": turn.index,
        "inputs": plain_fields(turn.inputs),
        "outputs": plain_fields(turn.outputs),
        "score": turn.score,
        **({"window": past.stop - past.start} if known else {"history": _told(past.messages)}),
        **({"nodes": turn.nodes} if turn.nodes else {}),
    }


def _told(messages: list[Told]) -> list[Told]:
    return [plain_fields(one) for one in messages]


@dataclass(frozen=True, slots=True)
class Saved:
    """A conversation that was read from a file."""

    options: dict[str, Any]
    """What the session was made with."""
    initial: list[Told]
    earlier: list[Told]
    turns: list[dict[str, Any]]

    def fill(self, log: TurnLog) -> None:
        """Have these turns, and nothing else."""
        log.begin_with(self.initial)
        log.recall(self.earlier)
        log.put_back(self.turns)


_OPTIONS = ("history_field", "max_turns", "max_stored_turns", "copy_mode", "history_policy")
_SETS = ("exclude_fields", "history_input_fields")


def read_state(data: bytes) -> Saved:
    """The conversation in a saved file; raises ValidationError if it is none."""
    found: Any = loads(data)
    state = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if state.get("version") not in (1, VERSION):
        raise ValidationError("This is no saved session of version 1 or 2.")
    options = {name: state[name] for name in _OPTIONS if name in state}
    for name in _SETS:
        if state.get(name) is not None:
            options[name] = set(state[name])
    initial: Any = state.get("initial_history")
    return Saved(
        options,
        [] if initial is None else history_from(initial),
        history_from(state.get("earlier", [])),
        [_checked(turn) for turn in state.get("turns", [])],
    )


def _checked(turn: Any) -> dict[str, Any]:
    saved = cast("dict[str, Any]", turn) if isinstance(turn, dict) else {}
    if not all(isinstance(saved.get(name), dict) for name in ("inputs", "outputs")):
        raise ValidationError(f"A saved turn has inputs and outputs, not only {sorted(saved)}.")
    return saved
