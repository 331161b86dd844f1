"""Saved state of a DSPy session, version 2; version 1 is read too.

Beside what version 2 has always held, it says where the past of each turn begins and ends, what was
told before the first turn that is held, and what the nodes hold. A reader that knows nothing of
these rebuilds the pasts by its own rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Self, cast

from sennit.errors import SennitError, ValidationError, shown
from sennit.ids import new_id
from sennit.learning.dspy.history import Told, history_from
from sennit.learning.dspy.history_options import HistoryOptions
from sennit.learning.dspy.node_memory import Lifetime, MemoryPlan, Scope
from sennit.learning.dspy.options import require
from sennit.learning.dspy.plain_values import plain_fields
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.turn_log import TurnLog
from sennit.learning.dspy.turn_messages import note_of
from sennit.messages.codec import dumps, loads

VERSION = 2

_log = logging.getLogger(__name__)
_OPTIONS = ("history_field", "max_turns", "max_stored_turns", "copy_mode", "history_policy")
_SETS = ("exclude_fields", "history_input_fields")
_KINDS = {
    "index": (int,),
    "score": (int, float),
    "nodes": (dict,),
    "call": (str,),
    "memories": (dict,),
}


@dataclass(frozen=True, slots=True)
class SavedTurns:
    """Turns as plain data."""

    initial: list[Told] = field(default_factory=list[Told])
    earlier: list[Told] = field(default_factory=list[Told])
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @classmethod
    def of(cls, log: TurnLog) -> Self:
        """The turns of a log."""
        return cls(
            [plain_fields(told) for told in log.initial],
            [plain_fields(told) for told in log.earlier],
            [_written(turn, log.gone) for turn in log.turns],
        )

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> Self:
        """The turns in a file."""
        initial = state.get("initial_history")
        return cls(
            [] if initial is None else history_from(initial),
            history_from(state.get("earlier", [])),
            [_checked(turn) for turn in _listed(state, "turns")],
        )

    def written(self) -> dict[str, Any]:
        """The same for a file."""
        initial = {"messages": self.initial} if self.initial else None
        found: dict[str, Any] = {"initial_history": initial, "turns": self.turns}
        return {**found, "earlier": self.earlier} if self.earlier else found

    def log(self, telling: HistoryOptions) -> TurnLog:
        """A log in memory that holds them."""
        return TurnLog.of(telling, self.initial, self.earlier, self.turns)


@dataclass(frozen=True, slots=True)
class SavedState:
    """A conversation as plain data, its nodes, and how it was told."""

    conversation: SavedTurns
    nodes: dict[str, tuple[SavedTurns, str]]
    """Turns and memory, by name."""
    options: dict[str, Any]
    """What the session was made with."""

    @classmethod
    def of(
        cls, log: TurnLog, nodes: Mapping[str, tuple[TurnLog, str]], options: Mapping[str, Any]
    ) -> Self:
        """Return the present state of a session as plain data."""
        telling = log.telling
        only = telling.only_inputs
        return cls(
            SavedTurns.of(log),
            {name: (SavedTurns.of(one), memory) for name, (one, memory) in nodes.items()},
            {
                "history_field": telling.history_field,
                "max_turns": telling.max_turns,
                "max_stored_turns": telling.max_stored,
                "copy_mode": telling.copies,
                "exclude_fields": sorted(telling.exclude),
                "history_input_fields": None if only is None else sorted(only),
                **options,
            },
        )

    @property
    def telling(self) -> HistoryOptions:
        """The history options that were saved."""
        options, only = self.options, self.options.get("history_input_fields")
        return HistoryOptions(
            history_field=options.get("history_field", "history"),
            exclude=frozenset(options.get("exclude_fields") or ()),
            only_inputs=None if only is None else frozenset(only),
            max_turns=options.get("max_turns"),
            max_stored=options.get("max_stored_turns"),
            copies=options.get("copy_mode", "deep"),
        )

    def written(self) -> dict[str, Any]:
        """The same for a file."""
        nodes = {
            name: {**one.written(), "memory": memory} for name, (one, memory) in self.nodes.items()
        }
        found = {"version": VERSION, **self.options, **self.conversation.written()}
        return {**found, "nodes": nodes} if nodes else found


def write_file(path: str | Path, saved: SavedState) -> None:
    """Write it; whoever reads the file meanwhile sees what was there before, or all of it."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{new_id().hex}.part")
    said = dumps(saved.written())
    try:
        part.write_bytes(said)
        part.replace(target)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read_file(path: str | Path) -> SavedState:
    """Read a saved conversation of version 1 or 2; raises ValidationError if it is none.

    Files of version 1 name the inputs of the history `input_field_override`, and may say no
    version. Public writers of version 2 keep nodes as `node_states`, each with an `l2_memory`;
    they are read as nodes.
    """
    state = _mapping(loads(Path(path).read_bytes()))
    if state.get("version", 1) not in (1, VERSION) or not {"version", "turns"} & state.keys():
        raise ValidationError(
            f"{str(path)!r} is not a saved session of version 1 or {VERSION}; its version is "
            f"{shown(state.get('version'))}."
        )
    if state.get("history_input_fields") is None and "input_field_override" in state:
        state["history_input_fields"] = state["input_field_override"]
    options = {name: state[name] for name in _OPTIONS if name in state}
    options |= {name: set(_listed(state, name)) for name in _SETS if state.get(name) is not None}
    if plan := _mapping(state.get("memory")):
        require("scope", plan.get("scope"), Scope)
        require("lifetime", plan.get("lifetime"), Lifetime)
        options["memory"] = MemoryPlan(plan["scope"], plan["lifetime"])
    if state.get("l2_memory"):
        _log.warning(
            "%s contains an l2_memory of the whole program, which is ignored: only predictors have "
            "memory.",
            path,
        )
    nodes = {
        name: (SavedTurns.read(_mapping(one)), str(_mapping(one).get("memory", "")))
        for name, one in _mapping(state.get("nodes")).items()
    }
    return SavedState(SavedTurns.read(state), dict(_node_states(state)) | nodes, options)


