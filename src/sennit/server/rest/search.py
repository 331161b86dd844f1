"""Search in memories and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType, convert

from sennit.memory.retrieval.find import MESSAGE, Match
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes

routes: Final = Routes()

Most = Annotated[int, Meta(ge=1, le=100)]
Question = Annotated[str, Meta(min_length=1, max_length=10_000)]


class FindQuery(RequestModel):
    """A query and its filters."""

    q: Question
    limit: Most = 10
    target_uri: str | None = None
    category: str | None = None
    """Categories, separated by commas."""
    explain: bool = False


class SearchQuery(RequestModel):
    """A query in the context of a session."""

    q: Question
    session: str | None = None
    branch: str | None = None
    limit: Most = 10


class SourceShape(ResponseModel):
    """A message that a result is based on."""

    session: str
    message: str


class MatchShape(ResponseModel):
    """A search result."""

    uri: str
    category: str | None
    abstract: str
    score: float
    evidence: list[SourceShape]
    created_at: str
    session: str | None
    """The session of a message; None for a memory."""
    message: str | None
    """The id of a message; None for a memory."""
    speaker: str | None
    """The sender of a message, if known; the abstract begins with it."""
    explained: dict[str, float] | UnsetType = UNSET


class FoundMatches(ResponseModel):
    """The results, best first."""

    matches: list[MatchShape]


class QueryShape(ResponseModel):
    """A query that was run."""

    text: str
    category: str | None


class SearchedShape(ResponseModel):
    """The queries that were run, and their results."""

    queries: list[QueryShape]
    matches: list[MatchShape]


@routes.get("/api/find", scope="read")
async def find(request: HTTPRequest, query: FindQuery) -> FoundMatches:
    """Find memories and messages that match a question."""
    categories = None if query.category is None else query.category.split(",")
    matches = await request.caller.client.afind(
        query.q, query.target_uri, query.limit, explain=query.explain, category=categories
    )
    return FoundMatches(matches=await _match_shapes(request, matches))


@routes.get("/api/search", scope="read")
async def search(request: HTTPRequest, query: SearchQuery) -> SearchedShape:
    """Search with queries derived from a question and its session."""
    client = request.caller.client
    results = await client.asearch(query.q, query.session, query.limit, branch=query.branch)
    return SearchedShape(
        queries=[
            QueryShape(text=search_query.text, category=search_query.category)
            for search_query in results.queries
        ],
        matches=await _match_shapes(request, results.matches),
    )


async def _match_shapes(request: HTTPRequest, matches: Sequence[Match]) -> list[MatchShape]:
    sources = sum(len(match.evidence) for match in matches)
    return await request.build(sources, lambda: [_match_shape(match) for match in matches])


def _match_shape(match: Match) -> MatchShape:
    source = match.evidence[0] if match.category == MESSAGE and match.evidence else None
    fields = match.to_dict() | {
        "session": None if source is None else str(source.session),
        "message": None if source is None else str(source.message),
        "speaker": match.speaker or None,
    }
    return convert(fields, MatchShape)
