"""Sessions: list, create, read, delete."""

from __future__ import annotations

from asyncio import to_thread
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ExistsError, NotFoundError
from sennit.ids import new_id
from sennit.messages.content import InstructionContent, SystemContent
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.schemas import BranchShape, as_cursor, branch_shapes, cursor, fields_of, iso
from sennit.sessions.client import SessionInfo
from sennit.sessions.session import SessionCore
from sennit.sessions.tree import BranchNode

routes = Routes()

_TITLE = 80
_RECENT = 100

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
    """A page of sessions, the one changed last first."""

    sessions: list[SessionShape]
    next: str | None
    """What to send as `before` for the next page."""


class SessionsQuery(RequestModel):
    """A page of sessions."""

    contains: str | None = None
    limit: Limit = 50
    before: str | None = None


class NewSession(RequestModel):
    """A session to be made."""

    key: str | None = None
    system: str | None = None
    metadata: dict[str, Any] | None = None


class Description(RequestModel):
    """The new metadata of a session, in place of the old; `title` is its display name."""

    metadata: dict[str, Any]


class InterruptedBranch(BranchShape):
    """A branch whose last run was cut off."""

    session: UUID


class InterruptedList(ResponseModel):
    """The branches with an interrupted run."""

    branches: list[InterruptedBranch]


class TreeNode(BranchShape):
    """A branch, and which one it was forked from."""

    parent: UUID | None
    """The branch it was forked from, if that is still there."""
    forked_at: int | None
    """How many messages it took along from there."""


class Tree(ResponseModel):
    """The branches of a session, each after the one it was forked from."""

    branches: list[TreeNode]


@routes.get(
    "/api/sessions",
    scope="read",
    summary="Your sessions, the one changed last first",
    query=SessionsQuery,
    answer=SessionList,
)
async def list_sessions(request: HTTPRequest) -> SessionList:
    """A page of the caller's sessions."""
    query: SessionsQuery = request.query
    return await to_thread(_page, request.caller, query)


def _page(caller: Caller, query: SessionsQuery) -> SessionList:
    before = None if query.before is None else cursor(query.before)
    # One more than asked for says whether there is another page.
    infos = caller.client.sessions(contains=query.contains, before=before, limit=query.limit + 1)
    page = infos[: query.limit]
    last = as_cursor(page[-1]) if len(infos) > query.limit else None
    return SessionList(sessions=[_listed(caller, info) for info in page], next=last)


def _listed(caller: Caller, info: SessionInfo) -> SessionShape:
    return SessionShape(
        id=info.id,
        key=info.key,
        title=title_of(caller, info),
        created_at=iso(info.created_at),
        updated_at=iso(info.updated_at),
        metadata=dict(info.metadata),
    )


def title_of(caller: Caller, info: SessionInfo) -> str:
    """Return the title of a session, or else its first question."""
    if info.title is not None:
        return info.title
    if info.key is not None:
        return info.key
    try:
        # Held open, so that the next look at the list finds it read.
        question = _first_asked(caller.open.hold(caller.client.session(info.id, create=False)))
    except NotFoundError:  # deleted meanwhile
        question = ""
    return question or f"{info.created_at:%Y-%m-%d %H:%M}"


def _first_asked(session: Session) -> str:
    for branch in session.branches:
        for uid in branch[:3]:
            content = session.messages.get(uid).content
            if isinstance(content, InstructionContent) and content.words:
                return " ".join(content.words[: 4 * _TITLE].split())[:_TITLE]
    return ""


@routes.post(
    "/api/sessions",
    scope="write",
    summary="A new session with its branch `main`",
    body=NewSession,
    answer=SessionWithBranches,
    status=201,
)
async def create_session(request: HTTPRequest) -> SessionWithBranches:
    """A new session and its branch "main", in one step; raises ExistsError if the key is taken."""
    body: NewSession = request.body
    key: str | UUID = new_id() if body.key is None else body.key
    text = body.system
    system = None if text is None else Message(SystemContent(system_message=text))
    branch = await request.caller.client.abegin(key, system=system, metadata=body.metadata)
    if branch is None:
        raise _taken(key)
    return await to_thread(_whole, request.caller, branch.session)


def _taken(key: str | UUID) -> ExistsError:
    return ExistsError(f"Session {str(key)!r} already exists; open it, or choose another key.")


@routes.get(
    "/api/sessions/{session}",
    scope="read",
    summary="A session and its branches",
    answer=SessionWithBranches,
)
async def get_session(request: HTTPRequest) -> SessionWithBranches:
    """A session and its branches."""
    session = await request.caller.session(request.path["session"])
    return await to_thread(_whole, request.caller, session)


def _listed_now(caller: Caller, session: UUID) -> SessionShape:
    return _listed(caller, caller.client.session_info(session))


def _whole(caller: Caller, session: SessionCore) -> SessionWithBranches:
    listed = _listed(caller, caller.client.session_info(session.id))
    branches = branch_shapes(list(session.branches))
    return SessionWithBranches(**fields_of(listed), branches=branches)


@routes.put(
    "/api/sessions/{session}",
    scope="write",
    summary="Give a session other metadata, such as a title",
    body=Description,
    answer=SessionShape,
)
async def describe_session(request: HTTPRequest) -> SessionShape:
    """Give a session other metadata."""
    body: Description = request.body
    session = await request.caller.session(request.path["session"])
    await session.adescribe(body.metadata)
    return await to_thread(_listed_now, request.caller, session.id)


@routes.delete(
    "/api/sessions/{session}",
    scope="write",
    summary="Erase a session and all that is in it",
    status=204,
)
async def delete_session(request: HTTPRequest) -> None:
    """Erase a session for good; raises NotFoundError."""
    session = await request.caller.session(request.path["session"])
    await request.server.runs.stop_on(session.branches)
    request.caller.open.drop(session.id)
    await request.caller.client.adelete_session(session.id)


@routes.get(
    "/api/interrupted",
    scope="read",
    summary="Branches whose last run was cut off, in the sessions changed last",
    answer=InterruptedList,
)
async def interrupted(request: HTTPRequest) -> InterruptedList:
    """The branches whose last run was cut off, in the sessions changed last."""
    return await to_thread(_interrupted, request.caller.client)


def _interrupted(client: Client) -> InterruptedList:
    branches: list[InterruptedBranch] = []
    for info in client.sessions(limit=_RECENT):
        with suppress(NotFoundError):  # deleted meanwhile
            session = client.session(info.id, create=False)
            shapes = branch_shapes(list(session.branches))
            cut_off = (fields_of(shape) for shape in shapes if shape.interrupted)
            branches += [InterruptedBranch(**branch, session=info.id) for branch in cut_off]
    return InterruptedList(branches=branches)


@routes.get(
    "/api/sessions/{session}/tree",
    scope="read",
    summary="The branches of a session as a tree of forks",
    answer=Tree,
)
async def tree(request: HTTPRequest) -> Tree:
    """The branches as a tree of forks."""
    session = await request.caller.session(request.path["session"])
    return await to_thread(_tree, session)


def _tree(session: Session) -> Tree:
    nodes = list(session.tree())
    parents = {child.branch.id: node.branch.id for node in nodes for child in node.children}
    shapes = branch_shapes([node.branch for node in nodes])
    pairs = zip(nodes, shapes, strict=True)
    return Tree(branches=[_node(node, shape, parents.get(shape.id)) for node, shape in pairs])


def _node(node: BranchNode, shape: BranchShape, parent: UUID | None) -> TreeNode:
    return TreeNode(**fields_of(shape), parent=parent, forked_at=node.forked_at)
