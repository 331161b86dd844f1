"""File format of a saved DSPy session, version 2; version 1 can be read too.

In addition to the public version 2, the file holds the history positions of each turn, the history
entries before the first turn, and the nodes. A reader that ignores these fields rebuilds the
histories by its own rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Self, cast

from sennit.atomic_file import atomic_write
from sennit.errors import SennitError, ValidationError, short_repr
from sennit.learning.dspy.history import HistoryEntry, parse_history
from sennit.learning.dspy.history_options import HistoryOptions
from sennit.learning.dspy.node_memory import Lifetime, MemoryPlan, Scope
from sennit.learning.dspy.options import require_choice
from sennit.learning.dspy.plain_values import plain_fields
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.turn_log import TurnLog
from sennit.learning.dspy.turn_messages import turn_metadata
from sennit.messages.codec import dumps, loads

VERSION = 2

_log = logging.getLogger(__name__)
_OPTION_NAMES = ("history_field", "max_turns", "max_stored_turns", "copy_mode", "history_policy")
_SET_OPTION_NAMES = ("exclude_fields", "history_input_fields")
_TURN_FIELD_TYPES = {
    "index": (int,),
    "score": (int, float),
    "nodes": (dict,),
    "call": (str,),
    "memories": (dict,),
}


@dataclass(frozen=True, slots=True)
class SavedTurns:
    """Turns as plain data."""

    initial: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    earlier: list[HistoryEntry] = field(default_factory=list[HistoryEntry])
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @classmethod
    def of(cls, log: TurnLog) -> Self:
        """Return the turns of a log as plain data."""
        return cls(
            [plain_fields(entry) for entry in log.initial],
            [plain_fields(entry) for entry in log.earlier],
            [_turn_to_dict(turn, log.dropped) for turn in log.turns],
        )

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the turns in the data of a file; raises ValidationError for invalid ones."""
        initial = state.get("initial_history")
        return cls(
            [] if initial is None else parse_history(initial),
            parse_history(state.get("earlier", [])),
            [_parse_turn(turn) for turn in _list_field(state, "turns")],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the data to write to a file."""
        initial = {"messages": self.initial} if self.initial else None
        data: dict[str, Any] = {"initial_history": initial, "turns": self.turns}
        return {**data, "earlier": self.earlier} if self.earlier else data

    def to_log(self, options: HistoryOptions) -> TurnLog:
        """Return a log in memory with these turns."""
        return TurnLog.of(options, self.initial, self.earlier, self.turns)


@dataclass(frozen=True, slots=True)
class SavedState:
    """A conversation, its nodes and its options as plain data."""

    conversation: SavedTurns
    nodes: dict[str, tuple[SavedTurns, str]]
    """The turns and the memory of each node, by name."""
    options: dict[str, Any]
    """The options of the session, by the names of its parameters."""

    @classmethod
    def of(
        cls, log: TurnLog, nodes: Mapping[str, tuple[TurnLog, str]], options: Mapping[str, Any]
    ) -> Self:
        """Return the current state of a session as plain data."""
        history = log.options
        only = history.only_inputs
        return cls(
            SavedTurns.of(log),
            {name: (SavedTurns.of(node_log), memory) for name, (node_log, memory) in nodes.items()},
            {
                "history_field": history.history_field,
                "max_turns": history.max_turns,
                "max_stored_turns": history.max_stored,
                "copy_mode": history.copy_mode,
                "exclude_fields": sorted(history.exclude),
                "history_input_fields": None if only is None else sorted(only),
                **options,
            },
        )

    @property
    def history_options(self) -> HistoryOptions:
        """The history options that were saved."""
        options, only = self.options, self.options.get("history_input_fields")
        return HistoryOptions(
            history_field=options.get("history_field", "history"),
            exclude=frozenset(options.get("exclude_fields") or ()),
            only_inputs=None if only is None else frozenset(only),
            max_turns=options.get("max_turns"),
            max_stored=options.get("max_stored_turns"),
            copy_mode=options.get("copy_mode", "deep"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the data to write to a file."""
        nodes = {
            name: {**turns.to_dict(), "memory": memory}
            for name, (turns, memory) in self.nodes.items()
        }
        data = {"version": VERSION, **self.options, **self.conversation.to_dict()}
        return {**data, "nodes": nodes} if nodes else data


def write_file(path: str | Path, saved: SavedState) -> None:
    """Write a state atomically and durably: a crash leaves the old file or the new one."""
    data = dumps(saved.to_dict())
    with atomic_write(Path(path), replace=True) as temporary:
        temporary.write_bytes(data)


def read_file(path: str | Path) -> SavedState:
    """Read a saved conversation of version 1 or 2; raises ValidationError if it is not one.

    Version 1 names the inputs of the history `input_field_override`, and may lack a version. Other
    writers of version 2 store nodes as `node_states`, each with an `l2_memory`; these are read as
    nodes.
    """
    state = _as_dict(loads(Path(path).read_bytes()))
    if state.get("version", 1) not in (1, VERSION) or not {"version", "turns"} & state.keys():
        raise ValidationError(
            f"{str(path)!r} is not a saved session of version 1 or {VERSION}; its version is "
            f"{short_repr(state.get('version'))}."
        )
    if state.get("history_input_fields") is None and "input_field_override" in state:
        state["history_input_fields"] = state["input_field_override"]
    options = {name: state[name] for name in _OPTION_NAMES if name in state}
    options |= {
        name: set(_list_field(state, name))
        for name in _SET_OPTION_NAMES
        if state.get(name) is not None
    }
    if plan := _as_dict(state.get("memory")):
        require_choice("scope", plan.get("scope"), Scope)
        require_choice("lifetime", plan.get("lifetime"), Lifetime)
        options["memory"] = MemoryPlan(plan["scope"], plan["lifetime"])
    if state.get("l2_memory"):
        _log.warning(
            "%s contains an l2_memory of the whole program, which is ignored: only predictors have "
            "memory.",
            path,
        )
    nodes = {
        name: (SavedTurns.from_dict(_as_dict(node)), str(_as_dict(node).get("memory", "")))
        for name, node in _as_dict(state.get("nodes")).items()
    }
    return SavedState(SavedTurns.from_dict(state), dict(_node_states(state)) | nodes, options)


def is_saved_session(path: str | Path) -> bool:
    """Return whether a file contains a saved conversation; False if it cannot be read."""
    try:
        return {"version", "turns"} <= _as_dict(loads(Path(path).read_bytes())).keys()
    except (OSError, SennitError):
        return False


def _node_states(
    state: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, tuple[SavedTurns, str]]]:
    """Yield the nodes of a file by another writer of version 2, including nested ones."""
    for name, value in _as_dict(state.get("node_states")).items():
        node = _as_dict(value)
        yield f"{prefix}{name}", (SavedTurns.from_dict(node), str(node.get("l2_memory") or ""))
        yield from _node_states(node, f"{prefix}{name}.")


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list_field(state: Mapping[str, Any], name: str) -> list[Any]:
    value = state.get(name, [])
    if not isinstance(value, list):
        raise ValidationError(
            f"{name!r} of a saved session must be a list, got {short_repr(value)}."
        )
    return cast("list[Any]", value)


def _turn_to_dict(turn: Turn, dropped: int) -> dict[str, Any]:
    return {
        "index": turn.index,
        "inputs": plain_fields(turn.inputs),
        "outputs": plain_fields(turn.outputs),
        "score": turn.score,
        **turn_metadata(turn, dropped),
    }


def _parse_turn(turn: Any) -> dict[str, Any]:
    saved = _as_dict(turn)
    if not all(isinstance(saved.get(name), dict) for name in ("inputs", "outputs")):
        raise ValidationError(f"A saved turn needs inputs and outputs, got only {sorted(saved)}.")
    for name, types in _TURN_FIELD_TYPES.items():
        if not isinstance(saved.get(name), (*types, NoneType)):
            names = [kind.__name__ for kind in types]
            raise ValidationError(
                f"{name!r} of a saved turn must be one of {names}, got {short_repr(saved[name])}."
            )
    return {
        name: value
        for name, value in saved.items()
        if name not in _TURN_FIELD_TYPES or value is not None
    }
