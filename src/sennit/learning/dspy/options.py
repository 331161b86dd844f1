"""Options of a session, validated once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from sennit.errors import ValidationError, shown
from sennit.learning.dspy.call_lock import LockMode
from sennit.learning.dspy.history_options import CopyMode, HistoryOptions
from sennit.learning.dspy.node_memory import MemoryPlan
from sennit.learning.dspy.turn import Turn

HistoryPolicy: TypeAlias = Literal["override", "use_if_provided", "replace_session"]
OnMetricError: TypeAlias = Literal["zero", "raise"]
OnTurn: TypeAlias = Callable[[Any, Turn], object]
"""Given the session and its new turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a session, except for where its turns are."""

    telling: HistoryOptions
    policy: HistoryPolicy
    on_metric_error: OnMetricError
    strict: bool
    lock: LockMode
    on_turn: OnTurn | None
    plan: MemoryPlan | None

    def __post_init__(self) -> None:
        field: Any = self.telling.history_field
        if not isinstance(field, str) or not field.isidentifier():
            raise ValidationError(
                f"history_field is the name of a field such as 'history', got {shown(field)}."
            )
        require("history_policy", self.policy, HistoryPolicy)
        require("on_metric_error", self.on_metric_error, OnMetricError)
        require("lock", self.lock, LockMode)
        require("copy_mode", self.telling.copies, CopyMode)
        _require_limit("max_turns", self.telling.max_turns, 0)
        _require_limit("max_stored_turns", self.telling.max_stored, 1)


def require(name: str, given: Any, allowed: Any) -> None:
    """Raise ValidationError for a word that is none of those allowed."""
    words = get_args(allowed)
    if given not in words:
        raise ValidationError(f"{name} is one of {list(words)}, got {shown(given)}.")


def field_names(name: str, given: Any) -> frozenset[str]:
    """Return the field names in an option; raises ValidationError if it is no collection of them.

    One text alone is refused: taken as a collection, it would name its letters.
    """
    found: list[Any] = [] if isinstance(given, str) else list(cast("Iterable[Any]", given))
    if isinstance(given, str) or not all(isinstance(one, str) for one in found):
        raise ValidationError(
            f"{name} is a set of field names such as {{'notes'}}, got {shown(given)}."
        )
    return frozenset(found)


def _require_limit(name: str, given: Any, least: int) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValidationError(f"{name} is a whole number or None, got {shown(given)}.")
    if given < least:
        raise ValidationError(f"{name} is at least {least}, got {given}.")
