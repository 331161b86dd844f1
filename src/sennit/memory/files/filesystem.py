"""The virtual file system: one tree over sessions, memories, skills and resources.

Everything has a `viking://` address (see `uri`). What a session holds can be read here, and changed
in the session; what is kept for the user, the agent and the tenant can be changed here, and every
version of it is kept.
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
from uuid import UUID

from sennit import cancellation
from sennit.errors import NotFoundError, ValidationError, shown
from sennit.memory.extraction.values import MAX_OVERVIEW_CHARS, abstract_of
from sennit.memory.files.disk_export import FolderImport, export_folder, import_folder
from sennit.memory.files.entry import FileEntry
from sennit.memory.files.session_files import SessionTree
from sennit.memory.files.stored_files import StoredTree
from sennit.memory.history.history import MemoryReader
from sennit.memory.scope import MemoryScope
from sennit.memory.uri import SCHEME, SCOPES, Uri
from sennit.messages.json_values import text
from sennit.paths import local_path
from sennit.sessions.async_method import async_method
from sennit.sessions.session import SessionCore

_AT_ONCE = 100  # entries that are read in one go for async callers
_ABSTRACT, _OVERVIEW = ".abstract.md", ".overview.md"
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class GrepMatch:
    """A line that `grep` found."""

    uri: str
    number: int
    """Of the line, from 1."""
    line: str


class FileSystem:
    """The virtual file system of one client."""

    def __init__(self, realm: MemoryScope, open_session: Callable[[UUID], SessionCore]) -> None:
        self._stored = StoredTree(realm)
        self._memories = MemoryReader(realm)
        self._sessions = SessionTree(realm, open_session)

    def _tree(self, uri: Uri) -> StoredTree | SessionTree:
        return self._sessions if uri.scope == "session" else self._stored

    def stat(self, uri: str) -> FileEntry:
        """Return the entry at a URI; raises NotFoundError."""
        place = Uri.parse(uri)
        return self._tree(place).entry(place)

    def ls(self, uri: str = SCHEME) -> list[FileEntry]:
        """List a folder; of a file, the file itself. Raises NotFoundError."""
        if uri == SCHEME:
            return [self.stat(SCHEME + scope) for scope in SCOPES]
        place = Uri.parse(uri)
        here = self._tree(place).entry(place)
        return self._tree(place).children(place) if here.is_folder else [here]

    def walk(self, uri: str = SCHEME) -> Iterator[FileEntry]:
        """All below a folder, each folder before what is in it; of a file, the file itself."""
        for one, _ in self._walk(uri):
            yield one

    async def awalk(self, uri: str = SCHEME) -> AsyncIterator[FileEntry]:
        """`walk` for async callers."""
        entries = self.walk(uri)
        while some := await to_thread(list, islice(entries, _AT_ONCE)):
            for one in some:
                yield one

    def _walk(self, uri: str) -> Iterator[tuple[FileEntry, Callable[[], str]]]:
        """The same, with what each file says; ends where whoever asked for it cancels it."""
        for found in self._below(uri):
            cancellation.check()
            yield found

    def _below(self, uri: str) -> Iterator[tuple[FileEntry, Callable[[], str]]]:
        place = None if uri == SCHEME else Uri.parse(uri)
        if place is not None and place.scope == "session" and place.names:
            yield from self._sessions.walk(place)
            return
        for one in self.ls(uri):
            yield one, partial(self.read, one.uri)
            if one.is_folder:
                yield from self._below(one.uri)

    def tree(self, uri: str = SCHEME, *, depth: int | None = None) -> str:
        """A folder and all below it, as a picture; `depth` folders deep, None for all."""
        if depth is not None and (not isinstance(depth, int) or depth < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValidationError(f"depth must be a number of folders, got {shown(depth)}.")
        top = SCHEME if uri == SCHEME else str(Uri.parse(uri))
        return "\n".join([f"{top}/" if top != SCHEME else top, *self._branches(top, "", depth)])

    def _branches(self, uri: str, indent: str, depth: int | None) -> Iterator[str]:
        if depth == 0:
            return
        entries = self.ls(uri)
        for place, one in enumerate(entries, 1):
            cancellation.check()
            last = place == len(entries)
            yield f"{indent}{'└── ' if last else '├── '}{one.name}{'/' if one.is_folder else ''}"
            if one.is_folder:
                inside = indent + ("    " if last else "│   ")
                yield from self._branches(one.uri, inside, None if depth is None else depth - 1)

    def read(self, uri: str) -> str:
        """Return the text of a file; raises NotFoundError."""
        place = Uri.parse(uri)
        return self._tree(place).text(place)

    def abstract(self, uri: str) -> str:
        """A file or folder in one line of at most 256 characters."""
        return self._layer(uri, _ABSTRACT, lambda one: one.abstract, abstract_of)

    def overview(self, uri: str) -> str:
        """A file or folder in at most 4000 characters."""
        return self._layer(uri, _OVERVIEW, lambda one: self.read(one.uri), lambda said: said)[
            :MAX_OVERVIEW_CHARS
        ]

    def _layer(
        self, uri: str, name: str, of: Callable[[FileEntry], str], joined: Callable[[str], str]
    ) -> str:
        here = self.stat(uri)
        if not here.is_folder:
            return of(here)
        try:
            return self.read(f"{here.uri}/{name}").strip()
        except NotFoundError:
            inside = (one for one in self.ls(here.uri) if not one.name.startswith("."))
            return joined("\n".join(f"- {one.name}: {one.abstract}".rstrip(": ") for one in inside))

    def write(self, uri: str, text: str) -> FileEntry:
        """Let a file say something; what it said before stays in its history."""
        return self._stored.write(Uri.parse(uri), text)

    def mkdir(self, uri: str) -> FileEntry:
        """Make a folder; one that is there already is left as it is."""
        return self._stored.mkdir(Uri.parse(uri))

    def rm(self, uri: str, *, recursive: bool = False) -> int:
        """Erase a file with its history, or a folder with all in it; gives how many files went.

        Raises NotFoundError, and ExistsError for a folder that is not empty unless `recursive`.
        """
        return self._stored.rm(Uri.parse(uri), recursive=recursive)

    def mv(self, source: str, target: str) -> FileEntry:
        """Give a file or folder another place; its history goes with it. ExistsError."""
        return self._stored.mv(Uri.parse(source), Uri.parse(target))

    def glob(self, pattern: str, uri: str | None = None) -> list[str]:
        """The addresses that fit: `*` and `?` within a name, `**` over any number of folders.

        The pattern is a whole address, or counts from the folder `uri`.
        """
        pattern = text(pattern, "A pattern")
        whole = pattern if uri is None else f"{Uri.parse(uri)}/{pattern.lstrip('/')}"
        if not whole.startswith(SCHEME):
            raise ValidationError(f"A pattern begins with {SCHEME!r}, got {shown(pattern)}.")
        # One "**" says as much as several in a row.
        pieces = whole[len(SCHEME) :].split("/")
        names = [one for one, after in pairwise([*pieces, ""]) if not one == after == "**"]
        fixed = next((n for n, name in enumerate(names) if _MAGIC.search(name)), len(names))
        if fixed == len(names):
            return [self.stat(whole).uri] if self.exists(whole) else []
        top = SCHEME + "/".join(names[:fixed])
        if fixed and not self.exists(top):
            return []
        return [
            one.uri
            for one in self.walk(top)
            if _fits(one.uri[len(SCHEME) :].split("/")[fixed:], names[fixed:])
        ]

    def exists(self, uri: str) -> bool:
        """Return whether something is there."""
        try:
            self.stat(uri)
        except NotFoundError:
            return False
        return True

    def grep(
        self, pattern: str, uri: str = SCHEME, *, ignore_case: bool = False
    ) -> list[GrepMatch]:
        """The lines below a folder, or of a file, in which a regular expression is found."""
        try:
            wanted = re.compile(text(pattern, "A pattern"), re.IGNORECASE if ignore_case else 0)
        except re.error as error:
            raise ValidationError(
                f"{shown(pattern)} is not a valid regular expression: {error}."
            ) from None
        return [
            GrepMatch(one.uri, number, line)
            for one, say in self.texts(uri)
            for number, line in enumerate(say().splitlines(), 1)
            if wanted.search(line)
        ]

    def texts(self, uri: str = SCHEME) -> Iterator[tuple[FileEntry, Callable[[], str]]]:
        """The files below a folder, or a single file, each with a function that reads it."""
        return ((one, say) for one, say in self._walk(uri) if not one.is_folder)

    def export(
        self,
        path: str | PathLike[str],
        uri: str = SCHEME,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Write all below a folder, or a file, to a new folder on the disk; gives how many files.

        Kept Markdown begins with a front matter that tells what it rests on. `progress` is told the
        number so far. Raises ExistsError if the path is taken.
        """
        return export_folder(local_path(path), uri, self._walk(uri), self._memories.get, progress)

    def import_(self, path: str | PathLike[str], uri: str = SCHEME) -> FolderImport:
        """Take in a folder from the disk, below an address; what was edited is a new version.

        Doing it again changes nothing. Raises ArchiveError for links, strange files and names that
        are no addresses; nothing is imported then.
        """
        return import_folder(self._stored, local_path(path), uri)

    aexport = async_method(export)
    aimport_ = async_method(import_)
    astat = async_method(stat)
    als = async_method(ls)
    atree = async_method(tree)
    aread = async_method(read)
    aabstract = async_method(abstract)
    aoverview = async_method(overview)
    awrite = async_method(write)
    amkdir = async_method(mkdir)
    arm = async_method(rm)
    amv = async_method(mv)
    aglob = async_method(glob)
    agrep = async_method(grep)
    aexists = async_method(exists)


def _fits(names: list[str], pattern: list[str]) -> bool:
    """Return whether names fit a pattern; takes at most a step for each name and piece of the
    pattern.
    """
    reached = _past_stars({0}, pattern)  # in the pattern, after the names so far
    for name in names:
        further: set[int] = set()
        for place in reached:
            if place == len(pattern):
                continue
            if pattern[place] == "**":
                further.add(place)
            elif fnmatchcase(name, pattern[place]):
                further.add(place + 1)
        reached = _past_stars(further, pattern)
    return len(pattern) in reached


def _past_stars(reached: set[int], pattern: list[str]) -> set[int]:
    """The same places, and those behind each "**", which may stand for no folder at all."""
    return reached | {one + 1 for one in reached if pattern[one : one + 1] == ["**"]}
