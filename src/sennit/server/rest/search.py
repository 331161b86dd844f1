"""Search in memories and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from sennit.memory.retrieval.find import MESSAGE, Match
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.schemas import iso

routes = Routes()

Most = Annotated[int, Meta(ge=1, le=100)]
Question = Annotated[str, Meta(min_length=1, max_length=10_000)]


class FindQuery(RequestModel):
    """A query and its filters."""

    q: Question
    limit: Most = 10
    target_uri: str | None = None
    category: str | None = None
    """Only of this kind; several with commas between."""
    explain: bool = False


class SearchQuery(RequestModel):
    """A query in the context of a session."""

    q: Question
    session: str | None = None
    branch: str | None = None
    limit: Most = 10


class SourceShape(ResponseModel):
    """A message something rests on."""

    session: str
    message: str


class MatchShape(ResponseModel):
    """Something that was found."""

    uri: str
    category: str | None
    abstract: str
    score: float
    evidence: list[SourceShape]
    created_at: str
    session: str | None
    """Of a message, the session it stands in."""
    message: str | None
    """Of a message, its id."""
    speaker: str | None
    """Of a message, the name of whoever said it, if known; the abstract begins with it."""
    explained: dict[str, float] | UnsetType = UNSET


class Matches(ResponseModel):
    """The results, best first."""

    matches: list[MatchShape]


class QueryShape(ResponseModel):
    """One of the searches that were made."""

    text: str
    category: str | None


class SearchedShape(ResponseModel):
    """The queries that were run, and their results."""

    queries: list[QueryShape]
    matches: list[MatchShape]


@routes.get(
    "/api/find",
    scope="read",
    summary="Memories and messages that fit a question",
    query=FindQuery,
    answer=Matches,
)
async def find(call: HTTPRequest) -> Matches:
    """Memories and messages that fit a question."""
    query: FindQuery = call.query
    categories = None if query.category is None else query.category.split(",")
    found = await call.caller.client.afind(
        query.q, query.target_uri, query.limit, explain=query.explain, category=categories
    )
    return Matches(matches=await _shown(call, found))


@routes.get(
    "/api/search",
    scope="read",
    summary="The same for a question that leans on a session",
    query=SearchQuery,
    answer=SearchedShape,
)
async def search(call: HTTPRequest) -> SearchedShape:
    """The same for a question that leans on a conversation."""
    query: SearchQuery = call.query
    client = call.caller.client
    found = await client.asearch(query.q, query.session, query.limit, branch=query.branch)
    return SearchedShape(
        queries=[QueryShape(text=one.text, category=one.category) for one in found.queries],
        matches=await _shown(call, found.matches),
    )


async def _shown(call: HTTPRequest, found: Sequence[Match]) -> list[MatchShape]:
    sources = sum(len(one.evidence) for one in found)
    return await call.build(sources, lambda: [_match(one) for one in found])


def _match(one: Match) -> MatchShape:
    sources = [SourceShape(session=str(s.session), message=str(s.message)) for s in one.evidence]
    itself = sources[0] if one.category == MESSAGE and sources else None
    more: dict[str, Any] = {"explained": dict(one.explained)} if one.explained else {}
    return MatchShape(
        uri=one.uri,
        category=one.category,
        abstract=one.abstract,
        score=one.score,
        evidence=sources,
        created_at=iso(one.created_at),
        session=None if itself is None else itself.session,
        message=None if itself is None else itself.message,
        speaker=one.speaker or None,
        **more,
    )
