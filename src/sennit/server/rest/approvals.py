"""Tool calls that wait for a person: listed, allowed, refused."""

from __future__ import annotations

from asyncio import to_thread

from sennit.server.http.endpoint import Ask, Call, Endpoint, Shape
from sennit.server.rest.branches import ONE
from sennit.server.rest.runs import RunAsk, Started, as_before, go_on
from sennit.server.rest.schemas import MessageShape, message_shape
from sennit.turns.tools.pending_calls import waiting


class Waiting(Shape):
    """The tool calls that wait for a person."""

    waiting: list[MessageShape]


class Decision(Ask):
    """Whether a tool call may be made."""

    approve: bool
    message: str = ""
    """Why not; the model is told."""


class Decided(Shape):
    """What became of a decision."""

    waiting: int
    """How many calls still wait."""
    run: Started | None
    """The run, if it goes on."""


async def list_waiting(call: Call) -> Waiting:
    """The tool calls that wait for a person."""
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    found = await to_thread(waiting, branch)
    return Waiting(waiting=[message_shape(one, branch.index(one.id)) for one in found])


async def decide(call: Call) -> Decided:
    """Allow or refuse a tool call; once nothing waits any more, the run goes on."""
    given: Decision = call.body
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    plan = await as_before(call, branch, RunAsk())
    conversation = await plan.conversation(branch)
    call_id = call.path["call"]
    if given.approve:
        await conversation.approve(call_id, resume=False)
    else:
        await conversation.deny(call_id, given.message, resume=False)
    left = await conversation.awaiting()
    run = None if left else await go_on(call, plan, conversation)
    return Decided(waiting=len(left), run=run)


def endpoints() -> list[Endpoint]:
    """The routes of this room."""
    return [
        Endpoint(
            method="GET",
            path=ONE + "/waiting",
            handle=list_waiting,
            scope="read",
            summary="The tool calls that wait for a person",
            answer=Waiting,
        ),
        Endpoint(
            method="POST",
            path=ONE + "/approvals/{call}",
            handle=decide,
            scope="run",
            summary="Allow or refuse a tool call that waits",
            body=Decision,
            answer=Decided,
            status=202,
        ),
    ]
