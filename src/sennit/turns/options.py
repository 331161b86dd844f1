"""Options and input of a run, and options of its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sys import float_info
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import InvalidTypeError, ValidationError, short_repr, suggesting_names
from sennit.messages.message import Message
from sennit.messages.output_validation import DEFAULT_REPAIRS
from sennit.turns.output import RunOutput

OnCancel: TypeAlias = Literal["keep_partial", "discard_partial"]
WhenBusy: TypeAlias = Literal["error", "wait", "interrupt"]


@suggesting_names
@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of a run, checked before each call of a model or tool; None is no limit."""

    tokens: int | None = None
    """Input and output tokens of all model calls."""
    cost: float | None = None
    """US dollars; a model without a known price costs nothing."""
    seconds: float | None = None
    """Seconds since the start of the run."""
    tool_calls: int | None = None
    """The number of tool calls."""

    def __post_init__(self) -> None:
        _check_minimum(self.tokens, 0, "tokens", int)
        _check_minimum(self.tool_calls, 0, "tool_calls", int)
        _check_minimum(self.cost, 0, "cost", (int, float))
        _check_minimum(self.seconds, 0, "seconds", (int, float))


@suggesting_names
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a run. Raises ValidationError for an invalid limit."""

    process_tools: bool = True
    """Whether the tools that the model calls are run; if not, there is exactly one model call."""
    max_turns: int = 8
    """The maximum number of model calls."""
    max_tool_passes: int = 4
    """The maximum number of times that pending tool calls are run."""
    allow_parallel_tools: bool = False
    """Whether the calls of one turn run in parallel; their results are stored in order anyway."""
    budget: Budget | None = None
    """The limits of tokens, cost, time and tool calls."""
    repeat_limit: int = 3
    """The number of times in a row that the same call stops the run as a loop."""
    summarize_at: float | None = 0.8
    """The share of the model's context window from which earlier messages are summarised; they also
    are when the provider reports that the window is exceeded. None for never.
    """
    max_output_chars: int | None = None
    """The length from which a tool's result is stored as a blob: the model is sent the first tenth
    of that, and reads on with the tool `read_tool_output`. None for never; a session without a
    store keeps results whole.
    """
    on_cancel: OnCancel = "keep_partial"
    """What happens to the partial answer when the run is cancelled."""
    repairs: int = DEFAULT_REPAIRS
    """How often the model is told what is wrong with an answer that does not fit `output`."""
    when_busy: WhenBusy = "error"
    """What happens if another run is active on the branch: this one is refused ("error"), waits for
    its end as long as that takes ("wait"), or ends it first ("interrupt"). A tool that would wait
    for the run that called it is refused.
    """

    def __post_init__(self) -> None:
        _check_minimum(self.max_turns, 1, "max_turns", int)
        _check_minimum(self.max_tool_passes, 0, "max_tool_passes", int)
        _check_minimum(self.repeat_limit, 1, "repeat_limit", int)
        _check_minimum(self.repairs, 0, "repairs", int)
        _check_minimum(self.max_output_chars, 100, "max_output_chars", int)
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


@suggesting_names
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingOptions:
    """Options of a stream. Raises ValidationError for invalid values."""

    coalesce_tokens: bool = True
    """Whether small deltas are joined before they are published."""
    coalesce_delay_ms: int = 40
    """The maximum time that a delta waits to be joined with more."""
    preferred_chunk_size: int = 64
    """The number of characters that are published without waiting."""

    def __post_init__(self) -> None:
        _check_bool(self.coalesce_tokens, "coalesce_tokens")
        _check_minimum(self.coalesce_delay_ms, 0, "coalesce_delay_ms", (int, float))
        _check_minimum(self.preferred_chunk_size, 1, "preferred_chunk_size", int)


Check: TypeAlias = Callable[[str, str | None], str | None]
"""A function from an answer and its finish reason to an objection, or None to accept the answer."""


class RunInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a run."""

    say: tuple[Message, ...] = ()
    """Messages that are added to the branch at the start; a refused run adds none."""
    prompted: bool = False
    """The branch has the prompt of a special turn, which is not part of a conversation."""
    at: int | None = None
    """The number of messages, without the system message, that the branch must have at the start.
    """
    last: UUID | None = None
    """The id of the last of those messages; None for any."""
    check: Check | None = None
    """Checks each answer; the model gets its objection and answers again."""
    output: RunOutput | None = None
    """The output that the answer must contain."""
    only: UUID | None = None
    """The only tool call to make; no model is called."""


NO_INPUT = RunInput()


def _check_minimum(value: Any, minimum: int, name: str, kind: Any) -> None:
    if value is None and name in (
        "tokens",
        "cost",
        "seconds",
        "tool_calls",
        "summarize_at",
        "max_output_chars",
    ):
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