def is_saved(path: str | Path) -> bool:
    """Tell whether a file holds a saved conversation; one that cannot be read holds none."""
    try:
        return {"version", "turns"} <= _mapping(loads(Path(path).read_bytes())).keys()
    except (OSError, SennitError):
        return False


def _node_states(
    state: Mapping[str, Any], inside: str = ""
) -> Iterator[tuple[str, tuple[SavedTurns, str]]]:
    """The nodes of a file as other writers of version 2 keep them, also those inside others."""
    for name, one in _mapping(state.get("node_states")).items():
        kept = _mapping(one)
        yield f"{inside}{name}", (SavedTurns.read(kept), str(kept.get("l2_memory") or ""))
        yield from _node_states(kept, f"{inside}{name}.")


def _mapping(found: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _listed(state: Mapping[str, Any], name: str) -> list[Any]:
    found = state.get(name, [])
    if not isinstance(found, list):
        raise ValidationError(f"{name!r} of a saved session is a list, got {shown(found)}.")
    return cast("list[Any]", found)


def _written(turn: Turn, gone: int) -> dict[str, Any]:
    return {
        "index": turn.index,
        "inputs": plain_fields(turn.inputs),
        "outputs": plain_fields(turn.outputs),
        "score": turn.score,
        **note_of(turn, gone),
    }


def _checked(turn: Any) -> dict[str, Any]:
    saved = _mapping(turn)
    if not all(isinstance(saved.get(name), dict) for name in ("inputs", "outputs")):
        raise ValidationError(f"A saved turn needs inputs and outputs, got only {sorted(saved)}.")
    for name, kinds in _KINDS.items():
        if not isinstance(saved.get(name), (*kinds, NoneType)):
            raise ValidationError(f"{name!r} of a saved turn cannot be {shown(saved[name])}.")
    return {name: one for name, one in saved.items() if name not in _KINDS or one is not None}
