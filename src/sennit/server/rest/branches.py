"""Branches: create, fork, compare, rename, remove."""

from __future__ import annotations

from asyncio import to_thread
from functools import partial
from itertools import count
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta

from sennit.api.session import Session
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes, fitting
from sennit.server.schemas import BranchShape, MessageShape, branch_shape, message_shape

routes: Final = Routes()

PATH = "/api/sessions/{session}/branches"
BRANCH_PATH = PATH + "/{branch}"


class NewBranch(RequestModel):
    """A branch to create."""

    name: str | None = None
    system: str | None = None


class ForkRequest(RequestModel):
    """A fork; `at` is the last shared message, by id or index."""

    at: UUID | int | None = None
    name: str | None = None


class BranchName(RequestModel):
    """The name of a branch."""

    name: str


class DiffQuery(RequestModel):
    """Two branches, by id or name, and the maximum number of messages of each."""

    a: str
    b: str
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


class Diff(ResponseModel):
    """The number of messages that two branches share, and those that each has since."""

    common: int
    ancestor: MessageShape | None
    since_a: list[MessageShape]
    since_b: list[MessageShape]
    more_a: int
    """The number of further messages since; read them from the branch."""
    more_b: int
    same_system: bool


@routes.post(PATH, scope="write", status=201)
async def create_branch(request: HTTPRequest, body: NewBranch) -> BranchShape:
    """Create an empty branch."""
    session = await request.session()
    system = None
    if body.system is not None:
        system = Message(SystemContent(system_message=body.system))
    if request.is_large:
        make = partial(session.create_branch, body.name, system=system)
        branch = await request.server.work.run(request.caller, make)
    else:
        branch = await session.acreate_branch(body.name, system=system)
    return await to_thread(branch_shape, branch)


@routes.post(BRANCH_PATH + "/fork", scope="write", status=201)
async def fork(request: HTTPRequest, body: ForkRequest) -> BranchShape:
    """Fork a branch after any message."""
    branch = await request.branch()
    fork = await branch.afork(
        at=body.at, name=body.name, capabilities=True, resources=True, system=True
    )
    return await to_thread(branch_shape, fork)


@routes.get(BRANCH_PATH, scope="read")
async def get_branch(request: HTTPRequest) -> BranchShape:
    """Read a branch."""
    branch = await request.branch()
    return await to_thread(branch_shape, branch)


@routes.put(BRANCH_PATH, scope="write")
async def rename_branch(request: HTTPRequest, body: BranchName) -> BranchShape:
    """Rename a branch."""
    branch = await request.branch()
    await branch.session.arename_branch(branch, body.name)
    return await to_thread(branch_shape, branch)


@routes.delete(BRANCH_PATH, scope="write")
async def remove_branch(request: HTTPRequest) -> None:
    """Remove a branch; shared messages stay."""
    branch = await request.branch()
    await request.server.runs.stop_on([branch])
    await branch.session.aremove_branch(branch)


@routes.get("/api/sessions/{session}/diff", scope="read")
async def diff(request: HTTPRequest, query: DiffQuery) -> Diff:
    """Compare two branches from their common ancestor on."""
    session = await request.session()
    return await to_thread(_diff, session, query, request.limits.answer_bytes)


def _diff(session: Session, query: DiffQuery, max_bytes: int) -> Diff:
    difference = session.diff(query.a, query.b)
    first_a = len(difference.a) - len(difference.since_a)
    first_b = len(difference.b) - len(difference.since_b)
    ancestor = difference.ancestor
    since_a, since_b = (
        list(fitting(map(message_shape, since[: query.limit], count(first)), max_bytes // 2))
        for since, first in ((difference.since_a, first_a), (difference.since_b, first_b))
    )
    return Diff(
        common=difference.common,
        ancestor=None if ancestor is None else message_shape(ancestor, first_a - 1),
        since_a=since_a,
        since_b=since_b,
        more_a=len(difference.since_a) - len(since_a),
        more_b=len(difference.since_b) - len(since_b),
        same_system=difference.same_system,
    )
