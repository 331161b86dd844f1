"""Branches: create, fork, compare, rename, remove."""

from __future__ import annotations

from asyncio import to_thread
from functools import partial
from itertools import count
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from sennit.api.session import Session
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes, within
from sennit.server.schemas import BranchShape, MessageShape, branch_shape, message_shape

routes = Routes()

PATH = "/api/sessions/{session}/branches"
ONE = PATH + "/{branch}"


class NewBranch(RequestModel):
    """A branch to be made."""

    name: str | None = None
    system: str | None = None


class ForkRequest(RequestModel):
    """A fork: `at` is the message, by id or index, up to which history is shared."""

    at: UUID | int | None = None
    name: str | None = None


class BranchName(RequestModel):
    """The name of a branch."""

    name: str


class DiffQuery(RequestModel):
    """Two branches, by id or name, and how many messages of each at most."""

    a: str
    b: str
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class Diff(ResponseModel):
    """The messages that two branches share, and those that each has since."""

    common: int
    ancestor: MessageShape | None
    since_a: list[MessageShape]
    since_b: list[MessageShape]
    more_a: int
    """How many more messages the branch has since; read them as messages of the branch."""
    more_b: int
    same_system: bool


@routes.post(
    PATH,
    scope="write",
    summary="A new, empty branch",
    body=NewBranch,
    answer=BranchShape,
    status=201,
)
async def create_branch(call: HTTPRequest) -> BranchShape:
    """A new, empty branch."""
    given: NewBranch = call.body
    session = await call.caller.session(call.path["session"])
    system = None
    if given.system is not None:
        system = Message(SystemContent(system_message=given.system))
    if call.is_large:
        make = partial(session.create_branch, given.name, system=system)
        made = await call.server.work.run(call.caller, make)
    else:
        made = await session.acreate_branch(given.name, system=system)
    return await to_thread(branch_shape, made)


@routes.post(
    ONE + "/fork",
    scope="write",
    summary="Fork a branch after any message",
    body=ForkRequest,
    answer=BranchShape,
    status=201,
)
async def fork(call: HTTPRequest) -> BranchShape:
    """A fork with the same grants and system message."""
    given: ForkRequest = call.body
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    made = await branch.afork(
        at=given.at, name=given.name, capabilities=True, resources=True, system=True
    )
    return await to_thread(branch_shape, made)


@routes.get(ONE, scope="read", summary="A branch", answer=BranchShape)
async def get_branch(call: HTTPRequest) -> BranchShape:
    """A branch."""
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    return await to_thread(branch_shape, branch)


@routes.put(
    ONE, scope="write", summary="Give a branch another name", body=BranchName, answer=BranchShape
)
async def rename_branch(call: HTTPRequest) -> BranchShape:
    """Give a branch another name."""
    given: BranchName = call.body
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    await branch.session.arename_branch(branch, given.name)
    return await to_thread(branch_shape, branch)


@routes.delete(
    ONE, scope="write", summary="Remove a branch; what others share of it stays", status=204
)
async def remove_branch(call: HTTPRequest) -> None:
    """Take a branch out; its messages stay where others have them."""
    branch = await call.caller.branch(call.path["session"], call.path["branch"])
    await call.server.runs.stop_on([branch])
    await branch.session.aremove_branch(branch)


@routes.get(
    "/api/sessions/{session}/diff",
    scope="read",
    summary="Two branches from their common ancestor on",
    query=DiffQuery,
    answer=Diff,
)
async def diff(call: HTTPRequest) -> Diff:
    """Two branches side by side from their common ancestor."""
    query: DiffQuery = call.query
    session = await call.caller.session(call.path["session"])
    return await to_thread(_diff, session, query, call.limits.answer_bytes)


def _diff(session: Session, query: DiffQuery, most: int) -> Diff:
    found = session.diff(query.a, query.b)
    first_a = len(found.a) - len(found.since_a)
    first_b = len(found.b) - len(found.since_b)
    ancestor = found.ancestor
    since_a, since_b = (
        list(within(map(message_shape, since[: query.limit], count(first)), most // 2))
        for since, first in ((found.since_a, first_a), (found.since_b, first_b))
    )
    return Diff(
        common=found.common,
        ancestor=None if ancestor is None else message_shape(ancestor, first_a - 1),
        since_a=since_a,
        since_b=since_b,
        more_a=len(found.since_a) - len(since_a),
        more_b=len(found.since_b) - len(since_b),
        same_system=found.same_system,
    )
