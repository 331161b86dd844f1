"""Tool calls that wait for approval: list, approve, deny."""

from __future__ import annotations

from asyncio import to_thread
from typing import Final

from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.rest.branches import BRANCH_PATH
from sennit.server.rest.runs import RunRequest, Started, plan_resume, resume_run
from sennit.server.schemas import MessageShape, message_shape
from sennit.turns.tools.pending_calls import pending_approvals

routes: Final = Routes()


class PendingApprovals(ResponseModel):
    """The tool calls that wait for approval."""

    waiting: list[MessageShape]


class DecisionRequest(RequestModel):
    """A decision about a tool call."""

    approve: bool
    message: str = ""
    """The reason of a denial, which is sent to the model."""


class DecisionResult(ResponseModel):
    """The outcome of a decision."""

    waiting: int
    """The number of calls that still wait."""
    run: Started | None
    """The resumed run; None while other calls wait."""


@routes.get(BRANCH_PATH + "/waiting", scope="read")
async def list_waiting(request: HTTPRequest) -> PendingApprovals:
    """List the tool calls that wait for approval."""
    branch = await request.branch()
    calls = await to_thread(pending_approvals, branch)
    return PendingApprovals(waiting=[message_shape(call, branch.index(call.id)) for call in calls])


@routes.post(BRANCH_PATH + "/approvals/{call}", scope="run", status=202)
async def decide(request: HTTPRequest, body: DecisionRequest) -> DecisionResult:
    """Approve or deny a tool call that waits."""
    branch = await request.branch()
    plan = await plan_resume(request, branch, RunRequest())
    conversation = await plan.conversation(branch)
    call_id = request.path["call"]
    if body.approve:
        await conversation.aapprove(call_id, resume=False)
    else:
        await conversation.adeny(call_id, body.message, resume=False)
    waiting = await conversation.apending_approvals()
    run = None if waiting else await resume_run(request, plan, conversation)
    return DecisionResult(waiting=len(waiting), run=run)
