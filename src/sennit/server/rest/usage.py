"""Token usage by day and session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from sennit import cancellation, clock
from sennit.api.client import Client
from sennit.errors import NotFoundError
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.rest.sessions import as_cursor, cursor, title_of
from sennit.sessions.client import SessionInfo

routes = Routes()

_DAY = 24 * 60 * 60 * 1_000_000
_PAGE = 100


class UsageQuery(RequestModel):
    """The number of days to look back; all sessions, or page by page."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    before: str | None = None


class DayUsage(ResponseModel):
    """The usage of one model on one day (UTC)."""

    date: str
    model: str
    turns: int
    """How often it was asked."""
    input_tokens: int
    output_tokens: int
    cost: float


class SessionUsage(ResponseModel):
    """The usage of one session."""

    id: UUID
    key: str | None
    title: str
    turns: int
    input_tokens: int
    output_tokens: int
    cost: float


class UsageShape(ResponseModel):
    """Usage by day, newest first, and by session, most expensive first."""

    days: list[DayUsage]
    sessions: list[SessionUsage]
    next: str | None
    """What to send as `before` for the sessions that a limit left out; None if all are in."""


class _Sum:
    __slots__ = ("cost", "given", "said", "turns")

    def __init__(self) -> None:
        self.turns, self.given, self.said, self.cost = 0, 0, 0, 0.0

    def add(self, used: dict[str, Any]) -> None:
        self.turns += 1
        self.given += used.get("input_tokens", 0)
        self.said += used.get("output_tokens", 0)
        self.cost += used.get("cost", 0.0)

    def fields(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "input_tokens": self.given,
            "output_tokens": self.said,
            "cost": round(self.cost, 9),
        }


@routes.get(
    "/api/usage",
    scope="read",
    summary="What models used, by day and by session",
    query=UsageQuery,
    answer=UsageShape,
)
async def usage(request: HTTPRequest) -> UsageShape:
    """Return the usage of the last days."""
    query: UsageQuery = request.query
    return await request.server.work.run(request.caller, _usage, request.caller, query)


def _usage(caller: Caller, query: UsageQuery) -> UsageShape:
    client, now = caller.client, clock.now_us()
    since = now - now % _DAY - (query.days - 1) * _DAY
    by_day: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    by_session: dict[UUID, tuple[SessionInfo, _Sum]] = {}
    before = None if query.before is None else cursor(query.before)
    infos = list(islice(_changed_since(client, since, before), query.limit))
    for info in infos:
        cancellation.check()
        for message, used in _answers(client, info, since):
            date = clock.to_iso(message.created_us)[:10]
            model = message.metadata.get("model") or str(message.sender or "")
            by_day[date, model].add(used)
            by_session.setdefault(info.id, (info, _Sum()))[1].add(used)
    days = [
        DayUsage(date=date, model=model, **by_day[date, model].fields())
        for date, model in sorted(by_day, reverse=True)
    ]
    sessions = [
        SessionUsage(id=info.id, key=info.key, title=title_of(caller, info), **total.fields())
        for info, total in by_session.values()
    ]
    sessions.sort(key=lambda session: (-session.cost, -session.output_tokens))
    next_page = as_cursor(infos[-1]) if query.limit is not None and len(infos) == query.limit else None
    return UsageShape(days=days, sessions=sessions, next=next_page)


def _changed_since(client: Client, since: int, last: SessionInfo | None) -> Iterator[SessionInfo]:
    while True:
        cancellation.check()
        page = client.sessions(before=last, limit=_PAGE)
        for info in page:
            if clock.from_datetime(info.updated_at) < since:
                return
            yield info
        if len(page) < _PAGE:
            return
        last = page[-1]


def _answers(
    client: Client, info: SessionInfo, since: int
) -> Iterator[tuple[Message, dict[str, Any]]]:
    """The messages that end a model's turn, with what it used."""
    try:
        session = client.session(info.id, create=False)
    except NotFoundError:  # deleted meanwhile
        return
    for message in session.messages:
        if message.created_us >= since and (used := message.metadata.get("usage")):
            yield message, used
