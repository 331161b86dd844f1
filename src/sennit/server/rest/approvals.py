"""Tool calls that wait for approval: list, approve, deny."""

from __future__ import annotations

from asyncio import to_thread

from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.rest.branches import ONE
from sennit.server.rest.runs import RunRequest, Started, as_before, go_on
from sennit.server.schemas import MessageShape, message_shape
from sennit.turns.tools.pending_calls import pending_approvals

routes = Routes()


class PendingApprovals(ResponseModel):
    """The tool calls that wait for a person."""

    waiting: list[MessageShape]


class DecisionRequest(RequestModel):
    """A decision about a tool call."""

    approve: bool
    message: str = ""
    """Why not; the model is told."""


class DecisionResult(ResponseModel):
    """The outcome of a decision."""

    waiting: int
    """How many calls still wait."""
    run: Started | None
    """The run, if it goes on."""


@routes.get(
    ONE + "/waiting",
    scope="read",
    summary="The tool calls that wait for a person",
    answer=PendingApprovals,
)
async def list_waiting(request: HTTPRequest) -> PendingApprovals:
    """The tool calls that wait for a person."""
    branch = await request.caller.branch(request.path["session"], request.path["branch"])
    calls = await to_thread(pending_approvals, branch)
    return PendingApprovals(waiting=[message_shape(call, branch.index(call.id)) for call in calls])


@routes.post(
    ONE + "/approvals/{call}",
    scope="run",
    summary="Allow or refuse a tool call that waits",
    body=DecisionRequest,
    answer=DecisionResult,
    status=202,
)
async def decide(request: HTTPRequest) -> DecisionResult:
    """Allow or refuse a tool call; once nothing waits any more, the run goes on."""
    body: DecisionRequest = request.body
    branch = await request.caller.branch(request.path["session"], request.path["branch"])
    plan = await as_before(request, branch, RunRequest())
    conversation = await plan.conversation(branch)
    call_id = request.path["call"]
    if body.approve:
        await conversation.approve(call_id, resume=False)
    else:
        await conversation.deny(call_id, body.message, resume=False)
    waiting = await conversation.apending_approvals()
    run = None if waiting else await go_on(request, plan, conversation)
    return DecisionResult(waiting=len(waiting), run=run)
