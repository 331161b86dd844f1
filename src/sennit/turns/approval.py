"""What people decide about tool calls that wait for them.

A decision is an event of the run that waits, written with the branch held for a moment: it can come
from any program, days later, and is there before anything acts on it.
"""

from __future__ import annotations

from sennit.errors import NotFoundError, shown
from sennit.sessions.branch import Branch
from sennit.sessions.runs import BranchRuns
from sennit.stores.records import AddEvents
from sennit.turns.events import ApprovalGiven, to_record
from sennit.turns.hold import held, new_holder
from sennit.turns.pending import call_id_of, pending


async def decide(branch: Branch, call_id: str, *, approved: bool, reason: str) -> bool:
    """Allow or refuse a call; gives whether nobody has to be waited for any more.

    Raises NotFoundError for a call that does not wait, ConflictError while a run is under way.
    """
    runs = BranchRuns(branch)
    async with held(runs, new_holder()) as found:
        left = found.left
        undecided = {
            call_id_of(one): one
            for one in ([] if left is None else pending(branch))
            if left is not None and one.id not in left.decided
        }
        request = undecided.pop(call_id, None)
        if left is None or request is None:
            raise NotFoundError(
                f"No tool call {shown(call_id)} waits; there are {list(undecided)}."
            )
        event = ApprovalGiven(
            seq=found.seq + 1,
            run_id=left.record.id,
            message=request,
            approved=approved,
            reason=reason,
        )
        change = AddEvents(branch.id, (to_record(event),), found.lease.token)
        await runs.write((), (change,))
    return not any(one.id in left.asked for one in undecided.values())
