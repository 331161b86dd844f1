"""The branch and index of a message."""

from __future__ import annotations

from asyncio import to_thread
from uuid import UUID

from sennit.api.session import Session
from sennit.errors import NotFoundError
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.sessions.branch import Branch

routes = Routes()


class LocationQuery(RequestModel):
    """The branch to look on first, by id or name."""

    branch: str | None = None


class MessageLocation(ResponseModel):
    """A branch that has the message, and its index there."""

    branch_id: UUID
    index: int


@routes.get("/api/sessions/{session}/messages/{message}", scope="read")
async def locate(request: HTTPRequest, query: LocationQuery) -> MessageLocation:
    """Locate a message: its branch and index.

    Raises NotFoundError if none has.
    """
    session = await request.session()
    return await to_thread(_find, session, request.path["message"], query.branch)


def _find(session: Session, message: str, first: str | None) -> MessageLocation:
    preferred: list[Branch] = [] if first is None else [session.get_branch(first)]
    with session.lock:
        for branch in (*preferred, *session.branches):
            if message in branch:
                return MessageLocation(branch_id=branch.id, index=branch.index(message))
    raise NotFoundError(f"No branch of this session has the message {message!r}.")
