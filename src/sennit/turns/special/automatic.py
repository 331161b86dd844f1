"""Automatic special turns: greeting and summary.

A summary replaces the messages before the current turn; that turn with its tool results stays. A
failed summary changes nothing: the run continues, and fails only if the provider has already
refused the prompt as too long.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.errors import ModelError
from sennit.messages.message import Message
from sennit.sessions.rewrite import Rewrite
from sennit.turns.events import MessageCompleted
from sennit.turns.prompt_history import open_turn_start, prompt_messages
from sennit.turns.result import Return
from sennit.turns.run import Run
from sennit.turns.special.apply import SpecialOutcome
from sennit.turns.special.definition import greeting, summarize
from sennit.turns.special.run import RunLoop, run_special_turn


async def greet(run: Run, run_loop: RunLoop) -> None:
    """Have the model greet; the greeting is placed before the messages it is yet to answer."""
    await run.journal.flush_messages()
    outcome = await run_special_turn(
        greeting(), run.request, run_loop, streaming=run.streaming is not None
    )
    run.progress.usage += outcome.result.metrics.usage
    if not outcome.appended:
        raise _failure(outcome.result, "The model did not greet")
    await run.journal.flush_messages()  # includes replacements by other special turns
    run.emit(
        MessageCompleted,
        new=outcome.appended[0],
        rewrite=_insert_before_open_turn(run, outcome.appended),
    )
    run.progress.greets = False
    run.progress.answered = not run.request.unanswered()


def _insert_before_open_turn(run: Run, messages: tuple[Message, ...]) -> Rewrite | None:
    """Return the rewrite that inserts messages before the open turn; None to append them."""
    branch = run.request.branch
    history = [message for message in branch.messages if message.id != branch.system_id]
    start = open_turn_start(history)
    if all(message.content.empty for message in history[start:]):
        return None
    return Rewrite(history[start - 1].id if start else None, frozenset(), messages)


async def make_room(run: Run, run_loop: RunLoop) -> None:
    """Have earlier messages summarised; fewer and fewer of them while the summary itself is too
    long.
    """
    await run.journal.flush_messages()
    branch = run.request.branch
    history = [message for message in prompt_messages(branch) if message.id != branch.system_id]
    upto: int | None = open_turn_start(history)
    outcome = None
    while upto:
        outcome = await run_special_turn(
            summarize(), run.request, run_loop, streaming=run.streaming is not None, upto=upto
        )
        run.progress.usage += outcome.result.metrics.usage
        if outcome.changes_branch or not _is_too_long(outcome.result):
            break
        upto = _halfway(history[:upto])
    await run.journal.flush_messages()  # includes replacements by other special turns
    _apply_summary(run, outcome)


def _apply_summary(run: Run, outcome: SpecialOutcome | None) -> None:
    """Apply a summary to the branch; without one, do not try again until something changes."""
    progress = run.progress
    fits = outcome is not None and outcome.fits(run.request.branch)
    if outcome is not None and outcome.changes_branch and fits:
        outcome.put_on_branch(run.emit, to_make_room=True)
        progress.window_error = None
        return
    progress.summary_failed = True
    if outcome is not None and outcome.result.stop_reason != "invalid":
        reason = _failure(outcome.result, "The summary failed") if fits else "it was rewritten."
        run.warn("summary", f"What was said earlier could not be summarised: {reason}")
    if progress.window_error is not None:
        raise progress.window_error


def _is_too_long(result: Return) -> bool:
    return isinstance(result.error, ModelError) and result.error.kind == "context"


def _halfway(messages: Sequence[Message]) -> int | None:
    """Return the end of the turn nearest to the middle; None if there is only one."""
    ends = [
        index
        for index in range(1, len(messages))
        if messages[index].content.from_user and open_turn_start(messages[:index]) == index
    ]
    return min(ends, key=lambda index: abs(2 * index - len(messages)), default=None)


def _failure(result: Return, fallback: str) -> Exception:
    """Return the reason why a special turn failed."""
    if result.error is not None:
        return result.error
    errors = "; ".join(notice.text for notice in result.notices if notice.severity == "error")
    return ModelError(errors or f"{fallback}: it said nothing.", kind="malformed")
