"""File format of a saved DSPy session, version 2; version 1 can be read too.

In addition to the public version 2, the file holds the history positions of each turn, the history
entries before the first turn, and the nodes. A reader that ignores these fields rebuilds the
histories by its own rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, cast

from sennit.atomic_file import atomic_write
from sennit.errors import SennitError, ValidationError, listed, short_repr
from sennit.learning.dspy.history import HistoryEntry, Turn, parse_history
from sennit.learning.dspy.options import MemoryPlan, Options
from sennit.learning.dspy.plain_values import plain_fields
from sennit.learning.dspy.turn_log import TurnLog
from sennit.learning.dspy.turn_messages import turn_metadata
from sennit.messages.codec import dumps, loads

VERSION = 2

_OPTION_NAMES = ("history_field", "max_turns", "max_stored_turns", "copy_mode", "history_policy")
_SET_OPTION_NAMES = ("exclude_fields", "history_input_fields")
_TURN_FIELD_TYPES = {
    "index": (int,),
    "score": (int, float),
    "nodes": (dict,),
    "call": (str,),
    "memories": (dict,),
}


class SavedTurns(NamedTuple):
    """Turns as plain data, and the memory of their node."""

    initial: list[HistoryEntry]
    earlier: list[HistoryEntry]
    turns: list[dict[str, Any]]
    memory: str

    def to_log(self, options: Options) -> TurnLog:
        """Return a log in memory with these turns."""
        return TurnLog.of(options, self.initial, self.earlier, self.turns)


class SavedState(NamedTuple):
    """A conversation, its nodes by name, and the session's options by parameter name."""

    conversation: SavedTurns
    nodes: dict[str, SavedTurns]
    options: dict[str, Any]


def options_to_dict(options: Options) -> dict[str, Any]:
    """Return the options that are saved."""
    names, plan = options.history_input_fields, options.memory
    return {
        **{name: getattr(options, name) for name in _OPTION_NAMES},
        "exclude_fields": sorted(options.exclude_fields),
        "history_input_fields": None if names is None else sorted(names),
        **({} if plan is None else {"memory": plan.to_dict()}),
    }


def turns_to_dict(log: TurnLog) -> dict[str, Any]:
    """Return the turns of a log as plain data."""
    initial, earlier = ([*map(plain_fields, part)] for part in (log.initial, log.earlier))
    return {
        "initial_history": {"messages": initial} if initial else None,
        "turns": [_turn_to_dict(turn, log.dropped) for turn in log.turns],
        **({"earlier": earlier} if earlier else {}),
    }


def _turn_to_dict(turn: Turn, dropped: int) -> dict[str, Any]:
    fields = turn_fields(turn)
    return {
        **fields,
        "inputs": plain_fields(turn.inputs),
        "outputs": plain_fields(turn.outputs),
        **turn_metadata(turn, dropped),
    }


def turn_fields(turn: Turn) -> dict[str, Any]:
    """Return the fields of a turn that a log can be made of."""
    return {
        "index": turn.index,
        "inputs": turn.inputs,
        "outputs": turn.outputs,
        "score": turn.score,
    }


def write_file(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a state atomically and durably: a crash leaves the old file or the new one."""
    data = dumps(state)
    with atomic_write(Path(path), replace=True) as temporary:
        temporary.write_bytes(data)


def read_file(path: str | Path) -> SavedState:
    """Read a saved conversation of version 1 or 2; raises ValidationError if it is not one.

    Version 1 names the inputs of the history `input_field_override`, and may lack a version. Other
    writers of version 2 store nodes as `node_states`, each with an `l2_memory`; these are read as
    nodes.
    """
    return parse_state(_as_dict(loads(Path(path).read_bytes())), repr(str(path)))


def parse_state(state: dict[str, Any], source: str) -> SavedState:
    """Return the conversation in a dict, as `read_file` does; errors name its `source`."""
    if state.get("version", 1) not in (1, VERSION) or not {"version", "turns"} & state.keys():
        raise ValidationError(
            f"{source} is not a saved session of version 1 or {VERSION}; its version is "
            f"{short_repr(state.get('version'))}."
        )
    if state.get("history_input_fields") is None and "input_field_override" in state:
        state = {**state, "history_input_fields": state["input_field_override"]}
    options = {name: state[name] for name in _OPTION_NAMES if name in state}
    for name in _SET_OPTION_NAMES:
        if state.get(name) is not None:
            options[name] = frozenset(_list_field(state, name))
    plan: dict[str, Any] = _as_dict(state.get("memory"))
    if plan:
        options["memory"] = MemoryPlan.from_dict(plan)
    nodes = {name: _parse_turns(node) for name, node in _as_dict(state.get("nodes")).items()}
    return SavedState(_parse_turns(state, "l2_memory"), dict(_node_states(state)) | nodes, options)


def is_saved_session(path: str | Path) -> bool:
    """Return whether a file contains a saved conversation; False if it cannot be read."""
    try:
        return {"version", "turns"} <= _as_dict(loads(Path(path).read_bytes())).keys()
    except (OSError, SennitError):
        return False


def _node_states(state: Any, prefix: str = "") -> Iterator[tuple[str, SavedTurns]]:
    """Yield the nodes of a file by another writer of version 2, including nested ones."""
    for name, node in _as_dict(_as_dict(state).get("node_states")).items():
        yield f"{prefix}{name}", _parse_turns(node, "l2_memory")
        yield from _node_states(node, f"{prefix}{name}.")


def _parse_turns(value: Any, memory_field: str = "memory") -> SavedTurns:
    data = _as_dict(value)
    initial, memory = data.get("initial_history"), data.get(memory_field)
    return SavedTurns(
        [] if initial is None else parse_history(initial),
        parse_history(data.get("earlier", [])),
        [_parse_turn(turn) for turn in _list_field(data, "turns")],
        memory if isinstance(memory, str) else "",
    )


def _parse_turn(turn: Any) -> dict[str, Any]:
    saved = _as_dict(turn)
    if not all(isinstance(saved.get(name), dict) for name in ("inputs", "outputs")):
        raise ValidationError(
            f"A saved turn needs inputs and outputs, got {listed(saved, empty='neither')}."
        )
    for name, types in _TURN_FIELD_TYPES.items():
        if not isinstance(saved.get(name), (*types, NoneType)):
            names = " or ".join(kind.__name__ for kind in types)
            raise ValidationError(
                f"{name!r} of a saved turn must be of type {names}, got {short_repr(saved[name])}."
            )
    return {
        name: value
        for name, value in saved.items()
        if name not in _TURN_FIELD_TYPES or value is not None
    }


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list_field(state: Mapping[str, Any], name: str) -> list[Any]:
    value = state.get(name, [])
    if not isinstance(value, list):
        raise ValidationError(
            f"{name!r} of a saved session must be a list, got {short_repr(value)}."
        )
    return cast("list[Any]", value)
