"""Approval decisions about tool calls.

A decision is an event of the suspended run, written under a brief lease. It can come from any
process, days later, and is durable before anything acts on it.
"""

from __future__ import annotations

from sennit.errors import NotFoundError, short_repr
from sennit.messages.json_values import validate_text
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import AddEvents
from sennit.turns.branch_lease import hold_lease, new_holder
from sennit.turns.events import ApprovalDecided, to_record
from sennit.turns.tools.call_state import ToolCallStates
from sennit.turns.tools.pending_calls import call_id_of, pending_calls


async def decide(branch: Branch, call_id: str, *, approved: bool, reason: str) -> bool:
    """Approve or deny a call; return whether no call waits for a decision any more.

    Raises NotFoundError for a call that does not wait, ConflictError while a run is active, and
    ValidationError for a reason that no message can hold.
    """
    validate_text(reason, "The reason")
    runs = RunRepository(branch)
    async with hold_lease(runs, new_holder(brief=True)) as branch_lease:
        unfinished_run = branch_lease.unfinished_run
        requests = [] if unfinished_run is None else pending_calls(branch)
        calls = ToolCallStates() if unfinished_run is None else unfinished_run.calls
        await calls.complete(runs, requests)
        undecided = {
            call_id_of(message): message for message in requests if calls.undecided(message.id)
        }
        request = undecided.pop(call_id, None)
        if unfinished_run is None or request is None:
            raise NotFoundError(_not_waiting_text(call_id, list(undecided), requests, calls))
        event = ApprovalDecided(
            seq=branch_lease.seq + 1,
            run_id=unfinished_run.record.id,
            message=request,
            approved=approved,
            reason=reason,
            starts=calls.starts[request.id],
        )
        change = AddEvents(branch.id, (to_record(event),), branch_lease.lease.token)
        await runs.write((), (change,))
    return not any(message.id in calls.asked for message in undecided.values())


def _not_waiting_text(
    call_id: str, others: list[str], requests: list[Message], calls: ToolCallStates
) -> str:
    interrupted = {call_id_of(message) for message in requests if calls.may_have_run(message.id)}
    if call_id in interrupted:
        return (
            f"Tool call {short_repr(call_id)} was started before, so nobody is asked about it "
            f"now; resume() goes on, and asks again if its tool has replay='ask'."
        )
    waiting = f"These do: {', '.join(map(repr, others))}." if others else "None does now."
    return f"No tool call {short_repr(call_id)} waits for a decision. {waiting}"
