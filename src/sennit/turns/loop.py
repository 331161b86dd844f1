"""The turn loop: what comes next is a value, and each kind of next has one function.

    greet        before anything else, if asked to
    make_room    when the model's window is nearly full
    ask          the model, whose words go to the branch as they come
    drain        the tools it has asked for
    stop         with exactly one end, whatever happened

A provider's failure is an end, not an exception. A cancel is passed on once all said is stored.
"""

from __future__ import annotations

from asyncio import CancelledError, sleep

from sennit.errors import ConflictError, ModelError, SennitError
from sennit.finish_uncancelled import finish_uncancelled, is_leaving
from sennit.services.models import traced_call
from sennit.services.models.request import ModelRequest
from sennit.turns.branch_lease import BranchLease, held
from sennit.turns.context import prompt, window_of
from sennit.turns.events import TurnStarted
from sennit.turns.failing import failed
from sennit.turns.policies import pass_reply
from sennit.turns.reply_builder import ReplyBuilder
from sennit.turns.result import MOVED, NOTHING, Notice, Return
from sennit.turns.run import Run
from sennit.turns.special.automatic import greet, make_room
from sennit.turns.step import CallModel, Greet, MakeRoom, RunTools, Stop
from sennit.turns.subscription import running_here, way_of
from sennit.turns.tools.run_calls import drain
from sennit.turns.tracing import watched


async def turns(run: Run) -> Stop:
    """Take steps until one of them is to stop."""
    while True:
        match await run.next():
            case CallModel():
                await ask(run)
            case Greet():
                await greet(run, hold_and_run)
            case MakeRoom():
                await make_room(run, hold_and_run)
            case RunTools(requests):
                await drain(run, requests)
            case Stop() as stop:
                return stop


async def ask(run: Run) -> None:
    """One provider turn: all it says stands on the branch afterwards."""
    run.progress.turns += 1
    run.tell(TurnStarted, turn=run.progress.turns)
    await run.journal.placed()  # so that the model is shown all that was said
    try:
        request = await prompt(run)
        draft = run.begin_draft(request)
        await converse(run, request, draft)
        if draft.judged:
            await judge(run, request, draft)
        run.take_end(draft)
    except ModelError as error:
        if not run.exceeded(error):
            raise


async def converse(run: Run, request: ModelRequest, draft: ReplyBuilder) -> None:
    """Ask the model, and take in what it says."""
    model, session = run.request.model, run.request.session.id
    if run.streaming is not None and model.streams:
        async with traced_call.stream(model, request, session) as deltas:
            async for delta in deltas:
                draft.feed(delta)
                await sleep(0)  # whoever watches sees it now, also if the model never waits
    else:
        for delta in (await traced_call.ask(model, request, session)).deltas():
            draft.feed(delta)


async def judge(run: Run, request: ModelRequest, draft: ReplyBuilder) -> None:
    """Let policies see a reply that has come to its end; only then does it count."""
    if draft.finished is not None and draft.finished.reason != "error":
        said = draft.reply()
        reply = await pass_reply(run.request.policies, request, said)
        draft.accept(None if reply is said else reply)


async def hold_and_run(run: Run, *, resume: bool = False) -> Return:
    """Run with the branch held; one that cannot be begun is refused."""
    return await watched(run, lambda: _hold_and_run(run, resume))


async def _hold_and_run(run: Run, resume: bool) -> Return:
    try:
        make_way = way_of(run.runs, run.options.when_busy)
        async with held(run.runs, run.holder, make_way) as found:
            if run.options.summarize_at is not None or run.request.contexts:
                run.window = await window_of(run.request.model)
            with running_here(run.runs, found.lease.holder, run.stop):
                if (why := _misfit(run, found, resume)) is not None:
                    return run.refuse("invalid", why)
                await run.request.set_system()
                run.begin(found)
                return await carry_out(run)
    except ConflictError as error:
        return run.refuse("invalid", Notice("error", "busy", str(error)))
    except SennitError as error:
        run.error = error
        return run.refuse("error", Notice("error", type(error).__name__, str(error)))


def _misfit(run: Run, found: BranchLease, resume: bool) -> Notice | None:
    """Return the reason why a run cannot begin on the branch, or None."""
    if resume and (found.left is None or found.left.record.id != run.id):
        return NOTHING
    aim, tail = run.aim, run.request.branch.tail
    last = tail.id_at(tail.total - 1) if tail.total else None
    if aim.at not in (None, tail.total) or aim.last not in (None, last):
        return MOVED
    # Another program may have committed meanwhile.
    told = None if resume or not run.runs.durable else run.nothing_to_answer()
    return None if told is None else Notice("error", "empty", told)


async def carry_out(run: Run) -> Return:
    """Run to the end, whatever it is, and tell it once."""
    try:
        return await run.end(await _stopped(run))
    except CancelledError:
        result = await finish_uncancelled(run.end(run.interrupted()))
        if run.cancelled_here:
            return result
        raise


async def _stopped(run: Run) -> Stop:
    try:
        return await turns(run)
    except (Exception, CancelledError) as error:
        if isinstance(error, CancelledError) and is_leaving():
            raise
        run.break_off()
        return failed(run, error)
