"""Automatic special turns: greeting and summary.

Room is made by a summary in place of what was said before the turn under way; that turn, with the
results of its tools, is never touched. A summary that fails changes nothing: the run goes on as it
is, and fails only if the provider had already refused it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.errors import ModelError
from sennit.messages.message import Message
from sennit.sessions.rewrite import Rewrite
from sennit.turns.events import MessageCompleted
from sennit.turns.prompt_history import sent_messages, unfinished_from
from sennit.turns.result import Return
from sennit.turns.run import Run
from sennit.turns.special.apply import SpecialOutcome
from sennit.turns.special.definition import greeting, summarize
from sennit.turns.special.run import Conduct, perform


async def greet(run: Run, conduct: Conduct) -> None:
    """Have the model greet; the greeting stands before what it is yet to answer."""
    await run.journal.placed()
    outcome = await perform(greeting(), run.request, conduct, streaming=run.streaming is not None)
    run.progress.usage += outcome.result.metrics.usage
    if not outcome.put:
        raise _failure(outcome.result, "The model did not greet")
    await run.journal.placed()  # what special turns have replaced meanwhile
    run.tell(MessageCompleted, new=outcome.put[0], rewrite=_before_the_turn(run, outcome.put))
    run.progress.greets = False
    run.progress.answered = not run.request.unanswered()


def _before_the_turn(run: Run, put: tuple[Message, ...]) -> Rewrite | None:
    """Return a function that inserts messages before the open turn; None if there is none."""
    system = run.request.branch.system
    history = [message for message in run.request.branch.messages if message is not system]
    start = unfinished_from(history)
    if all(message.content.empty for message in history[start:]):
        return None
    return Rewrite(history[start - 1].id if start else None, frozenset(), put)


async def make_room(run: Run, conduct: Conduct) -> None:
    """Have what was said earlier summarised; less and less of it while that is itself too long."""
    await run.journal.placed()
    system = run.request.branch.system
    history = [one for one in sent_messages(run.request.branch) if one is not system]
    upto: int | None = unfinished_from(history)
    outcome = None
    while upto:
        outcome = await perform(
            summarize(), run.request, conduct, streaming=run.streaming is not None, upto=upto
        )
        run.progress.usage += outcome.result.metrics.usage
        if outcome.leaves_something or not _too_long(outcome.result):
            break
        upto = _halfway(history[:upto])
    await run.journal.placed()  # what special turns have replaced meanwhile
    _take(run, outcome)


def _take(run: Run, outcome: SpecialOutcome | None) -> None:
    """Put a summary on the branch; without one, that there is no room is known until it changes."""
    progress = run.progress
    fits = outcome is not None and outcome.fits(run.request.branch)
    if outcome is not None and outcome.leaves_something and fits:
        outcome.put_on_branch(run.tell, to_make_room=True)
        progress.exceeded = None
        return
    progress.crowded = True
    if outcome is not None and outcome.result.stop_reason != "invalid":
        told = _failure(outcome.result, "The summary failed") if fits else "it was rewritten."
        run.warn("summary", f"What was said earlier could not be summarised: {told}")
    if progress.exceeded is not None:
        raise progress.exceeded


def _too_long(result: Return) -> bool:
    return isinstance(result.error, ModelError) and result.error.kind == "context"


def _halfway(messages: Sequence[Message]) -> int | None:
    """Return the end of the turn nearest to the middle; None if there is only one."""
    ends = [
        at
        for at in range(1, len(messages))
        if messages[at].content.from_user and unfinished_from(messages[:at]) == at
    ]
    return min(ends, key=lambda at: abs(2 * at - len(messages)), default=None)


def _failure(result: Return, otherwise: str) -> Exception:
    """Return the reason why a special turn failed."""
    if result.error is not None:
        return result.error
    told = "; ".join(one.text for one in result.messages if one.severity == "error")
    return ModelError(told or f"{otherwise}: it said nothing.", kind="malformed")
