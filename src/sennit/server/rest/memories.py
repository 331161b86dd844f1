"""Memories and commits: commit, list, undo, forget."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Final

from msgspec import Meta, convert

from sennit import clock
from sennit.api.client import Client
from sennit.errors import NotFoundError
from sennit.memory.commit.result import CommitStatus
from sennit.memory.extraction.values import Category
from sennit.memory.history.evidence import QuotedMessage
from sennit.memory.history.history import EvidenceSource, MemoryRecord
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.rest.sessions import Limit

routes: Final = Routes()

_MAX_SESSIONS_READ = 100  # when no session is named


class EvidenceShape(ResponseModel):
    """A message that a memory is based on; without a text if it was erased."""

    session: str
    message: str
    role: str | None = None
    text: str | None = None
    said_at: str | None = None


class MemoryShape(ResponseModel):
    """A version of a memory."""

    uri: str
    category: str | None
    text: str
    version: int
    did: str
    learnt_at: str
    valid_from: str
    valid_to: str | None
    evidence: list[EvidenceShape]
    commit: str | None
    active_count: int


class DecisionShape(ResponseModel):
    """A decision of a commit about a memory."""

    did: str
    category: str
    uri: str
    version: int
    reason: str


class MemoryItem(ResponseModel):
    """A memory with its history and the decisions of its commit."""

    memory: MemoryShape
    history: list[MemoryShape]
    decisions: list[DecisionShape]


class MemoryList(ResponseModel):
    """A page of memories."""

    memories: list[MemoryShape]
    next: str | None


class MemoriesQuery(RequestModel):
    """A page of memories; `before` is the `next` of the previous page."""

    category: str | None = None
    limit: Limit = 100
    before: str | None = None


class UriQuery(RequestModel):
    """A URI."""

    uri: str


class CommitRequest(RequestModel):
    """The branch to commit, and whether to wait for the result."""

    branch: str | None = None
    wait: bool = True
    keep_recent: Annotated[int, Meta(ge=0)] = 0


class CommitShape(ResponseModel):
    """A commit, its result and its decisions."""

    id: str
    session: str
    branch: str
    created_at: str
    result: dict[str, Any]
    decisions: list[DecisionShape]


class CommitList(ResponseModel):
    """Commits, the newest first."""

    commits: list[CommitShape]


class CommitsQuery(RequestModel):
    """The session; by default those changed last."""

    session: str | None = None


class UndoShape(ResponseModel):
    """The changes made by undoing a commit, by URI."""

    removed: list[str]
    restored: list[str]
    kept: list[str]


class ForgetRequest(RequestModel):
    """The URI or session to erase."""

    uri: str | None = None
    session: str | None = None


class ForgetShape(ResponseModel):
    """The numbers of erased items."""

    sessions: int
    files: int


@routes.post("/api/sessions/{session}/commit", scope="write")
async def commit(request: HTTPRequest, body: CommitRequest) -> dict[str, Any]:
    """Commit a session: archive new messages and extract memories."""
    session = await request.session()
    return await session.acommit(body.branch, wait=body.wait, keep_recent=body.keep_recent)


@routes.get("/api/tasks/{task}", scope="read")
async def task(request: HTTPRequest) -> dict[str, Any]:
    """Read a commit's progress."""
    return await request.caller.client.aget_task(request.path["task"])


@routes.post("/api/commits/{commit}/undo", scope="admin")
async def undo(request: HTTPRequest) -> UndoShape:
    """Undo the memory changes of a commit."""
    return UndoShape(**asdict(await request.caller.client.aundo_commit(request.path["commit"])))


@routes.get("/api/commits", scope="read")
async def list_commits(request: HTTPRequest, query: CommitsQuery) -> CommitList:
    """List commits and their decisions, newest first."""
    return await to_thread(_commits, request.caller.client, query.session)


