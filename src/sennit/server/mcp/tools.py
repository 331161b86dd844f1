"""MCP tools: search, read, write, fork and continue sessions.

Each tool is a function in `TOOLS`, with its scope and the model of its arguments. Results are
bounded, since a model's context window is small: long texts and lists are paginated, and each page
says how to get the next. This module does not depend on the MCP protocol.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from sennit.api.session import Session
from sennit.clock import from_datetime, to_iso
from sennit.errors import AccessError, OutOfRangeError
from sennit.memory.extraction.values import Category
from sennit.memory.files.entry import FileEntry
from sennit.memory.uri import Uri
from sennit.messages.media import MediaPart, label
from sennit.messages.message import Message
from sennit.server.http.tokens import Scope
from sennit.server.mcp.attachments import attachments_of, find_attachment
from sennit.server.mcp.runs import ClientRun, start_run
from sennit.server.mcp.scope import MAX_ANSWER_CHARS, McpScope, branch_of, cut
from sennit.server.schemas import as_cursor, cursor, message_shape

_MAX_MESSAGE_CHARS = 6_000
"""The length at which a message is cut."""
_MAX_ENTRIES = 500
_Run = TypeVar("_Run", bound=Callable[..., Awaitable["dict[str, Any] | ClientRun | MediaPart"]])


class ToolArguments(BaseModel):
    """The arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


_SESSION = Field(min_length=1, description="The session's key or id, as list_sessions gives it.")
_BRANCH = Field(None, description="A branch by name or id; by default main, or else the first.")


class Search(ToolArguments):
    """A query."""

    query: str = Field(min_length=1, max_length=2_000, description="A question, or some words.")
    kind: Literal["all", "memories", "messages"] = Field(
        "all", description="Only what is remembered, or only what was said."
    )
    within: str | None = Field(None, description="Only below this URI, such as viking://user.")
    limit: int = Field(10, ge=1, le=50)


class ListSessions(ToolArguments):
    """A page of sessions."""

    contains: str | None = Field(None, description="Only those whose key or title holds this.")
    before: str | None = Field(None, description="The `next` of the page before.")
    limit: int = Field(20, ge=1, le=100)


class ReadSession(ToolArguments):
    """A page of a session's messages."""

    session: str = _SESSION
    branch: str | None = _BRANCH
    before: int | None = Field(None, ge=0, description="Only messages before this index.")
    limit: int = Field(20, ge=1, le=100)


class ReadAttachment(ToolArguments):
    """A picture, a recording or a file of a message."""

    session: str = _SESSION
    branch: str | None = _BRANCH
    index: int = Field(ge=0, description="The index of the message, as read_session says.")
    number: int = Field(0, ge=0, description="Which of its attachments, from 0.")


class ListFiles(ToolArguments):
    """A folder."""

    uri: str = Field("viking://", description="A folder, such as viking://user/memories.")


class ReadFile(ToolArguments):
    """A file, and the offset to read from."""

    uri: str = Field(description="A file, such as viking://user/memories/profile.md.")
    offset: int = Field(0, ge=0, description="How many letters to skip.")


class WriteFile(ToolArguments):
    """The new text of a file."""

    uri: str = Field(
        description="A file below viking://user, viking://agent or viking://resources."
    )
    text: str = Field(max_length=1_000_000, description="All of it; older versions are kept.")


class AddMessage(ToolArguments):
    """A message to add."""

    session: str = Field(min_length=1, max_length=500, description="A key or id; made if new.")
    role: Literal["user", "assistant"]
    text: str = Field(min_length=1, max_length=1_000_000)
    branch: str | None = _BRANCH


class ForkSession(ToolArguments):
    """A fork point."""

    session: str = _SESSION
    branch: str | None = _BRANCH
    at: int | None = Field(
        None, ge=0, description="The index of the last message the fork keeps; by default all."
    )
    name: str | None = Field(None, min_length=1, description="Its name; by default one is made.")


class ContinueSession(ToolArguments):
    """The next message."""

    session: str = _SESSION
    text: str = Field(min_length=1, max_length=100_000, description="What the user says.")
    branch: str | None = _BRANCH


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool and the function that runs it."""

    scope: Scope
    arguments: type[ToolArguments]
    run: Callable[[McpScope, Any], Awaitable[dict[str, Any] | ClientRun | MediaPart]]
    """Returns the result, or the run that leads to it."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.run.__name__

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (self.run.__doc__ or "").partition("\n")[0]

    @property
    def reads_only(self) -> bool:
        """True if it changes nothing."""
        return self.scope == "read"


TOOLS: dict[str, McpTool] = {}


def _tool(scope: Scope) -> Callable[[_Run], _Run]:
    """Add a function to TOOLS; its `args` annotation is the model of its arguments."""

    def add(run: _Run) -> _Run:
        TOOLS[run.__name__] = McpTool(scope, get_type_hints(run)["args"], run)
        return run

    return add


@_tool("read")
async def search(access: McpScope, args: Search) -> dict[str, Any]:
    """Search the memories of the user and all messages of past sessions."""
    categories = {"all": None, "messages": "message", "memories": list(Category)}[args.kind]
    matches = await access.client.afind(args.query, args.within, args.limit, category=categories)
    return {"found": [match.to_dict() for match in matches]}


