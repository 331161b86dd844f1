"""The next step of a run, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from sennit.messages.message import Message
from sennit.services.models.reply import NO_USAGE, Usage
from sennit.turns.options import Budget, SessionOptions
from sennit.turns.result import Notice, StopReason


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Call the tools that the model has asked for."""

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
    """Have what was said earlier summarised, so that the model can be asked."""


Step: TypeAlias = CallModel | RunTools | Greet | MakeRoom | Stop


@dataclass(slots=True)
class Progress:
    """The progress of a run."""

    turns: int = 0
    passes: int = 0
    """How often pending calls were worked off."""
    tool_calls: int = 0
    usage: Usage = NO_USAGE
    pending: list[Message] = field(default_factory=list[Message])
    """Requests on the branch without a result, the oldest first."""
    answered: bool = False
    """Whether the model has had the last word, and asked for nothing."""
    finish: str | None = None
    """Why the model last stopped."""
    model: str = ""
    repeated: int = 0
    """How often the latest call was asked for in a row."""
    latest: tuple[str, str] | None = None
    """The tool and arguments of the latest call."""
    waiting: bool = False
    """Whether a call waits for approval."""
    greets: bool = False
    """Whether the model is yet to greet."""
    exceeded: Exception | None = None
    """What the provider said when the window was too small."""
    crowded: bool = False
    """Whether making room was tried in vain since the model last answered."""
    stopping: bool = False
    """Whether the run is to end after this turn."""
    seconds: float = 0.0
    """How long it has taken so far."""


def single_step(progress: Progress, only: UUID, *, made: bool, resumed: bool) -> Step:
    """Return the next step of a run that makes one tool call and asks no model.

    `made` says whether the call was worked off. A run that was gone on with for this waits as
    before; what else it has to do, `resume` does.
    """
    wanted = tuple(one for one in progress.pending if one.id == only)
    if not made:
        gone = Notice("error", "not_pending", "Another process has just handled this call.")
        return RunTools(wanted) if wanted else Stop("invalid", (gone,))
    if wanted:
        return _waits()
    if resumed:
        return Stop(
            "suspended",
            (Notice("info", "one_call", ("The call has run; resume continues the run.")),),
        )
    return _left_pending() if progress.pending else Stop("stable")


def next_step(progress: Progress, options: SessionOptions) -> Step:
    """Return the next step of a run.

    Pending calls come before another question: a model is never asked while a call lacks its
    result. Only provider turns count as turns.
    """
    if progress.stopping:
        return Stop("cancelled", (Notice("info", "after_turn", "Stopped after the turn."),))
    if progress.finish == "error":
        told = "The model's answer ended with an error."
        return Stop("error", (Notice("error", "failed", told),))
    if progress.greets:
        return Greet()
    if progress.waiting:
        return _waits()
    if not progress.pending and progress.answered:
        return _end(progress)
    if progress.turns and not options.process_tools:
        return _left_pending()
    if progress.turns >= options.max_turns:
        return _limit("max_turns", f"The model did not come to an end in {options.max_turns} turns")
    if (spent := overspent(progress, options.budget)) is not None:
        told = f"The budget of {spent} is used up; raise it with budget=Budget({spent}=...)."
        return Stop("budget", (Notice("error", f"budget_{spent}", told),))
    return _drain(progress, options) if progress.pending else CallModel()


def _waits() -> Stop:
    return Stop("suspended", (Notice("info", "approval", "A tool call waits for approval."),))


def _left_pending() -> Stop:
    return Stop("stable", (Notice("info", "pending_tools", "Tool calls were left pending."),))


def _end(progress: Progress) -> Stop:
    if progress.finish == "length":
        told = "The answer was cut off by the token limit; raise max_tokens."
        return Stop("length", (Notice("error", "length", told),))
    if progress.finish == "refusal":
        return Stop("stable", (Notice("warning", "refusal", "The model refused to answer."),))
    return Stop("stable")


def _drain(progress: Progress, options: SessionOptions) -> Step:
    if progress.repeated >= options.repeat_limit and progress.latest is not None:
        told = f"The model asked for {progress.latest[0]!r} {progress.repeated} times in a row."
        return Stop("loop", (Notice("error", "loop", told),))
    if progress.passes >= options.max_tool_passes:
        return _limit("max_tool_passes", f"Tools were called in {progress.passes} passes")
    return RunTools(tuple(progress.pending))


def _limit(code: str, told: str) -> Stop:
    return Stop("max_turns", (Notice("error", code, f"{told}; raise it with {code}=."),))


def overspent(progress: Progress, budget: Budget | None) -> str | None:
    """Return the exhausted part of the budget, or None."""
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
        (name for name, (spent, most) in used.items() if most is not None and spent >= most), None
    )
