"""The virtual file system over HTTP."""

from __future__ import annotations

import re
from asyncio import to_thread
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from sennit.errors import ValidationError, short_repr
from sennit.memory.files.entry import FileEntry
from sennit.memory.files.filesystem import FileSystem
from sennit.memory.uri import SCHEME, Uri
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.settings import Limits

routes: Final = Routes()

_PATH = "/api/files"
_BLOCK_CHARS = 65_536  # characters per regex call, which holds the GIL


class GrepLine(ResponseModel):
    """A matching line; a long one is cut around the match."""

    uri: str
    number: int
    line: str


class FilesResult(ResponseModel, omit_defaults=True):
    """The result of a file operation: one of these fields."""

    entries: list[FileEntry] | None = None
    entry: FileEntry | None = None
    text: str | None = None
    uris: list[str] | None = None
    lines: list[GrepLine] | None = None
    next: str | None = None
    """For grep: the cursor to send as `after`; absent on the last page."""


class FilesQuery(RequestModel):
    """A file operation and its URI."""

    uri: str = SCHEME
    op: Literal["ls", "tree", "read", "abstract", "overview", "stat", "glob", "grep"] = "ls"
    pattern: Annotated[str, Meta(max_length=500)] | None = None
    """A shell pattern for glob, literal text for grep."""
    after: Annotated[str, Meta(max_length=5000)] | None = None
    """For grep: the `next` of the previous response."""


class WriteQuery(RequestModel):
    """The URI to write to."""

    uri: str


class WriteFileRequest(RequestModel):
    """The text to write."""

    text: str


class RemoveQuery(RequestModel):
    """The URI to erase, and whether a folder is erased with its contents."""

    uri: str
    recursive: bool = False


class Removed(ResponseModel):
    """The number of erased files."""

    removed: int


@routes.get(_PATH, scope="read")
async def look(request: HTTPRequest, query: FilesQuery) -> FilesResult:
    """List, read or search sessions, memories, skills and resources as files."""
    fs, limits = request.caller.client.fs, request.limits
    if query.op in ("tree", "glob", "grep"):  # recursive, so possibly long
        return await request.server.work.run(request.caller, _read, fs, query, limits)
    return await to_thread(_read, fs, query, limits)


def _read(fs: FileSystem, query: FilesQuery, limits: Limits) -> FilesResult:
    uri = query.uri
    match query.op:
        case "ls":
            return FilesResult(entries=fs.ls(uri))
        case "stat":
            return FilesResult(entry=fs.stat(uri))
        case "glob":
            below = None if uri == SCHEME else uri
            return FilesResult(uris=fs.glob(_pattern(query), below))
        case "grep":
            return _grep(fs, query, limits)
        case "tree" | "read" | "abstract" | "overview" as op:
            read: Any = getattr(fs, op)
            return FilesResult(text=read(uri))


def _grep(fs: FileSystem, query: FilesQuery, limits: Limits) -> FilesResult:
    """Return the lines that contain the pattern, up to the limits; `next` continues after them.

    The pattern is literal text: a slow regular expression would block the whole server.
    """
    pattern = re.compile(re.escape(_pattern(query)), re.IGNORECASE)
    lines: list[GrepLine] = []
    read = 0
    for uri, skip, text in _texts_from(fs, query):
        read += len(text)
        for number, line in enumerate(islice(_lines(text), skip, None), skip + 1):
            if (hit := _search(pattern, line, len(_pattern(query)))) is not None:
                lines.append(
                    GrepLine(uri=uri, number=number, line=_cut(line, hit, limits.line_chars))
                )
                if len(lines) == limits.lines:
                    return FilesResult(lines=lines, next=f"{number}@{uri}")
        if read > limits.answer_bytes:
            return FilesResult(lines=lines, next=f"{len(text)}@{uri}")
    return FilesResult(lines=lines)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, split in blocks, since splitting all of it would hold the GIL."""
    pending: list[str] = []
    at = 0
    while at < len(text):
        end = at + _BLOCK_CHARS
        end += text[end - 1 : end + 1] == "\r\n"
        for part in text[at:end].splitlines(keepends=True):
            (line,) = part.splitlines()
            pending.append(line)
            if len(line) < len(part):
                yield "".join(pending)
                pending.clear()
        at = end
    if pending:
        yield "".join(pending)


def _search(pattern: re.Pattern[str], line: str, length: int) -> re.Match[str] | None:
    """Return the first match in a line, searched in overlapping blocks."""
    for start in range(0, len(line), _BLOCK_CHARS):
        if (hit := pattern.search(line, start, start + _BLOCK_CHARS + length)) is not None:
            return hit
    return None


def _texts_from(fs: FileSystem, query: FilesQuery) -> Iterator[tuple[str, int, str]]:
    """Yield the files to search in order: URI, number of lines to skip, text."""
    number, _, last = (query.after or "0@").partition("@")
    if not number.isdecimal() or len(number) > 18:
        raise ValidationError(
            f"after must be the 'next' of an earlier response, got {short_repr(query.after)}."
        )
    reached = not last
    for entry, read in fs.texts(query.uri):
        if reached or entry.uri == last:
            yield entry.uri, 0 if reached else int(number), read()
            reached = True
    if not reached:
        raise ValidationError(f"The file {short_repr(last)} is gone; search again without 'after'.")


def _cut(line: str, hit: re.Match[str], max_chars: int) -> str:
    """Cut a line to `max_chars` around a match."""
    start = max(0, min(hit.start() - max_chars // 4, len(line) - max_chars))
    return line[start : start + max_chars]


def _pattern(query: FilesQuery) -> str:
    if not query.pattern:
        raise ValidationError(f"{query.op!r} needs a 'pattern'.")
    return query.pattern


def _is_forgetting(uri: Uri) -> bool:
    """Return whether removing a URI erases memories, which needs the scope "admin"."""
    return uri.scope in ("user", "agent") and uri.names[:1] in ((), ("memories",))


@routes.put(_PATH, scope="write")
async def write(request: HTTPRequest, query: WriteQuery, body: WriteFileRequest) -> FileEntry:
    """Write a file; every version is kept; admin for what is shared."""
    if Uri.parse(query.uri).is_shared:
        request.caller.require("admin")
    return await request.caller.client.fs.awrite(query.uri, body.text)


@routes.delete(_PATH, scope="write")
async def remove(request: HTTPRequest, query: RemoveQuery) -> Removed:
    """Erase a file with its history; admin for memories and what is shared."""
    uri = Uri.parse(query.uri)
    if uri.is_shared or _is_forgetting(uri):
        request.caller.require("admin")
    count = await request.caller.client.fs.arm(query.uri, recursive=query.recursive)
    return Removed(removed=count)
