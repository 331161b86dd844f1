"""The turn loop: what comes next is a value, and each kind of next has one function.

    ask      the model, whose words go to the branch as they come
    drain    the tools it has asked for
    stop     with exactly one end, whatever happened

A provider's failure is an end, not an exception. Being cancelled from outside is passed on, once
what was said is safe.
"""

from __future__ import annotations

from asyncio import CancelledError, sleep

from sennit.errors import ConflictError, SennitError
from sennit.turns.events import TurnStarted
from sennit.turns.patience import undisturbed
from sennit.turns.returns import Notice, Return
from sennit.turns.run import Run
from sennit.turns.step import Ask, Drain, Stop
from sennit.turns.tools import drain


async def turns(run: Run) -> Stop:
    """Take steps until one of them is to stop."""
    while True:
        match run.next():
            case Ask():
                await ask(run)
            case Drain(requests):
                await drain(run, requests)
            case Stop() as stop:
                return stop


async def ask(run: Run) -> None:
    """One provider turn: all it says stands on the branch afterwards."""
    run.progress.turns += 1
    run.tell(TurnStarted, turn=run.progress.turns)
    await run.journal.placed()  # so that the model is shown all that was said
    model, request = run.request.model, run.request.model_request()
    draft = run.begin_draft(request)
    if run.streaming is not None and model.streams:
        async with model.stream(request) as deltas:
            async for delta in deltas:
                draft.feed(delta)
                await sleep(0)  # whoever watches sees it now, also if the model never waits
    else:
        for delta in (await model.ask(request)).deltas():
            draft.feed(delta)
    run.take_end(draft)


async def carry_out(run: Run) -> Return:
    """Run to the end, whatever it is, and tell it once."""
    try:
        return await run.end(await _stopped(run))
    except CancelledError:
        run.break_off()
        result = await undisturbed(run.end(Stop("cancelled")))
        if run.cancelled_here:
            return result
        raise


async def _stopped(run: Run) -> Stop:
    try:
        return await turns(run)
    except Exception as error:
        run.break_off()
        return failed(run, error)


def failed(run: Run, error: Exception) -> Stop:
    """The end of a run in which something failed: a model, the store, or code plugged in."""
    run.error = error
    told = str(error) if isinstance(error, SennitError) else f"{type(error).__name__}: {error}"
    code = "lost_lease" if isinstance(error, ConflictError) else type(error).__name__
    return Stop("error", (Notice("error", getattr(error, "kind", code), told),))
