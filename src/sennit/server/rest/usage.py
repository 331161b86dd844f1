"""Token usage by day and session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Meta

from sennit import cancellation, clock
from sennit.api.client import Client
from sennit.errors import NotFoundError
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.rest.sessions import as_cursor, cursor, title_of
from sennit.server.schemas import fields_of
from sennit.sessions.client import SessionInfo

routes: Final = Routes()

_DAY_US = 24 * 60 * 60 * 1_000_000
_PAGE_SIZE = 100


class UsageQuery(RequestModel):
    """The number of days to look back; all sessions, or page by page."""

    days: Annotated[int, Meta(ge=1, le=366)] = 30
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    before: str | None = None


class UsageSum(ResponseModel):
    """The usage of some model calls."""

    turns: int = 0
    """The number of model calls."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def add(self, used: dict[str, Any]) -> None:
        """Add the usage of one model call."""
        self.turns += 1
        self.input_tokens += used.get("input_tokens", 0)
        self.output_tokens += used.get("output_tokens", 0)
        self.cost += used.get("cost", 0.0)

    def fields(self) -> dict[str, Any]:
        """Return the fields, without rounding errors of the sum."""
        return fields_of(self) | {"cost": round(self.cost, 9)}


class DayUsage(UsageSum, kw_only=True):
    """The usage of one model on one day (UTC)."""

    date: str
    model: str


class SessionUsage(UsageSum, kw_only=True):
    """The usage of one session."""

    id: UUID
    key: str | None
    title: str


class UsageShape(ResponseModel):
    """Usage by day, newest first, and by session, most expensive first."""

    days: list[DayUsage]
    sessions: list[SessionUsage]
    next: str | None
    """The `before` for the sessions beyond the limit; None if there are none."""


@routes.get("/api/usage", scope="read")
async def usage(request: HTTPRequest, query: UsageQuery) -> UsageShape:
    """Read token usage by day and by session."""
    return await request.server.work.run(request.caller, _usage, request.caller, query)


def _usage(caller: Caller, query: UsageQuery) -> UsageShape:
    client, now = caller.client, clock.now_us()
    since = now - now % _DAY_US - (query.days - 1) * _DAY_US
    by_day: dict[tuple[str, str], UsageSum] = defaultdict(UsageSum)
    by_session: dict[UUID, tuple[SessionInfo, UsageSum]] = {}
    before = None if query.before is None else cursor(query.before)
    infos = list(islice(_changed_since(client, since, before), query.limit))
    for info in infos:
        cancellation.raise_if_cancelled()
        for message, used in _answers(client, info, since):
            date = clock.to_iso(message.created_us)[:10]
            model = message.metadata.get("model") or str(message.sender or "")
            by_day[date, model].add(used)
            by_session.setdefault(info.id, (info, UsageSum()))[1].add(used)
    days = [
        DayUsage(date=date, model=model, **by_day[date, model].fields())
        for date, model in sorted(by_day, reverse=True)
    ]
    sessions = [
        SessionUsage(id=info.id, key=info.key, title=title_of(caller, info), **total.fields())
        for info, total in by_session.values()
    ]
    sessions.sort(key=lambda session: (-session.cost, -session.output_tokens))
    next_page = (
        as_cursor(infos[-1]) if query.limit is not None and len(infos) == query.limit else None
    )
    return UsageShape(days=days, sessions=sessions, next=next_page)


def _changed_since(client: Client, since: int, last: SessionInfo | None) -> Iterator[SessionInfo]:
    while True:
        cancellation.raise_if_cancelled()
        page = client.sessions(before=last, limit=_PAGE_SIZE)
        for info in page:
            if clock.from_datetime(info.updated_at) < since:
                return
            yield info
        if len(page) < _PAGE_SIZE:
            return
        last = page[-1]


def _answers(
    client: Client, info: SessionInfo, since: int
) -> Iterator[tuple[Message, dict[str, Any]]]:
    """Yield the messages that end a model's turn, with its usage."""
    try:
        session = client.session(info.id, create=False)
    except NotFoundError:  # deleted concurrently
        return
    for message in session.messages:
        if message.created_us >= since and (used := message.metadata.get("usage")):
            yield message, used
