"""Options of the history: which fields of a turn, and how many turns."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sennit.learning.dspy.history import Told

CopyMode: TypeAlias = Literal["deep", "shallow", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """Options of the history: which fields later calls get, and how many turns."""

    history_field: str = "history"
    exclude: frozenset[str] = frozenset()
    only_inputs: frozenset[str] | None = None
    max_turns: int | None = None
    """How many of the last messages a call is told; None for all."""
    max_stored: int | None = None
    """How many turns are held; None for all."""
    copies: CopyMode = "deep"

    def told(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Told:
        """Return the history entry of a turn, as later calls get it."""
        only = self.only_inputs
        heard = {name: inputs[name] for name in inputs if only is None or name in only}
        return self.shown({**heard, **outputs})

    def inside(self, values: Mapping[str, Any], inputs: AbstractSet[str]) -> Told:
        """Return what a predictor with these inputs was asked and said, as later calls hear it."""
        only = self.only_inputs
        hidden = frozenset[str]() if only is None else inputs - only
        return self.shown({name: one for name, one in values.items() if name not in hidden})

    def shown(self, values: Mapping[str, Any]) -> Told:
        """Return the values that may stand in a history."""
        left_out = self.exclude | {self.history_field}
        return {name: one for name, one in values.items() if name not in left_out}

    def kept(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A turn's own values, out of reach of whoever changes the caller's."""
        if self.copies == "none":
            return dict(values)
        copied = deepcopy if self.copies == "deep" else copy
        return {name: _copied(value, copied) for name, value in values.items()}


def _copied(value: Any, copied: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    try:
        return copied(value)
    except Exception:  # what cannot be copied, such as an open file, is shared
        return value