def _commits(client: Client, session: str | None) -> CommitList:
    if session is not None:
        commits = client.memory.commits(client.session(session, create=False))
    else:
        commits = sorted(_recent(client), key=lambda commit: commit.created_at, reverse=True)
    return CommitList(commits=[_commit(commit) for commit in commits])


def _recent(client: Client) -> Iterable[CommitStatus]:
    for info in client.sessions(limit=_MAX_SESSIONS_READ):
        try:
            yield from client.memory.commits(client.session(info.id, create=False))
        except NotFoundError:  # deleted meanwhile
            continue


def _commit(status: CommitStatus) -> CommitShape:
    return CommitShape(
        id=str(status.id),
        session=str(status.session),
        branch=str(status.branch),
        created_at=clock.to_iso(clock.from_datetime(status.created_at)),
        result=dict(status.result),
        decisions=convert(list(status.decisions), list[DecisionShape]),
    )


@routes.get("/api/memories", scope="read")
async def list_memories(request: HTTPRequest, query: MemoriesQuery) -> MemoryList:
    """List memories with their evidence."""
    return await to_thread(_page, request.caller.client, query)


def _page(client: Client, query: MemoriesQuery) -> MemoryList:
    records = client.memory.all(_category(query.category))
    if query.before is not None:
        positions = [at for at, record in enumerate(records) if record.uri == query.before]
        if not positions:
            message = f"before must be the 'next' of the previous page, got {query.before[:200]!r}."
            raise HTTPError(422, "invalid", message, param="before")
        records = records[positions[0] + 1 :]
    page = records[: query.limit]
    quotes = client.memory.evidence(page)
    last = page[-1].uri if len(records) > query.limit else None
    return MemoryList(memories=[_memory(record, quotes) for record in page], next=last)


def _category(name: str | None) -> str | None:
    names = [category.value for category in Category]
    if name is None or name in names:
        return name
    message = f"Unknown category {name[:100]!r}; expected one of: {', '.join(names)}."
    raise HTTPError(422, "invalid", message, param="category")


def _memory(record: MemoryRecord, quotes: dict[EvidenceSource, QuotedMessage]) -> MemoryShape:
    evidence = [_evidence(source, quotes.get(source)) for source in record.evidence]
    return convert({**record.to_dict(), "evidence": evidence}, MemoryShape)


def _evidence(source: EvidenceSource, quote: QuotedMessage | None) -> dict[str, Any]:
    location = {"session": str(source.session), "message": str(source.message)}
    return location if quote is None else {**quote.to_dict(), **location}


@routes.get("/api/memories/item", scope="read")
async def get_memory(request: HTTPRequest, query: UriQuery) -> MemoryItem:
    """Read a memory with its evidence, history and decisions."""
    return await to_thread(_item, request.caller.client, query.uri)


def _item(client: Client, uri: str) -> MemoryItem:
    record, history = client.memory.get(uri), client.memory.history(uri)
    quotes = client.memory.evidence([record, *history])
    decisions: list[dict[str, Any]] = []
    if record.commit_id is not None:
        decided = client.memory.committed(record.commit_id).decisions
        decisions = [item for item in decided if item["uri"].partition("#")[0] == record.uri]
    return MemoryItem(
        memory=_memory(record, quotes),
        history=[_memory(version, quotes) for version in history],
        decisions=convert(decisions, list[DecisionShape]),
    )


@routes.post("/api/forget", scope="admin")
async def forget(request: HTTPRequest, body: ForgetRequest) -> ForgetShape:
    """Erase a memory, a folder or a session, and all that is derived from it."""
    if (body.uri is None) == (body.session is None):
        raise HTTPError(422, "invalid", "Pass either a uri or a session.")
    client = request.caller.client
    if body.session is not None:
        request.caller.drop((await request.caller.session(body.session)).id)
    erased = await client.aforget(uri=body.uri, session=body.session)
    return ForgetShape(sessions=erased.sessions, files=erased.files)