@_tool("read")
async def list_sessions(access: McpScope, args: ListSessions) -> dict[str, Any]:
    """List past sessions, the one changed last first; more with `before`."""
    before = None if args.before is None else cursor(args.before)
    infos = await access.client.asessions(contains=args.contains, before=before, limit=args.limit)
    sessions = [
        {
            "session": info.key or str(info.id),
            "id": str(info.id),
            "updated_at": to_iso(from_datetime(info.updated_at)),
        }
        for info in infos
    ]
    more = as_cursor(infos[-1]) if len(infos) == args.limit else None
    return {"sessions": sessions, "next": more}


@_tool("read")
async def read_session(access: McpScope, args: ReadSession) -> dict[str, Any]:
    """Read messages of a session. Gives the last ones; go back with `before`."""
    session = await access.client.asession(args.session, create=False)
    return await to_thread(_page, session, args)


def _page(session: Session, args: ReadSession) -> dict[str, Any]:
    branch = branch_of(session, args.branch)
    with session.lock:
        stop = len(branch) if args.before is None else min(args.before, len(branch))
        start = max(0, stop - args.limit)
        messages = session.messages.pick(branch[start:stop])
        names = [other.name for other in session.branches]
    shown: list[dict[str, Any]] = []
    remaining = MAX_ANSWER_CHARS
    for index, message in zip(range(stop - 1, start - 1, -1), reversed(messages), strict=True):
        item = _message_dict(index, message)
        remaining -= len(item["text"])
        if remaining < 0 and shown:
            start = index + 1
            break
        shown.append(item)
    return {
        "branch": branch.name,
        "branches": names[:_MAX_ENTRIES],
        "messages": shown[::-1],
        "total": len(branch),
        "before": start or None,
    }


def _message_dict(index: int, message: Message) -> dict[str, Any]:
    shape = message_shape(message, index)
    attachments = [label(part) for part in attachments_of(message)]
    return {
        "index": index,
        "id": str(shape.id),
        "role": shape.role,
        "kind": shape.kind,
        "text": cut(shape.text, _MAX_MESSAGE_CHARS),
        **({"attachments": attachments} if attachments else {}),
    }


@_tool("read")
async def read_attachment(access: McpScope, args: ReadAttachment) -> MediaPart:
    """Read a picture, a recording or a file of a message; read_session lists them."""
    session = await access.client.asession(args.session, create=False)
    branch = branch_of(session, args.branch)
    return await to_thread(find_attachment, branch, args.index, args.number)


@_tool("read")
async def list_files(access: McpScope, args: ListFiles) -> dict[str, Any]:
    """List a folder of memories, skills, resources or sessions by its URI."""
    entries = await access.client.fs.als(args.uri)
    result: dict[str, Any] = {"entries": [_entry(entry) for entry in entries[:_MAX_ENTRIES]]}
    left_out = len(entries) - _MAX_ENTRIES
    return result | ({"left_out": left_out} if left_out > 0 else {})


def _entry(entry: FileEntry) -> dict[str, Any]:
    kind = "folder" if entry.is_folder else "file"
    return {"uri": entry.uri, "kind": kind, "size": entry.size, "abstract": entry.abstract}


@_tool("read")
async def read_file(access: McpScope, args: ReadFile) -> dict[str, Any]:
    """Read a memory or another file. Long ones come in pieces: see next_offset."""
    text = await access.client.fs.aread(args.uri)
    if args.offset > len(text):
        raise OutOfRangeError(
            f"{args.uri!r} has {len(text)} characters, got the offset {args.offset}."
        )
    end = args.offset + MAX_ANSWER_CHARS
    result = {"uri": args.uri, "text": text[args.offset : end], "letters": len(text)}
    return result | ({"next_offset": end} if end < len(text) else {})


@_tool("write")
async def write_file(access: McpScope, args: WriteFile) -> dict[str, Any]:
    """Write a memory or another file; what it said before stays in its history.

    Raises AccessError for a shared file without the scope "admin".
    """
    if Uri.parse(args.uri).is_shared and not access.allows("admin"):
        raise AccessError(
            "Writing a file that the tenant shares needs a token with the scope 'admin'."
        )
    entry = await access.client.fs.awrite(args.uri, args.text)
    return {"uri": entry.uri, "version": entry.version, "size": entry.size}


@_tool("write")
async def add_message(access: McpScope, args: AddMessage) -> dict[str, Any]:
    """Put a message at the end of a session, without asking a model."""
    session = await access.client.asession(args.session)
    branch = None if args.branch is None else session.get_branch(args.branch)
    group = await session.aadd_message(args.role, args.text, branches=branch)
    target = session.default_branch if branch is None else branch
    return {
        "session": args.session,
        "branch": target.name,
        "index": target.index(group.messages[-1].id),
        "total": len(target),
    }


@_tool("write")
async def fork_session(access: McpScope, args: ForkSession) -> dict[str, Any]:
    """Fork a session at a message, to try another way; the original stays."""
    session = await access.client.asession(args.session, create=False)
    source = branch_of(session, args.branch)
    fork = await session.afork(
        source, at=args.at, name=args.name, resources=True, capabilities=True, system=True
    )
    return {"branch": fork.name, "forked_from": source.name, "messages": len(fork)}


@_tool("run")
async def continue_session(access: McpScope, args: ContinueSession) -> ClientRun:
    """Say something in a session and have the model of this server answer."""
    session = await access.client.asession(args.session, create=False)
    return await start_run(access, branch_of(session, args.branch), args.text)


def allowed_tools(access: McpScope) -> list[McpTool]:
    """Return the tools that a caller may use."""
    return [
        tool
        for tool in TOOLS.values()
        if access.allows(tool.scope)
        and (tool.run is not continue_session or access.model is not None)
    ]
