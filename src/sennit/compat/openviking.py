"""Names, positions and shapes of OpenViking for Sennit's client, sessions and memory.

    from sennit.compat.openviking import OpenViking, TextPart

The client is Sennit's own with further names. What differs by design: a commit keeps the messages
on their branch, where they can be forked and found, and a file system holds text.
The page docs/coming-from/openviking.md shows both side by side.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast
from uuid import UUID

from sennit import clock
from sennit.api.client import Client
from sennit.api.session import Session as _Session
from sennit.api.store_url import open_store
from sennit.blocking import is_loop_running
from sennit.errors import (
    CodecError,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    short_repr,
)
from sennit.ids import new_id
from sennit.memory.commit.result import CommitResult
from sennit.memory.files.entry import FileEntry
from sennit.memory.memory import engine_of
from sennit.memory.uri import SCHEME, Uri, session_name
from sennit.messages.codec import dumps, loads
from sennit.messages.content import ActionRequestContent, ActionResponseContent
from sennit.messages.message import Message
from sennit.messages.parts import ContextPart as _ContextPart
from sennit.messages.parts import ImagePart, MessageGroup, Part, TextPart
from sennit.messages.parts import ToolPart as _ToolPart
from sennit.numbers import count
from sennit.sessions.branches import BranchRef

if TYPE_CHECKING:
    from sennit.memory.retrieval.embedders import Embedder
    from sennit.memory.retrieval.find import Match
    from sennit.sessions.client import SessionInfo
    from sennit.sessions.repository import SessionRepository
    from sennit.stores.records.sessions import SessionRecord

__all__ = [
    "AsyncOpenViking",
    "ContextPart",
    "FindResult",
    "ImagePart",
    "OpenViking",
    "Session",
    "SyncOpenViking",
    "TextPart",
    "ToolPart",
    "Usage",
]

ContextType = Literal["memory", "resource", "skill"]
ToolStatus = Literal["pending", "running", "completed", "error", "failed"]
_RELATIONS = ".relations.json"


# Parts. They are functions: what they return and what is stored are Sennit's parts.


def ContextPart(
    uri: str, abstract: str = "", *, context_type: ContextType = "memory"
) -> _ContextPart:
    """Return a context part; its type follows from its URI, so `context_type` is not stored."""
    if context_type not in ("memory", "resource", "skill"):
        raise ValidationError(
            f"context_type is 'memory', 'resource' or 'skill', got {short_repr(context_type)}."
        )
    return _ContextPart(uri, abstract)


def ToolPart(
    tool_id: str | None = None,
    tool_name: str = "",
    *,
    tool_input: Mapping[str, Any] | None = None,
    tool_output: Any = "",
    tool_status: ToolStatus = "pending",
    tool_uri: str = "",  # noqa: ARG001
    skill_uri: str = "",  # noqa: ARG001
) -> _ToolPart:
    """Return a tool part: a call, with its output or error once `tool_status` says it has ended.

    `tool_uri` and `skill_uri` are not stored: the tree has one place per tool call, and
    `session.used(skill=...)` records skills.
    """
    ended = {"completed": "output", "error": "error", "failed": "error"}.get(tool_status)
    if ended is None and tool_status not in ("pending", "running"):
        raise ValidationError(
            f"tool_status is 'pending', 'running', 'completed' or 'error', got "
            f"{short_repr(tool_status)}."
        )
    outcome = {} if ended is None else {ended: tool_output}
    return _ToolPart(tool_name, dict(tool_input or {}), tool_id=tool_id or None, **outcome)


# Sessions


@dataclass(frozen=True, slots=True)
class Usage:
    """A context or skill that was recorded as used."""

    uri: str
    type: Literal["context", "skill"]
    input: Any = ""
    output: Any = ""
    success: bool = True
    timestamp: datetime = field(default_factory=lambda: clock.to_datetime(clock.now_us()))


class Session(_Session):
    """A session with OpenViking's names; see `SyncOpenViking.session`."""

    client: SyncOpenViking
    """The client that opened it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._usage_records: list[Usage] = []

    @property
    def session_id(self) -> str:
        """The key it was opened with, or else its id."""
        return self.key or str(self.id)

    @property
    def uri(self) -> str:
        """The URI of its folder."""
        return f"{SCHEME}session/{session_name(self.key, self.id)}"

    @property
    def usage_records(self) -> list[Usage]:
        """The uses that this object recorded, oldest first."""
        return list(self._usage_records)

    async def load(self) -> None:
        """Load what other processes have written."""
        await self.arefresh()

    def used(
        self,
        contexts: Iterable[str] | None = None,
        skill: Mapping[str, Any] | None = None,
        branch: BranchRef | None = None,
    ) -> None:
        """Record contexts or a skill that were used; without either, do nothing.

        A skill may have a `name`, which its URI says, too, and is not stored.
        """
        uris = [contexts] if isinstance(contexts, str) else list(contexts or ())
        if not isinstance(skill, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"A skill is a dict with a uri, got {short_repr(skill)}.")
        fields = {name: value for name, value in (skill or {}).items() if name != "name"}
        if not uris and not fields:
            return
        super().used(contexts=uris or None, skill=fields or None, branch=branch)
        self._usage_records += [Usage(str(uri), "context") for uri in uris]
        if fields:
            self._usage_records.append(Usage(type="skill", **fields))

    def update_tool_part(
        self,
        message_id: str,
        tool_id: str,
        output: str,
        status: ToolStatus = "completed",
    ) -> None:
        """Store the outcome of a tool call that was added without one.

        Raises NotFoundError if there is no such call, ExistsError if it has an outcome.
        """
        group = _group_id(message_id)
        branch = next((one for one in self.branches if group in one), None)
        if branch is None:
            raise NotFoundError(f"No branch of session {self.session_id!r} has {message_id!r}.")
        contents = [message.content for message in branch.messages[branch.index(group) :]]
        if not any(
            isinstance(one, ActionRequestContent) and one.call_id == tool_id for one in contents
        ):
            raise NotFoundError(f"Message {message_id!r} has no tool call {short_repr(tool_id)}.")
        if any(
            isinstance(one, ActionResponseContent) and one.request_id == tool_id for one in contents
        ):
            raise ExistsError(f"Tool call {tool_id!r} has an outcome already.")
        if status == "completed":
            content = ActionResponseContent(request_id=tool_id, result=output)
        else:
            content = ActionResponseContent(request_id=tool_id, error=output)
        self.add_message(Message(content, sender="tool"), branches=branch)

    def commit(
        self, branch: BranchRef | None = None, *, wait: bool = True, keep_recent: int = 0
    ) -> CommitResult:
        """Commit, as `sennit.Session.commit`; the result has `session_id` and `archive_uri`.

        On a running event loop it blocks that loop, as OpenViking's own does.
        """
        work = partial(super().commit, branch, wait=wait, keep_recent=keep_recent)
        if is_loop_running():
            with ThreadPoolExecutor(1) as thread:
                result = thread.submit(work).result()
        else:
            result = work()
        archive = result["archive"]
        result["session_id"] = self.session_id
        result["archive_uri"] = None if archive is None else f"{self.uri}/history/{archive}"
        return result

    async def commit_async(self) -> CommitResult:
        """`commit` for async callers."""
        return await to_thread(self.commit)

    async def get_context_for_search(self, query: str, max_messages: int = 20) -> dict[str, Any]:
        """Return the overview of the last archive and the last current messages, as groups.

        The `query` has no influence; `context(query=...)` selects memories for one.
        """
        del query
        count(max_messages, "max_messages", 0)
        return await to_thread(self._context_for_search, max_messages)

    def _context_for_search(self, max_messages: int) -> dict[str, Any]:
        read, exists = self.client.fs.read, self.client.fs.exists
        lines = read(f"{self.uri}/messages.jsonl").splitlines()
        archives = f"{self.uri}/history"
        uris = [entry.uri for entry in self.client.fs.ls(archives)] if exists(archives) else []
        return {
            "latest_archive_overview": read(f"{uris[-1]}/.overview.md") if uris else "",
            "current_messages": [
                MessageGroup.from_json(line) for line in lines[max(len(lines) - max_messages, 0) :]
            ],
        }


# Clients


class FindResult(list["Match"]):
    """Search results, best first, also by kind."""

    @property
    def memories(self) -> list[Match]:
        """The memories."""
        return [match for match in self if match.category not in (None, "message")]

    @property
    def resources(self) -> list[Match]:
        """The resources."""
        return [match for match in self if match.uri.startswith(f"{SCHEME}resources/")]

    @property
    def skills(self) -> list[Match]:
        """The skills."""
        return [match for match in self if match.uri.startswith(f"{SCHEME}agent/skills/")]

    @property
    def total(self) -> int:
        """The number of results."""
        return len(self)


class SyncOpenViking(Client):
    """A client of a store in a folder, by default in the user's data folder.

    `path` is the folder, or a store URL as for `sennit.open`.
    """

    session_type: ClassVar[type[_Session]] = Session

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        if path is not None and path != ":memory:" and "://" not in str(path):
            folder = Path(path).expanduser()
            if not folder.is_file() and not folder.suffix:
                folder.mkdir(parents=True, exist_ok=True)
                path = folder / "sennit.db"
        super().__init__(open_store(path), user=user, agent=agent, embedder=embedder)

    def initialize(self) -> None:
        """Return at once: the store is open."""

    def _opened(
        self, record: SessionRecord, repository: SessionRepository, **options: Any
    ) -> _Session:
        session = super()._opened(record, repository, **options)
        cast("Session", session).client = self
        return session

    def session(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, session_id: str | UUID | None = None, *, must_exist: bool = False, **options: Any
    ) -> Session:
        """Create or open a session, by default a new one with a generated id.

        With `must_exist` raises NotFoundError instead of creating one. For the `options` see
        `sennit.Client.session`.
        """
        if must_exist:
            options["create"] = False
        key = f"session_{new_id()}" if session_id is None else session_id
        return cast("Session", super().session(key, **options))

    def session_exists(self, session_id: str) -> bool:
        """Return whether there is a session with this id."""
        try:
            self.session_info(session_id)
        except NotFoundError:
            return False
        return True

    def create_session(self, session_id: str | None = None) -> dict[str, Any]:
        """Create a session and return its entry."""
        return self.get_session(self.session(session_id).session_id)

    def get_session(self, session_id: str, *, auto_create: bool = False) -> dict[str, Any]:
        """Return the entry of a session; raises NotFoundError."""
        if auto_create:
            self.session(session_id)
        return _session_dict(self.session_info(session_id))

    def list_sessions(self) -> list[dict[str, Any]]:
        """Return the entries of all sessions, the last changed first."""
        entries: list[dict[str, Any]] = []
        page = self.sessions()
        while page:
            entries += map(_session_dict, page)
            page = self.sessions(before=page[-1])
        return entries

    def add_message(
        self,
        session_id: str,
        role: Literal["user", "assistant"],
        content: str | None = None,
        parts: Iterable[Part] | None = None,
    ) -> dict[str, Any]:
        """Add a message to a session, created if needed, as text or as parts."""
        given = content if parts is None else parts
        if given is None:
            raise InvalidTypeError("add_message takes content=, a text, or parts=.")
        session = self.session(session_id)
        session.add_message(role, given)
        return {"session_id": session.session_id, "message_count": len(session.current())}

    def commit_session(self, session_id: str) -> CommitResult:
        """Commit a session; raises NotFoundError."""
        return self.session(session_id, must_exist=True).commit()

    def wait_processed(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        timeout: float | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Finish the commits that are under way, and embed texts if there is an embedder.

        It returns when all is done, whatever the `timeout`.
        """
        commits = self.finish_commits()
        embedded = 0 if engine_of(self.memory).vectors is None else self.embed()
        return {"commits": len(commits), "embedded": embedded}

    def add_resource(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        path: str | PathLike[str],
        to: str | None = None,
        *,
        reason: str = "",
        wait: bool = True,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Add a document, or a folder of them, below `viking://resources`.

        `to` is the URI of the file or folder, by default of its own name. It can be found when this
        returns.
        """
        target = None if to is None else Uri.parse(to)
        added = super().add_resource(
            path,
            to=None if target is None else str(target.parent),
            name=None if target is None else target.name,
            reason=reason,
        )
        errors = [f"{file.path}: {file.reason}" for file in added.unreadable]
        return {
            "status": "success",
            "root_uri": added.uri,
            "source_path": str(path),
            **({"errors": errors} if errors else {}),
        }

    def add_skill(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, data: Mapping[str, Any] | str | PathLike[str]
    ) -> dict[str, Any]:
        """Store a skill: a dict with `name`, `description` and `content`, or a SKILL.md."""
        added = super().add_skill(data)
        return {"status": "success", "uri": added.uri, "name": added.uri.rpartition("/")[2]}

    def find(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        query: str,
        target_uri: str | None = None,
        limit: int = 10,
        score_threshold: float | None = None,
        **options: Any,
    ) -> FindResult:
        """Return what is relevant to a query; for the `options` see `sennit.Client.find`."""
        matches = super().find(query, target_uri or None, limit, **options)
        return _scored(matches, score_threshold)

    def search(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        query: str,
        session: Session | None = None,
        *,
        session_id: str | None = None,
        limit: int = 10,
        score_threshold: float | None = None,
    ) -> FindResult:
        """Plan queries from a session, and return what is relevant to them."""
        result = super().search(query, session or session_id, limit)
        return _scored(result.matches, score_threshold)

    # The file system, on the client itself

    def ls(self, uri: str = SCHEME, *, simple: bool = False, recursive: bool = False) -> list[Any]:
        """List a folder as dicts; with `simple`, as names relative to it."""
        entries = list(self.fs.walk(uri)) if recursive else self.fs.ls(uri)
        base = uri.rstrip("/") + "/"
        if simple:
            return [entry.uri.removeprefix(base) for entry in entries]
        return [_entry_dict(entry) for entry in entries]

    def tree(self, uri: str = SCHEME) -> list[dict[str, Any]]:
        """List all below a folder as dicts, with `rel_path`."""
        base = uri.rstrip("/") + "/"
        return [
            {**_entry_dict(entry), "rel_path": entry.uri.removeprefix(base)}
            for entry in self.fs.walk(uri)
        ]

    def stat(self, uri: str) -> dict[str, Any]:
        """Return the entry at a URI as a dict; raises NotFoundError."""
        return _entry_dict(self.fs.stat(uri))

    def read(self, uri: str, offset: int = 0, limit: int = -1) -> str:
        """Return the text of a file, or `limit` lines of it from line `offset` (from 0) on."""
        text = self.fs.read(uri)
        if not offset and limit < 0:
            return text
        lines = text.splitlines(keepends=True)[offset:]
        return "".join(lines if limit < 0 else lines[:limit])

    def abstract(self, uri: str) -> str:
        """Return a file or folder in one line."""
        return self.fs.abstract(uri)

    def overview(self, uri: str) -> str:
        """Return a file or folder in at most 4000 characters."""
        return self.fs.overview(uri)

    def mkdir(self, uri: str) -> None:
        """Create a folder."""
        self.fs.mkdir(uri)

    def rm(self, uri: str, recursive: bool = False) -> None:
        """Erase a file, or a folder, with its contents if `recursive`."""
        self.fs.rm(uri, recursive=recursive)

    def mv(self, from_uri: str, to_uri: str) -> None:
        """Move a file or folder."""
        self.fs.mv(from_uri, to_uri)

    def grep(self, uri: str, pattern: str, case_insensitive: bool = False) -> dict[str, Any]:
        """Return the lines that match a regular expression."""
        found = self.fs.grep(pattern, uri, ignore_case=case_insensitive)
        matches = [{"uri": one.uri, "line": one.number, "content": one.line} for one in found]
        return {"matches": matches, "count": len(matches)}

    def glob(self, pattern: str, uri: str = SCHEME) -> dict[str, Any]:
        """Return the URIs that match a pattern."""
        full = f"{SCHEME}{pattern.lstrip('/')}" if uri == SCHEME else None
        matches = self.fs.glob(full) if full else self.fs.glob(pattern, uri)
        return {"matches": matches, "count": len(matches)}

    def link(self, from_uri: str, uris: str | Iterable[str], reason: str = "") -> None:
        """Link a folder to other URIs; the links are in its `.relations.json`."""
        new = [uris] if isinstance(uris, str) else list(uris)
        for uri in (from_uri, *new):
            self.fs.stat(uri)
        kept = [one for one in self.relations(from_uri) if one["uri"] not in new]
        self._write_relations(from_uri, [*kept, *({"uri": uri, "reason": reason} for uri in new)])

    def unlink(self, from_uri: str, uri: str) -> None:
        """Remove a link; without one, nothing happens."""
        kept = [one for one in self.relations(from_uri) if one["uri"] != uri]
        self._write_relations(from_uri, kept)

    def relations(self, uri: str) -> list[dict[str, Any]]:
        """Return the links of a folder, each with its `uri` and `reason`."""
        file = f"{uri.rstrip('/')}/{_RELATIONS}"
        text = self.fs.read(file) if self.fs.exists(file) else "[]"
        found = loads(text)
        match found:
            case [*links] if all(isinstance(one, dict) and "uri" in one for one in links):
                return cast("list[dict[str, Any]]", links)
            case _:
                raise CodecError(f"{file!r} is not a list of links, got {short_repr(found)}.")

    def _write_relations(self, uri: str, relations: list[dict[str, Any]]) -> None:
        self.fs.write(f"{uri.rstrip('/')}/{_RELATIONS}", dumps(relations).decode())


OpenViking = SyncOpenViking


class AsyncOpenViking:
    """The same client for async callers: its methods return awaitables, except `session`.

    `await client.find("knots")` runs `find` in a worker thread.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self._client = SyncOpenViking(path, user=user, agent=agent, embedder=embedder)

    def session(self, session_id: str | None = None, *, must_exist: bool = False) -> Session:
        """Create or open a session, by default a new one."""
        return self._client.session(session_id, must_exist=must_exist)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = None if name.startswith("_") else getattr(self._client, name, None)
        if not callable(method):
            raise AttributeError(f"AsyncOpenViking has no method {name!r}.")
        return partial(to_thread, method)


def _group_id(message_id: str) -> UUID:
    try:
        return UUID(message_id.removeprefix("msg_"))
    except ValueError:
        raise NotFoundError(f"{short_repr(message_id)} is not the id of a message.") from None


def _session_dict(info: SessionInfo) -> dict[str, Any]:
    return {
        "session_id": info.key or str(info.id),
        "created_at": clock.to_iso(clock.from_datetime(info.created_at)),
        "updated_at": clock.to_iso(clock.from_datetime(info.updated_at)),
    }


def _entry_dict(entry: FileEntry) -> dict[str, Any]:
    changed = entry.updated_at
    return {
        "name": entry.name,
        "uri": entry.uri,
        "isDir": entry.is_folder,
        "size": entry.size,
        "modTime": None if changed is None else clock.to_iso(clock.from_datetime(changed)),
        "abstract": entry.abstract,
    }


def _scored(matches: Iterable[Match], threshold: float | None) -> FindResult:
    return FindResult(match for match in matches if threshold is None or match.score >= threshold)
