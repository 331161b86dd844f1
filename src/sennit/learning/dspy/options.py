"""Options of a session, validated once, and what they say about the history.

The options of the history select which fields of a turn later calls get, and how many turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast, get_args

from sennit.errors import ValidationError, listed, short_repr
from sennit.learning.dspy.call_lock import LockMode
from sennit.learning.dspy.history import HistoryEntry, Turn
from sennit.learning.dspy.reducers import HistoryReducer

if TYPE_CHECKING:
    from sennit.sessions.client import ClientCore

CopyMode: TypeAlias = Literal["deep", "shallow", "none"]
HistoryPolicy: TypeAlias = Literal["override", "use_if_provided", "replace_session"]
OnMetricError: TypeAlias = Literal["zero", "raise"]
OnTurn: TypeAlias = Callable[[Any, Turn], object]
"""Called with the session and its new turn."""
BeforeTurn: TypeAlias = Callable[[Any, dict[str, Any]], Mapping[str, Any] | None]
"""Called with the session and the inputs of a call; may return other inputs."""
Isolation: TypeAlias = Literal["isolated", "shared"]
Lifespan: TypeAlias = Literal["persistent", "episodic", "stateless"]
Consolidator: TypeAlias = Callable[[str, list[Turn], str], str]
"""Returns a node's new memory, from its memory, the turns of an episode and the node's name."""


class ChildConfig(TypedDict, total=False):
    """The memory options of one predictor, or of all below a module."""

    isolation: Isolation
    lifespan: Lifespan
    consolidator: Any


class ExampleOptions(TypedDict, total=False):
    """The options of `to_examples`, by name."""

    metric: Callable[..., Any] | None
    """The metric that scores turns which have no score."""
    min_score: float | None
    """The least score of a turn to keep."""
    include_history: bool
    """Whether examples have the history among their inputs."""
    strict_trajectory: bool
    """Whether turns after one that scored lower are left out."""
    require_outputs: bool
    """Whether turns without outputs are left out."""


class SessionKeywords(TypedDict, total=False):
    """The options of a session, by name."""

    history_field: str
    """The history field."""
    max_turns: int | None
    """The maximum number of history entries that a call is sent."""
    exclude_fields: set[str] | None
    """The fields that are left out of the history."""
    history_input_fields: set[str] | None
    """The inputs that are part of the history."""
    initial_history: object
    """The history before the first turn."""
    history_policy: HistoryPolicy
    """The effect of a history passed to a call."""
    on_metric_error: OnMetricError
    """The effect of a metric that raises."""
    strict_history_annotation: bool
    """Whether a history field that is not a dspy.History is refused."""
    lock: LockMode
    """Which calls exclude each other."""
    input_field_override: set[str] | None
    """Another name of `history_input_fields`."""
    max_stored_turns: int | None
    """The maximum number of turns held in memory."""
    copy_mode: CopyMode
    """The copy mode of the program and its values."""
    on_turn: OnTurn | None
    """Called with each new turn."""
    before_turn: BeforeTurn | None
    """Called before each call."""
    history_reducer: HistoryReducer | Sequence[HistoryReducer] | None
    """Shorten the history."""
    store: ClientCore[Any] | None
    """The client whose store keeps the turns."""
    key: str | None
    """The key of the stored session."""
    branch: str | None
    """The branch of the stored session."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory options of nodes."""

    isolation: Isolation = "isolated"
    lifespan: Lifespan = "persistent"
    consolidator: Consolidator | None = None
    children: Mapping[str, MemoryPlan] = field(default_factory=dict[str, "MemoryPlan"])
    """Other options for the predictors at, or below, a dotted name."""
    exclude: frozenset[str] = frozenset()
    """The names at, or below, which predictors are sent no history."""

    def __post_init__(self) -> None:
        _require_choice("isolation", self.isolation, Isolation)
        _require_choice("lifespan", self.lifespan, Lifespan)

    def of(self, node: str) -> MemoryPlan:
        """Return the options of a predictor: those of the longest name that it is at or below."""
        paths = [node.rsplit(".", count)[0] for count in range(node.count(".") + 1)]
        if not self.exclude.isdisjoint(paths):
            return MemoryPlan(lifespan="stateless")
        return next((self.children[path] for path in paths if path in self.children), self)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data, without consolidators."""
        return {
            "isolation": self.isolation,
            "lifespan": self.lifespan,
            "children": {name: plan.to_dict() for name, plan in self.children.items()},
            "exclude": sorted(self.exclude),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryPlan:
        """Return the options that `to_dict` wrote; raises ValidationError."""
        children: Mapping[str, Any] = data.get("children", {})
        return cls(
            data.get("isolation", ""),
            data.get("lifespan", ""),
            children={name: cls.from_dict(plan) for name, plan in children.items()},
            exclude=parse_field_names("exclude", data.get("exclude", ())),
        )


class LoadKeywords(SessionKeywords, total=False):
    """The options of a loaded session, by name."""

    memory: MemoryPlan | None
    """The memory options of nodes."""


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
    before_turn: BeforeTurn | None = None
    reducers: tuple[HistoryReducer, ...] = ()
    """Shorten the history of each predictor, one after the other."""
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
        raise ValidationError(f"{name} must be one of {listed(choices)}, got {short_repr(value)}.")


def _require_limit(name: str, value: Any, minimum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be an int or None, got {short_repr(value)}.")
    if value < minimum:
        raise ValidationError(f"{name} must be at least {minimum}, got {value}.")
