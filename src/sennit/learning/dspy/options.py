"""Options of a session, validated once, and what they say about the history.

The options of the history select which fields of a turn later calls get, and how many turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from sennit.errors import ValidationError, short_repr
from sennit.learning.dspy.call_lock import LockMode
from sennit.learning.dspy.history import HistoryEntry, Turn

CopyMode: TypeAlias = Literal["deep", "shallow", "none"]
HistoryPolicy: TypeAlias = Literal["override", "use_if_provided", "replace_session"]
OnMetricError: TypeAlias = Literal["zero", "raise"]
OnTurn: TypeAlias = Callable[[Any, Turn], object]
"""Called with the session and its new turn."""
Scope: TypeAlias = Literal["isolated", "shared"]
Lifetime: TypeAlias = Literal["persistent", "episodic", "stateless"]
Consolidator: TypeAlias = Callable[[str, list[Turn], str], str]
"""Returns a node's new memory, from its memory, the turns of an episode and the node's name."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory options of nodes."""

    scope: Scope = "isolated"
    lifetime: Lifetime = "persistent"
    consolidator: Consolidator | None = None

    def __post_init__(self) -> None:
        _require_choice("scope", self.scope, Scope)
        _require_choice("lifetime", self.lifetime, Lifetime)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a session, without its store."""

    history_field: str = "history"
    max_turns: int | None = None
    """The maximum number of entries that a call is sent; None for all."""
    max_stored_turns: int | None = None
    """The maximum number of turns held in memory; None for all."""
    exclude_fields: frozenset[str] = frozenset()
    history_input_fields: frozenset[str] | None = None
    history_policy: HistoryPolicy = "override"
    on_metric_error: OnMetricError = "zero"
    strict_history_annotation: bool = False
    lock: LockMode = "none"
    copy_mode: CopyMode = "deep"
    on_turn: OnTurn | None = None
    memory: MemoryPlan | None = None

    def __post_init__(self) -> None:
        field: Any = self.history_field
        if not isinstance(field, str) or not field.isidentifier():
            raise ValidationError(
                f"history_field must be a field name such as 'history', got {short_repr(field)}."
            )
        _require_choice("history_policy", self.history_policy, HistoryPolicy)
        _require_choice("on_metric_error", self.on_metric_error, OnMetricError)
        _require_choice("lock", self.lock, LockMode)
        _require_choice("copy_mode", self.copy_mode, CopyMode)
        _require_limit("max_turns", self.max_turns, 0)
        _require_limit("max_stored_turns", self.max_stored_turns, 1)

    def to_entry(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> HistoryEntry:
        """Return the history entry of a turn."""
        only = self.history_input_fields
        visible_inputs = {name: inputs[name] for name in inputs if only is None or name in only}
        return self._without_excluded({**visible_inputs, **outputs})

    def to_node_entry(self, values: Mapping[str, Any], inputs: AbstractSet[str]) -> HistoryEntry:
        """Return the history entry of a predictor with these inputs."""
        only = self.history_input_fields
        hidden = frozenset[str]() if only is None else inputs - only
        return self._without_excluded(
            {name: value for name, value in values.items() if name not in hidden}
        )

    def _without_excluded(self, values: Mapping[str, Any]) -> HistoryEntry:
        excluded = self.exclude_fields | {self.history_field}
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


def parse_field_names(name: str, value: Any) -> frozenset[str]:
    """Return the field names in an option; raises ValidationError if it is not a set of names.

    A single string is refused, because as a collection it would be a set of letters.
    """
    names: list[Any] = [] if isinstance(value, str) else list(cast("Iterable[Any]", value))
    if isinstance(value, str) or not all(isinstance(name, str) for name in names):
        raise ValidationError(
            f"{name} must be a set of field names such as {{'notes'}}, got {short_repr(value)}."
        )
    return frozenset(names)


def _require_choice(name: str, value: Any, allowed: Any) -> None:
    choices = get_args(allowed)
    if value not in choices:
        raise ValidationError(f"{name} must be one of {list(choices)}, got {short_repr(value)}.")


def _require_limit(name: str, value: Any, minimum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be an int or None, got {short_repr(value)}.")
    if value < minimum:
        raise ValidationError(f"{name} must be at least {minimum}, got {value}.")
