"""Approval decisions about tool calls.

A decision is an event of the run that waits, written with the branch held for a moment: it can come
from any program, days later, and is there before anything acts on it.
"""

from __future__ import annotations

from sennit.errors import NotFoundError, shown
from sennit.messages.json_values import text
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import AddEvents
from sennit.turns.branch_lease import held, new_holder
from sennit.turns.events import ApprovalDecided, to_record
from sennit.turns.tools.call_state import ToolCallStates
from sennit.turns.tools.pending_calls import call_id_of, pending


async def decide(branch: Branch, call_id: str, *, approved: bool, reason: str) -> bool:
    """Allow or refuse a call; gives whether nobody has to be waited for any more.

    Raises NotFoundError for a call that does not wait, ConflictError while a run is under way, and
    ValidationError for a reason that no message can hold.
    """
    text(reason, "The reason")
    runs = RunRepository(branch)
    async with held(runs, new_holder(brief=True)) as found:
        left = found.left
        open_ = [] if left is None else pending(branch)
        calls = ToolCallStates() if left is None else left.calls
        await calls.complete(runs, open_)
        undecided = {call_id_of(one): one for one in open_ if calls.undecided(one.id)}
        request = undecided.pop(call_id, None)
        if left is None or request is None:
            raise NotFoundError(_not_waiting(call_id, list(undecided), open_, calls))
        event = ApprovalDecided(
            seq=found.seq + 1,
            run_id=left.record.id,
            message=request,
            approved=approved,
            reason=reason,
            starts=calls.starts[request.id],
        )
        change = AddEvents(branch.id, (to_record(event),), found.lease.token)
        await runs.write((), (change,))
    return not any(one.id in calls.asked for one in undecided.values())


def _not_waiting(
    call_id: str, others: list[str], open_: list[Message], calls: ToolCallStates
) -> str:
    interrupted = {call_id_of(one) for one in open_ if calls.may_have_run(one.id)}
    if call_id in interrupted:
        return (
            f"Tool call {shown(call_id)} was started before, so nobody is asked about it "
            f"now; resume() goes on, and asks again if its tool has replay='ask'."
        )
    return f"No tool call {shown(call_id)} waits; there are {others}."
