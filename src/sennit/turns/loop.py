"""The turn loop: the next step is a value, and each kind of step has one function.

    greet        before anything else, if asked to
    make_room    when the model's window is nearly full
    call the model, whose reply goes to the branch
    run the tools that it called
    stop         with exactly one RunEnded, whatever happened

A provider's failure ends the run; it is no exception. A cancellation is re-raised once the events
of the run are stored.
"""

from __future__ import annotations

from asyncio import CancelledError, sleep

from sennit.errors import ConflictError, ModelError, SennitError
from sennit.finish_uncancelled import finish_uncancelled, is_cancelling
from sennit.services.models import traced_call
from sennit.services.models.request import ModelRequest
from sennit.sessions.blobs import with_blobs
from sennit.sessions.segments import tail_of
from sennit.turns.branch_lease import BranchLease, hold_lease
from sennit.turns.context import build_prompt, window_of
from sennit.turns.events import TurnStarted
from sennit.turns.policies import pass_reply
from sennit.turns.reply_builder import ReplyBuilder
from sennit.turns.request import set_system
from sennit.turns.result import BRANCH_MOVED, NOTHING_TO_RESUME, Notice, Return, busy_notice
from sennit.turns.run import Run
from sennit.turns.special.automatic import greet, make_room
from sennit.turns.step import CallModel, Greet, MakeRoom, RunTools, Stop
from sennit.turns.subscription import busy_handler, mark_running
from sennit.turns.tools.run_calls import run_pending_calls
from sennit.turns.tracing import trace_run
from sennit.turns.wait_graph import called_by


async def turns(run: Run) -> Stop:
    """Take steps until the next one is Stop."""
    while True:
        match await run.next():
            case CallModel():
                await run_model_turn(run)
            case Greet():
                await greet(run, hold_and_run)
            case MakeRoom():
                await make_room(run, hold_and_run)
            case RunTools(requests):
                await run_pending_calls(run, requests)
            case Stop() as stop:
                return stop


async def run_model_turn(run: Run) -> None:
    """Make one model call and add its reply to the branch; raise ModelError, PolicyError."""
    run.progress.turns += 1
    run.emit(TurnStarted, turn=run.progress.turns)
    await run.journal.flush_messages()  # so that the prompt holds every message
    try:
        request = await build_prompt(run)
        draft = run.begin_draft(request)
        await call_model(run, await with_blobs(run.request.session, request), draft)
        if draft.needs_review:
            await apply_reply_policies(run, request, draft)
        run.finish_turn(draft)
    except ModelError as error:
        if not run.can_ask_again(error):
            raise


async def call_model(run: Run, request: ModelRequest, draft: ReplyBuilder) -> None:
    """Send a request to the model and feed its deltas to the builder."""
    model, session = run.request.model, run.request.session.id
    if run.streaming is not None and model.streams:
        async with traced_call.stream(model, request, session) as deltas:
            async for delta in deltas:
                draft.feed(delta)
                await sleep(0)  # lets subscribers run even if the model never waits
    else:
        for delta in (await traced_call.ask(model, request, session)).deltas():
            draft.feed(delta)


async def apply_reply_policies(run: Run, request: ModelRequest, draft: ReplyBuilder) -> None:
    """Pass a complete reply through the policies and accept what they return."""
    if draft.finished is not None and draft.finished.reason != "error":
        original = draft.reply()
        reply = await pass_reply(run.request.policies, request, original)
        draft.accept(None if reply is original else reply)


async def hold_and_run(run: Run, *, resume: bool = False) -> Return:
    """Acquire the lease and run to the end; a run that cannot start is refused."""
    return await trace_run(run, lambda: _hold_and_run(run, resume))


async def _hold_and_run(run: Run, resume: bool) -> Return:
    try:
        on_busy = busy_handler(run.runs, run.options.when_busy)
        async with hold_lease(run.runs, run.holder, on_busy) as branch_lease:
            if run.options.summarize_at is not None or run.request.contexts:
                run.window = await window_of(run.request.model)
            holder = branch_lease.lease.holder
            with mark_running(run.runs, holder, run.stop), called_by(holder):
                if (notice := _refusal_notice(run, branch_lease, resume)) is not None:
                    return run.refuse("invalid", notice)
                await set_system(run.request)
                run.begin(branch_lease)
                return await run_to_end(run)
    except ConflictError as error:
        return run.refuse("invalid", busy_notice(run.request.branch, error.holder))
    except SennitError as error:
        run.error = error
        return run.refuse("error", Notice("error", type(error).__name__, str(error)))


def _refusal_notice(run: Run, branch_lease: BranchLease, resume: bool) -> Notice | None:
    """Return the reason why a run cannot start on the branch, or None."""
    unfinished = branch_lease.unfinished_run
    if resume and (unfinished is None or unfinished.record.id != run.id):
        return NOTHING_TO_RESUME
    run_input, tail = run.input, tail_of(run.request.branch)
    last = tail.id_at(tail.total - 1) if tail.total else None
    if run_input.at not in (None, tail.total) or run_input.last not in (None, last):
        return BRANCH_MOVED
    # Another process may have committed in the meantime.
    reason = None if resume else run.nothing_to_answer()
    return None if reason is None else Notice("error", "empty", reason)


async def run_to_end(run: Run) -> Return:
    """Take all steps and end the run, also if it fails or is cancelled."""
    try:
        return await run.end(await _run_turns(run))
    except CancelledError:
        result = await finish_uncancelled(run.end(run.interrupt()))
        if run.cancel_requested:
            return result
        raise


async def _run_turns(run: Run) -> Stop:
    try:
        return await turns(run)
    except (Exception, CancelledError) as error:
        if isinstance(error, CancelledError) and is_cancelling():
            raise
        return run.fail(error)
