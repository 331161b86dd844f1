"""Options of a run and of its stream."""

from __future__ import annotations

from dataclasses import dataclass
from sys import float_info
from typing import Any, Literal, TypeAlias

from sennit.errors import InvalidTypeError, ValidationError, short_repr

OnCancel: TypeAlias = Literal["keep_partial", "discard_partial"]
WhenBusy: TypeAlias = Literal["error", "wait", "interrupt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run, checked before each call of a model or tool; None is no limit."""

    tokens: int | None = None
    """Tokens sent and received, over all provider turns."""
    cost: float | None = None
    """US dollars; a model whose price nobody knows uses none."""
    seconds: float | None = None
    """Time since the run began."""
    tool_calls: int | None = None
    """Tools called."""

    def __post_init__(self) -> None:
        _check_minimum(self.tokens, 0, "tokens", int)
        _check_minimum(self.tool_calls, 0, "tool_calls", int)
        _check_minimum(self.cost, 0, "cost", (int, float))
        _check_minimum(self.seconds, 0, "seconds", (int, float))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a run. Raises ValidationError for an invalid limit."""

    process_tools: bool = True
    """Whether tools the model asks for are called; if not, there is exactly one provider turn."""
    max_turns: int = 8
    """The most provider turns."""
    max_tool_passes: int = 4
    """The most times that pending tool calls are worked off."""
    allow_parallel_tools: bool = False
    """Whether the calls of one turn run together; their results are stored in order anyway."""
    budget: Budget | None = None
    """What the run may use."""
    repeat_limit: int = 3
    """How often the same call may be asked for in a row before the run is stopped as a loop."""
    summarize_at: float | None = 0.8
    """How much of the model's window may be used before what was said earlier is summarised, as a
    share of it; also when the provider says that the window is exceeded. None for never."""
    on_cancel: OnCancel = "keep_partial"
    """What happens to text that was being said when the run is cancelled."""
    when_busy: WhenBusy = "error"
    """What happens if another run is under way on the branch: this one is refused ("error"), waits
    for its end as long as that takes ("wait"), or ends it first ("interrupt")."""

    def __post_init__(self) -> None:
        _check_minimum(self.max_turns, 1, "max_turns", int)
        _check_minimum(self.max_tool_passes, 0, "max_tool_passes", int)
        _check_minimum(self.repeat_limit, 1, "repeat_limit", int)
        _check_minimum(self.summarize_at, 0, "summarize_at", (int, float))
        if self.summarize_at is not None and not 0 < self.summarize_at <= 1:
            raise ValidationError(
                f"summarize_at is a share of the window, more than 0 and at most 1 (None for "
                f"never), got {short_repr(self.summarize_at)}."
            )
        for name in ("process_tools", "allow_parallel_tools"):
            _check_bool(getattr(self, name), name)
        if self.budget is not None and not isinstance(self.budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"budget must be a Budget, got {short_repr(self.budget)}.")
        if self.on_cancel not in ("keep_partial", "discard_partial"):
            raise ValidationError(
                f"on_cancel must be 'keep_partial' or 'discard_partial', "
                f"got {short_repr(self.on_cancel)}."
            )
        if self.when_busy not in ("error", "wait", "interrupt"):
            raise ValidationError(
                "when_busy must be 'error', 'wait' or 'interrupt', got "
                f"{short_repr(self.when_busy)}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingOptions:
    """Options of a stream. Raises ValidationError for invalid values."""

    coalesce_tokens: bool = True
    """Whether small pieces are joined before they are shown."""
    coalesce_delay_ms: int = 40
    """The longest a piece waits to be joined with more; a stalled stream shows what it has."""
    preferred_chunk_size: int = 64
    """How many characters are enough to be shown without waiting."""

    def __post_init__(self) -> None:
        _check_bool(self.coalesce_tokens, "coalesce_tokens")
        _check_minimum(self.coalesce_delay_ms, 0, "coalesce_delay_ms", (int, float))
        _check_minimum(self.preferred_chunk_size, 1, "preferred_chunk_size", int)


def _check_minimum(value: Any, minimum: int, name: str, kind: Any) -> None:
    if value is None and name in ("tokens", "cost", "seconds", "tool_calls", "summarize_at"):
        return
    number: Any = value
    if not isinstance(number, kind) or isinstance(number, bool):
        raise InvalidTypeError(f"{name} must be a number, got {short_repr(value)}.")
    if isinstance(number, int) and number > float_info.max and kind is not int:
        raise ValidationError(f"{name} is too large a number, got {short_repr(value)}.")
    if not number >= minimum:  # NaN is not either
        raise ValidationError(f"{name} must be at least {minimum}, got {short_repr(value)}.")


def _check_bool(value: Any, name: str) -> None:
    if type(value) is not bool:
        raise InvalidTypeError(f"{name} must be True or False, got {short_repr(value)}.")
