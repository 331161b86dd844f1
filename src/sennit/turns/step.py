"""The next step of a run, as a value computed from its progress and options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from sennit.errors import ConflictError, NothingToAskError, SennitError
from sennit.messages.message import Message
from sennit.services.models.reply import NO_USAGE, Usage
from sennit.turns.options import Budget, SessionOptions
from sennit.turns.result import Notice, StopReason


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the pending tool calls."""

    requests: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run."""

    reason: StopReason
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Greet:
    """Have the model greet, before anything else."""


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Summarise the earlier messages, so that the prompt fits the context window."""


Step: TypeAlias = CallModel | RunTools | Greet | MakeRoom | Stop


@dataclass(slots=True)
class Progress:
    """The progress of a run."""

    turns: int = 0
    passes: int = 0
    """How often pending tool calls were run."""
    tool_calls: int = 0
    usage: Usage = NO_USAGE
    pending: list[Message] = field(default_factory=list[Message])
    """Requests on the branch without a result, the oldest first."""
    answered: bool = False
    """True if the last message is an answer without tool calls."""
    finish: str | None = None
    """The last finish reason of the model."""
    model: str = ""
    repeated: int = 0
    """How often the latest call was repeated in a row."""
    latest: tuple[str, str] | None = None
    """The tool and arguments of the latest call."""
    waiting: bool = False
    """True if a call waits for approval."""
    greets: bool = False
    """True until the model has greeted."""
    window_error: Exception | None = None
    """The provider's error about an exceeded context window."""
    summary_failed: bool = False
    """True if a summary failed since the last reply."""
    stopping: bool = False
    """True if the run ends after this turn."""
    seconds: float = 0.0
    """Time since the start."""


def single_step(progress: Progress, only: UUID, *, has_run: bool, resumed: bool) -> Step:
    """Return the next step of a run that makes one tool call and calls no model.

    `has_run` is True after the call was attempted. A suspended run that was resumed for this call
    is suspended again.
    """
    requests = tuple(request for request in progress.pending if request.id == only)
    if not has_run:
        notice = Notice("error", "not_pending", "Another process has just handled this call.")
        return RunTools(requests) if requests else Stop("invalid", (notice,))
    if requests:
        return _stop_for_approval()
    if resumed:
        return Stop(
            "suspended",
            (Notice("info", "one_call", ("The call has run; resume continues the run.")),),
        )
    return _stop_with_pending_calls() if progress.pending else Stop("stable")


def next_step(progress: Progress, options: SessionOptions) -> Step:
    """Return the next step of a run.

    Pending calls come first: a model is never called while a tool call lacks its result.
    """
    if progress.stopping:
        return Stop("cancelled", (Notice("info", "after_turn", "Stopped after the turn."),))
    if progress.finish == "error":
        text = "The model's answer ended with an error."
        return Stop("error", (Notice("error", "failed", text),))
    if progress.greets:
        return Greet()
    if progress.waiting:
        return _stop_for_approval()
    if not progress.pending and progress.answered:
        return _stop_after_answer(progress)
    if progress.turns and not options.process_tools:
        return _stop_with_pending_calls()
    if progress.turns >= options.max_turns:
        return _stop_at_limit(
            "max_turns", f"The model did not come to an end in {options.max_turns} turns"
        )
    if (limit := exhausted_limit(progress, options.budget)) is not None:
        text = f"The budget of {limit} is used up; raise it with budget=Budget({limit}=...)."
        return Stop("budget", (Notice("error", f"budget_{limit}", text),))
    return _run_tools(progress, options) if progress.pending else CallModel()


def _stop_for_approval() -> Stop:
    return Stop("suspended", (Notice("info", "approval", "A tool call waits for approval."),))


def _stop_with_pending_calls() -> Stop:
    return Stop("stable", (Notice("info", "pending_tools", "Tool calls were left pending."),))


def _stop_after_answer(progress: Progress) -> Stop:
    if progress.finish == "length":
        text = "The answer was cut off by the token limit; raise max_tokens."
        return Stop("length", (Notice("error", "length", text),))
    if progress.finish == "refusal":
        return Stop("stable", (Notice("warning", "refusal", "The model refused to answer."),))
    return Stop("stable")


def _run_tools(progress: Progress, options: SessionOptions) -> Step:
    if progress.repeated >= options.repeat_limit and progress.latest is not None:
        text = f"The model asked for {progress.latest[0]!r} {progress.repeated} times in a row."
        return Stop("loop", (Notice("error", "loop", text),))
    if progress.passes >= options.max_tool_passes:
        return _stop_at_limit("max_tool_passes", f"Tools were called in {progress.passes} passes")
    return RunTools(tuple(progress.pending))


def _stop_at_limit(code: str, text: str) -> Stop:
    return Stop("max_turns", (Notice("error", code, f"{text}; raise it with {code}=."),))


def exhausted_limit(progress: Progress, budget: Budget | None) -> str | None:
    """Return the name of the exhausted limit of the budget, or None."""
    if budget is None:
        return None
    usage = progress.usage
    used = {
        "tokens": (usage.input_tokens + usage.output_tokens, budget.tokens),
        "cost": (usage.cost or 0.0, budget.cost),
        "seconds": (progress.seconds, budget.seconds),
        "tool_calls": (progress.tool_calls, budget.tool_calls if progress.pending else None),
    }
    return next(
        (name for name, (spent, limit) in used.items() if limit is not None and spent >= limit),
        None,
    )


def stop_for_error(error: Exception) -> Stop:
    """Return the Stop of a run in which the model, the store or plugged-in code failed."""
    if isinstance(error, NothingToAskError):
        return Stop("invalid", (Notice("error", "empty", str(error)),))
    text = str(error) if isinstance(error, SennitError) else f"{type(error).__name__}: {error}"
    code = "lost_lease" if isinstance(error, ConflictError) else type(error).__name__
    return Stop("error", (Notice("error", getattr(error, "kind", code), text),))
