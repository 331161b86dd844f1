"""Options of the history: which fields of a turn, and how many turns."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sennit.learning.dspy.history import HistoryEntry

CopyMode: TypeAlias = Literal["deep", "shallow", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """Options of the history: which fields later calls get, and how many turns."""

    history_field: str = "history"
    exclude: frozenset[str] = frozenset()
    only_inputs: frozenset[str] | None = None
    max_turns: int | None = None
    """The maximum number of entries that a call is sent; None for all."""
    max_stored: int | None = None
    """The maximum number of turns held in memory; None for all."""
    copy_mode: CopyMode = "deep"

    def to_entry(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> HistoryEntry:
        """Return the history entry of a turn."""
        only = self.only_inputs
        visible_inputs = {name: inputs[name] for name in inputs if only is None or name in only}
        return self.without_excluded({**visible_inputs, **outputs})

    def to_node_entry(self, values: Mapping[str, Any], inputs: AbstractSet[str]) -> HistoryEntry:
        """Return the history entry of a predictor with these inputs."""
        only = self.only_inputs
        hidden = frozenset[str]() if only is None else inputs - only
        return self.without_excluded(
            {name: value for name, value in values.items() if name not in hidden}
        )

    def without_excluded(self, values: Mapping[str, Any]) -> HistoryEntry:
        """Return the values without excluded fields and the history field."""
        excluded = self.exclude | {self.history_field}
        return {name: value for name, value in values.items() if name not in excluded}

    def copy_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the values of a turn as `copy_mode` says, so callers cannot change them."""
        if self.copy_mode == "none":
            return dict(values)
        copy_function = deepcopy if self.copy_mode == "deep" else copy
        return {name: _copy_value(value, copy_function) for name, value in values.items()}


def _copy_value(value: Any, copy_function: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    try:
        return copy_function(value)
    except Exception:  # a value that cannot be copied, such as an open file, is shared
        return value
