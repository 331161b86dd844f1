"""Sessions: list, create, read, delete."""

from __future__ import annotations

from asyncio import to_thread
from contextlib import suppress
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Meta

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ExistsError, NotFoundError
from sennit.ids import new_id
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.schemas import BranchShape, as_cursor, branch_shapes, cursor, fields_of, iso
from sennit.sessions.client import SessionInfo, begin_session
from sennit.sessions.session import SessionCore
from sennit.sessions.title import first_words
from sennit.sessions.tree import BranchNode

routes: Final = Routes()

_MAX_SESSIONS_READ = 100

Limit = Annotated[int, Meta(ge=1, le=500)]


class SessionShape(ResponseModel):
    """A session."""

    id: UUID
    key: str | None
    title: str
    created_at: str
    updated_at: str
    metadata: dict[str, Any]


class SessionWithBranches(SessionShape):
    """A session and its branches."""

    branches: list[BranchShape]


class SessionList(ResponseModel):
    """A page of sessions, last changed first."""

    sessions: list[SessionShape]
    next: str | None
    """The `before` of the next page; None on the last."""


class SessionsQuery(RequestModel):
    """A page of sessions."""

    contains: str | None = None
    limit: Limit = 50
    before: str | None = None


class NewSession(RequestModel):
    """A session to create."""

    key: str | None = None
    system: str | None = None
    metadata: dict[str, Any] | None = None


class Description(RequestModel):
    """The metadata that replaces that of a session; `title` is its display name."""

    metadata: dict[str, Any]


class InterruptedBranch(BranchShape):
    """A branch whose last run was interrupted."""

    session: UUID


class InterruptedList(ResponseModel):
    """The branches with an interrupted run."""

    branches: list[InterruptedBranch]


class TreeNode(BranchShape):
    """A branch and its parent."""

    parent: UUID | None
    """The branch it was forked from, if that still exists."""
    forked_at: int | None
    """The number of messages shared with it."""


class Tree(ResponseModel):
    """The branches of a session, parents first."""

    branches: list[TreeNode]


@routes.get("/api/sessions", scope="read")
async def list_sessions(request: HTTPRequest, query: SessionsQuery) -> SessionList:
    """List sessions, last changed first."""
    return await to_thread(_page, request.caller, query)


def _page(caller: Caller, query: SessionsQuery) -> SessionList:
    before = None if query.before is None else cursor(query.before)
    # One more than requested shows whether there is another page.
    infos = caller.client.sessions(contains=query.contains, before=before, limit=query.limit + 1)
    page = infos[: query.limit]
    last = as_cursor(page[-1]) if len(infos) > query.limit else None
    return SessionList(sessions=[_session_shape(caller, info) for info in page], next=last)


def _session_shape(caller: Caller, info: SessionInfo) -> SessionShape:
    return SessionShape(
        id=info.id,
        key=info.key,
        title=title_of(caller, info),
        created_at=iso(info.created_at),
        updated_at=iso(info.updated_at),
        metadata=dict(info.metadata),
    )


def title_of(caller: Caller, info: SessionInfo) -> str:
    """Return the title of a session, else its key, first question or creation time."""
    if info.title is not None:
        return info.title
    if info.key is not None:
        return info.key
    try:
        # Kept open, since the list is often read again.
        question = first_words(caller.hold(caller.client.session(info.id, create=False)))
    except NotFoundError:  # deleted concurrently
        question = None
    return question or f"{info.created_at:%Y-%m-%d %H:%M}"


@routes.post("/api/sessions", scope="write", status=201)
async def create_session(request: HTTPRequest, body: NewSession) -> SessionWithBranches:
    """Create a session with its branch `main`.

    Raises ExistsError if the key exists.
    """
    key: str | UUID = new_id() if body.key is None else body.key
    text = body.system
    system = None if text is None else Message(SystemContent(system_message=text))
    branch = await begin_session(request.caller.client, key, system=system, metadata=body.metadata)
    if branch is None:
        raise _key_taken(key)
    return await to_thread(_with_branches, request.caller, branch.session)


def _key_taken(key: str | UUID) -> ExistsError:
    return ExistsError(f"Session {str(key)!r} already exists; open it, or choose another key.")


@routes.get("/api/sessions/{session}", scope="read")
async def get_session(request: HTTPRequest) -> SessionWithBranches:
    """Read a session and its branches."""
    session = await request.session()
    return await to_thread(_with_branches, request.caller, session)


def _read_shape(caller: Caller, session: UUID) -> SessionShape:
    return _session_shape(caller, caller.client.session_info(session))


def _with_branches(caller: Caller, session: SessionCore) -> SessionWithBranches:
    listed = _session_shape(caller, caller.client.session_info(session.id))
    branches = branch_shapes(list(session.branches))
    return SessionWithBranches(**fields_of(listed), branches=branches)


@routes.put("/api/sessions/{session}", scope="write")
async def describe_session(request: HTTPRequest, body: Description) -> SessionShape:
    """Replace the metadata of a session, such as its title."""
    session = await request.session()
    await session.adescribe(body.metadata)
    return await to_thread(_read_shape, request.caller, session.id)


@routes.delete("/api/sessions/{session}", scope="write")
async def delete_session(request: HTTPRequest) -> None:
    """Erase a session and its messages.

    Raises NotFoundError if there is none.
    """
    session = await request.session()
    await request.server.runs.stop_on(session.branches)
    request.caller.drop(session.id)
    await request.caller.client.adelete_session(session.id)


@routes.get("/api/interrupted", scope="read")
async def interrupted(request: HTTPRequest) -> InterruptedList:
    """List branches with an interrupted run, in the sessions changed last."""
    return await to_thread(_interrupted, request.caller.client)


def _interrupted(client: Client) -> InterruptedList:
    branches: list[InterruptedBranch] = []
    for info in client.sessions(limit=_MAX_SESSIONS_READ):
        with suppress(NotFoundError):  # deleted concurrently
            session = client.session(info.id, create=False)
            shapes = branch_shapes(list(session.branches))
            cut_off = (fields_of(shape) for shape in shapes if shape.interrupted)
            branches += [InterruptedBranch(**branch, session=info.id) for branch in cut_off]
    return InterruptedList(branches=branches)


@routes.get("/api/sessions/{session}/tree", scope="read")
async def tree(request: HTTPRequest) -> Tree:
    """Read the branches of a session as a tree."""
    session = await request.session()
    return await to_thread(_tree, session)


def _tree(session: Session) -> Tree:
    nodes = list(session.tree())
    parents = {child.branch.id: node.branch.id for node in nodes for child in node.children}
    shapes = branch_shapes([node.branch for node in nodes])
    pairs = zip(nodes, shapes, strict=True)
    return Tree(branches=[_node(node, shape, parents.get(shape.id)) for node, shape in pairs])


def _node(node: BranchNode, shape: BranchShape, parent: UUID | None) -> TreeNode:
    return TreeNode(**fields_of(shape), parent=parent, forked_at=node.forked_at)
