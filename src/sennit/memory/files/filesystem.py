"""The virtual file system: one tree over sessions, memories, skills and resources.

Everything has a `viking://` URI (see `uri`). Sessions are read-only here; files of the user, the
agent and the tenant can be changed, and all their versions are kept.
"""

from __future__ import annotations

import re
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice, pairwise
from os import PathLike
from typing import Final
from uuid import UUID

from sennit import cancellation
from sennit.errors import NotFoundError, ValidationError, short_repr
from sennit.memory.extraction.values import MAX_OVERVIEW_CHARS, abstract_of
from sennit.memory.files.disk_export import FolderImport, export_folder, import_folder
from sennit.memory.files.entry import FileEntry, view
from sennit.memory.files.session_files import SessionTree
from sennit.memory.files.stored_files import ABSTRACT_NAME, OVERVIEW_NAME, StoredTree
from sennit.memory.history.history import MemoryReader
from sennit.memory.scope import MemoryScope
from sennit.memory.uri import SCHEME, SCOPES, Uri
from sennit.messages.json_values import validate_text
from sennit.numbers import count
from sennit.paths import local_path, target_path
from sennit.sessions.async_method import async_method
from sennit.sessions.session import SessionCore

_BATCH_SIZE = 100  # entries that are read in one go for async callers
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A line that `grep` found."""

    uri: str
    """The file."""
    number: int
    """The line number, from 1."""
    line: str
    """The line that matches."""


class FileSystem:
    """The virtual file system of one client."""

    def __init__(self, scope: MemoryScope, open_session: Callable[[UUID], SessionCore]) -> None:
        self._stored = StoredTree(scope)
        self._memories = MemoryReader(scope)
        self._sessions = SessionTree(scope, open_session)

    def _tree(self, uri: Uri) -> StoredTree | SessionTree:
        return self._sessions if uri.scope == "session" else self._stored

    def stat(self, uri: str) -> FileEntry:
        """Return the entry at a URI; raises NotFoundError."""
        parsed = Uri.parse(uri)
        try:
            return self._tree(parsed).entry(parsed)
        except NotFoundError:
            if (text := self._folder_view(parsed)) is None:
                raise
            return view(parsed, text)

    def ls(self, uri: str = SCHEME) -> list[FileEntry]:
        """List a folder; of a file, the file itself. Raises NotFoundError."""
        if uri == SCHEME:
            return [self.stat(SCHEME + scope) for scope in SCOPES]
        parsed = Uri.parse(uri)
        entry = self._tree(parsed).entry(parsed)
        return self._tree(parsed).children(parsed) if entry.is_folder else [entry]

    def walk(self, uri: str = SCHEME) -> Iterator[FileEntry]:
        """Yield all below a folder, each folder before its contents; of a file, the file."""
        for entry, _ in self._walk(uri):
            yield entry

    async def awalk(self, uri: str = SCHEME) -> AsyncIterator[FileEntry]:
        """`walk` for async callers."""
        entries = self.walk(uri)
        while batch := await to_thread(list, islice(entries, _BATCH_SIZE)):
            for entry in batch:
                yield entry

    def _walk(self, uri: str) -> Iterator[tuple[FileEntry, Callable[[], str]]]:
        """Walk with a function that reads each file; stops when the caller is cancelled."""
        for item in self._below(uri):
            cancellation.raise_if_cancelled()
            yield item

    def _below(self, uri: str) -> Iterator[tuple[FileEntry, Callable[[], str]]]:
        parsed = None if uri == SCHEME else Uri.parse(uri)
        if parsed is not None and parsed.scope == "session" and parsed.names:
            yield from self._sessions.walk(parsed)
            return
        for entry in self.ls(uri):
            yield entry, partial(self.read, entry.uri)
            if entry.is_folder:
                yield from self._below(entry.uri)

    def tree(self, uri: str = SCHEME, *, depth: int | None = None) -> str:
        """Draw a folder and everything below it, `depth` folders deep, or all."""
        if depth is not None:
            count(depth, "depth", minimum=0)
        top = SCHEME if uri == SCHEME else str(Uri.parse(uri))
        return "\n".join([f"{top}/" if top != SCHEME else top, *self._branches(top, "", depth)])

    def _branches(self, uri: str, indent: str, depth: int | None) -> Iterator[str]:
        if depth == 0:
            return
        entries = self.ls(uri)
        for number, entry in enumerate(entries, 1):
            cancellation.raise_if_cancelled()
            last = number == len(entries)
            yield f"{indent}{'└── ' if last else '├── '}{entry.name}{'/' * entry.is_folder}"
            if entry.is_folder:
                inside = indent + ("    " if last else "│   ")
                yield from self._branches(entry.uri, inside, None if depth is None else depth - 1)

    def read(self, uri: str) -> str:
        """Return the text of a file; raises NotFoundError."""
        parsed = Uri.parse(uri)
        try:
            return self._tree(parsed).text(parsed)
        except NotFoundError:
            if (text := self._folder_view(parsed)) is None:
                raise
            return text

    def abstract(self, uri: str) -> str:
        """Return a file or folder in one line of at most 256 characters."""
        return self._layer(uri, ABSTRACT_NAME, lambda entry: entry.abstract, abstract_of)

    def overview(self, uri: str) -> str:
        """Return a file or folder in at most 4000 characters."""
        return self._layer(
            uri, OVERVIEW_NAME, lambda entry: self.read(entry.uri), lambda content: content
        )[:MAX_OVERVIEW_CHARS]

    def _layer(
        self, uri: str, name: str, read: Callable[[FileEntry], str], shorten: Callable[[str], str]
    ) -> str:
        entry = self.stat(uri)
        if not entry.is_folder:
            return read(entry)
        parsed = Uri.parse(f"{entry.uri}/{name}")
        try:
            return self._tree(parsed).text(parsed).strip()
        except NotFoundError:
            return shorten(self._contents(parsed.parent))

    def _contents(self, folder: Uri) -> str:
        if folder.scope != "session":
            return self._stored.contents(folder)
        inside = (child for child in self.ls(str(folder)) if not child.name.startswith("."))
        return "\n".join(f"- {child.name}: {child.abstract}".rstrip(": ") for child in inside)

    def _folder_view(self, uri: Uri) -> str | None:
        """Return the text of a folder's `.abstract.md` or `.overview.md`, unless that is stored."""
        if uri.scope == "session" or not uri.names or not self._stored.is_folder(uri.parent):
            return None
        views = {ABSTRACT_NAME: self.abstract, OVERVIEW_NAME: self.overview}
        return views[uri.name](str(uri.parent)) if uri.name in views else None

    def write(self, uri: str, text: str) -> FileEntry:
        """Write a file; its earlier text stays in its history."""
        return self._stored.write(Uri.parse(uri), text)

    def mkdir(self, uri: str) -> FileEntry:
        """Create a folder; an existing one is left unchanged."""
        return self._stored.mkdir(Uri.parse(uri))

    def rm(self, uri: str, *, recursive: bool = False) -> int:
        """Erase a file with its history, or a folder with its contents; return the number of files.

        Raises NotFoundError, and ExistsError for a folder that is not empty unless `recursive`.
        """
        return self._stored.rm(Uri.parse(uri), recursive=recursive)

    def mv(self, source: str, target: str) -> FileEntry:
        """Move a file or folder with its history; raises ExistsError if the target exists."""
        return self._stored.mv(Uri.parse(source), Uri.parse(target))

    def glob(self, pattern: str, uri: str | None = None) -> list[str]:
        """Return the URIs that match: `*` and `?` within a name, `**` over any number of folders.

        The pattern is a whole URI, or relative to the folder `uri`.
        """
        pattern = validate_text(pattern, "A pattern")
        full_pattern = pattern if uri is None else f"{Uri.parse(uri)}/{pattern.lstrip('/')}"
        if not full_pattern.startswith(SCHEME):
            raise ValidationError(f"A pattern begins with {SCHEME!r}, got {short_repr(pattern)}.")
        # Several "**" in a row mean the same as one.
        pieces = full_pattern[len(SCHEME) :].split("/")
        names = [
            piece for piece, following in pairwise([*pieces, ""]) if not piece == following == "**"
        ]
        fixed = next((n for n, name in enumerate(names) if _WILDCARD.search(name)), len(names))
        if fixed == len(names):
            return [self.stat(full_pattern).uri] if self.exists(full_pattern) else []
        top = SCHEME + "/".join(names[:fixed])
        if fixed and not self.exists(top):
            return []
        return [
            entry.uri
            for entry in self.walk(top)
            if _matches(entry.uri[len(SCHEME) :].split("/")[fixed:], names[fixed:])
        ]

    def exists(self, uri: str) -> bool:
        """Return whether a file or folder exists."""
        try:
            self.stat(uri)
        except NotFoundError:
            return False
        return True

    def grep(
        self, pattern: str, uri: str = SCHEME, *, ignore_case: bool = False
    ) -> list[GrepMatch]:
        """Return the lines below a folder, or of a file, that match a regular expression."""
        try:
            regex = re.compile(
                validate_text(pattern, "A pattern"), re.IGNORECASE if ignore_case else 0
            )
        except re.error as error:
            raise ValidationError(
                f"{short_repr(pattern)} is not a valid regular expression: {error}."
            ) from None
        return [
            GrepMatch(entry.uri, number, line)
            for entry, read in self.texts(uri)
            for number, line in enumerate(read().splitlines(), 1)
            if regex.search(line)
        ]

    def texts(self, uri: str = SCHEME) -> Iterator[tuple[FileEntry, Callable[[], str]]]:
        """Yield the files below a folder, or a single file, each with a function that reads it."""
        return ((entry, read) for entry, read in self._walk(uri) if not entry.is_folder)

    def export(
        self,
        path: str | PathLike[str],
        uri: str = SCHEME,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Write all below a folder, or a file, to a new folder on disk; return the number of files.

        Stored Markdown begins with front matter about its evidence. `progress` is called with the
        number so far. Raises ExistsError if the path exists, NotFoundError if its folder does not.
        """
        return export_folder(target_path(path), uri, self._walk(uri), self._memories.get, progress)

    def import_folder(self, path: str | PathLike[str], uri: str = SCHEME) -> FolderImport:
        """Import a folder on disk below a URI; an edited file becomes a new version.

        Repeating it changes nothing. Raises ArchiveError for links, special files and invalid
        names; nothing is imported then.
        """
        return import_folder(self._stored, local_path(path), uri)

    aexport: Final = async_method(export)
    aimport_folder: Final = async_method(import_folder)
    astat: Final = async_method(stat)
    als: Final = async_method(ls)
    atree: Final = async_method(tree)
    aread: Final = async_method(read)
    aabstract: Final = async_method(abstract)
    aoverview: Final = async_method(overview)
    awrite: Final = async_method(write)
    amkdir: Final = async_method(mkdir)
    arm: Final = async_method(rm)
    amv: Final = async_method(mv)
    aglob: Final = async_method(glob)
    agrep: Final = async_method(grep)
    aexists: Final = async_method(exists)


def _matches(names: list[str], pattern: list[str]) -> bool:
    """Return whether names match a pattern, in at most one step per name and piece of the
    pattern.
    """
    positions = _skip_double_stars({0}, pattern)  # in the pattern, after the names so far
    for name in names:
        next_positions: set[int] = set()
        for position in positions:
            if position == len(pattern):
                continue
            if pattern[position] == "**":
                next_positions.add(position)
            elif fnmatchcase(name, pattern[position]):
                next_positions.add(position + 1)
        positions = _skip_double_stars(next_positions, pattern)
    return len(pattern) in positions


def _skip_double_stars(positions: set[int], pattern: list[str]) -> set[int]:
    """Return the positions and those after each "**", which may match no folder at all."""
    return positions | {
        position + 1 for position in positions if pattern[position : position + 1] == ["**"]
    }
