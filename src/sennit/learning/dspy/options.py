"""Options of a session, validated once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from sennit.errors import ValidationError, short_repr
from sennit.learning.dspy.call_lock import LockMode
from sennit.learning.dspy.history_options import CopyMode, HistoryOptions
from sennit.learning.dspy.node_memory import MemoryPlan
from sennit.learning.dspy.turn import Turn

HistoryPolicy: TypeAlias = Literal["override", "use_if_provided", "replace_session"]
OnMetricError: TypeAlias = Literal["zero", "raise"]
OnTurn: TypeAlias = Callable[[Any, Turn], object]
"""Called with the session and its new turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a session, without its store."""

    history: HistoryOptions
    policy: HistoryPolicy
    on_metric_error: OnMetricError
    strict: bool
    lock: LockMode
    on_turn: OnTurn | None
    plan: MemoryPlan | None

    def __post_init__(self) -> None:
        field: Any = self.history.history_field
        if not isinstance(field, str) or not field.isidentifier():
            raise ValidationError(
                f"history_field must be a field name such as 'history', got {short_repr(field)}."
            )
        require_choice("history_policy", self.policy, HistoryPolicy)
        require_choice("on_metric_error", self.on_metric_error, OnMetricError)
        require_choice("lock", self.lock, LockMode)
        require_choice("copy_mode", self.history.copy_mode, CopyMode)
        _require_limit("max_turns", self.history.max_turns, 0)
        _require_limit("max_stored_turns", self.history.max_stored, 1)


def require_choice(name: str, value: Any, allowed: Any) -> None:
    """Raise ValidationError if a value is not one of the allowed literals."""
    choices = get_args(allowed)
    if value not in choices:
        raise ValidationError(f"{name} must be one of {list(choices)}, got {short_repr(value)}.")


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


def _require_limit(name: str, value: Any, minimum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be an int or None, got {short_repr(value)}.")
    if value < minimum:
        raise ValidationError(f"{name} must be at least {minimum}, got {value}.")
