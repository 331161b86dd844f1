"""Export and import of virtual files to a real folder.

Exported Markdown begins with a front matter that tells where it came from, since when it holds and
what it rests on. Importing takes the text, and since when and until when it holds; all else in the
front matter is for reading. A file's place is its path in the folder, never what it says of itself.

What is read from a disk is not trusted: links and special files are refused, names are addresses
like any other, and everything is checked before anything is written, which is then one step.
Nothing is deleted: a file that is missing in the folder stays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sennit import clock
from sennit.atomic_file import whole
from sennit.errors import ArchiveError, CodecError, ValidationError, shown
from sennit.memory.files.entry import FileEntry
from sennit.memory.files.stored_files import MAX_TEXT_BYTES, StoredTree
from sennit.memory.history.history import MemoryRecord, iso
from sennit.memory.uri import SCHEME, SCOPES, Uri
from sennit.messages.codec import dumps, loads
from sennit.paths import make_private_folder, private_opener
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.files import PutFile

_FENCE = "---"
_MAX_FILES = 100_000


@dataclass(frozen=True, slots=True)
class FolderImport:
    """The result of an import: files found, and files that were new."""

    created: int
    updated: int
    unchanged: int
    skipped: int
    """Files of sessions, which are changed in the session, and of a shared space not open here."""


def export_folder(
    path: Path,
    uri: str,
    files: Iterator[tuple[FileEntry, Callable[[], str]]],
    told: Callable[[str], MemoryRecord],
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write files at or below an address to a new folder; gives how many. Raises ExistsError."""
    skipped = 0 if uri == SCHEME else len(Uri.parse(uri).names) + 1
    count = 0
    with whole(path) as part:
        make_private_folder(part)
        for entry, say in files:
            names = entry.uri[len(SCHEME) :].split("/")[skipped:]
            place = part.joinpath(*names or [entry.name])  # of a file, the file itself
            if entry.is_folder:
                _make_folders(part, place)
                continue
            _make_folders(part, place.parent)
            kept = entry.version > 0 and entry.name.endswith(".md")
            head = front_matter(told(entry.uri)) if kept else ""
            with open(place, "w", encoding="utf-8", newline="", opener=private_opener) as file:
                file.write(head + say())
            count += 1
            if progress is not None:
                progress(count)
    return count


def _make_folders(top: Path, folder: Path) -> None:
    """Create the folders from `top` down to `folder`."""
    for name in [*reversed(folder.relative_to(top).parents), folder.relative_to(top)]:
        make_private_folder(top / name)


def front_matter(memory: MemoryRecord) -> str:
    """Return the front matter of an exported file."""
    fields = {
        "uri": memory.uri,
        "category": memory.category,
        "version": memory.version,
        "learnt_at": iso(memory.learnt_at),
        "valid_from": iso(memory.valid_from),
        "valid_to": iso(memory.valid_to),
        "active_count": memory.active_count,
        "commit": None if memory.commit_id is None else str(memory.commit_id),
        "evidence": [f"{one.session}/{one.message}" for one in memory.evidence],
    }
    lines = [f"{name}: {dumps(value).decode()}" for name, value in fields.items()]
    return "\n".join([_FENCE, *lines, _FENCE, ""])


@dataclass(frozen=True, slots=True)
class _Found:
    """A file as it is on the disk."""

    uri: Uri
    text: str
    fields: dict[str, Any]


def import_folder(tree: StoredTree, path: Path, uri: str) -> FolderImport:
    """Take in a folder, as files below an address; raises ArchiveError, and imports nothing then.

    What was edited becomes a new version, with the old ones kept.
    """
    skipped, read = 0, dict[Uri, _Found]()
    for file, names in _readable_files(path):
        place = _place(uri, names, file)
        if place.scope == "session" or (place.is_shared and not tree.realm.shares):
            skipped += 1
        elif place in read:
            raise ArchiveError(
                f"{str(file)!r} and another file would both be imported as {str(place)!r}."
            )
        else:
            read[place] = _read(file, place)
    found = list(read.values())

    def import_once() -> FolderImport:
        puts = [put for one in found if (put := _put(tree, one)) is not None]
        tree.realm.store.change_files(puts)
        new = sum(put.version.number == 1 for put in puts)
        return FolderImport(new, len(puts) - new, len(found) - len(puts), skipped)

    return retry_on_conflict(import_once, "the same files")


def _readable_files(path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    try:
        yield from _files(path)
    except OSError as error:
        raise ArchiveError(
            f"{str(path)!r} cannot be read ({error}); check its permissions, or choose another "
            f"folder."
        ) from error


def _files(path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """All files of a folder, none of them a link or anything strange."""
    if path.is_symlink() or not path.is_dir():
        raise ArchiveError(f"There is no folder at {str(path)!r}.")
    count = 0
    waiting: list[tuple[Path, tuple[str, ...]]] = [(path, ())]
    while waiting:
        folder, above = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                names = (*above, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), names))
                    continue
                if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    raise ArchiveError(f"{'/'.join(names)!r} is a link or not a regular file.")
                count += 1
                if count > _MAX_FILES:
                    raise ArchiveError(f"The folder contains more than {_MAX_FILES:,} files.")
                yield Path(entry.path), names


def _place(uri: str, names: tuple[str, ...], file: Path) -> Uri:
    base = SCHEME if uri == SCHEME else f"{Uri.parse(uri)}/"
    if uri == SCHEME and names[0] not in SCOPES:
        raise ArchiveError(
            f"{str(file)!r} is in none of the folders {list(SCOPES)}; pass the URI that the folder "
            f"corresponds to, such as 'viking://user/memories'."
        )
    try:
        return Uri.parse(base + "/".join(names))
    except ValidationError as error:
        raise ArchiveError(f"{str(file)!r} cannot be imported. {error}") from error


def _read(file: Path, uri: Uri) -> _Found:
    if file.stat().st_size > 2 * MAX_TEXT_BYTES:
        raise ArchiveError(f"{str(file)!r} is too large: at most {MAX_TEXT_BYTES:,} bytes of text.")
    try:
        # Opened so that a link put there since it was looked at is refused, not followed.
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(handle, encoding="utf-8-sig", newline="") as stream:
            said = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{str(file)!r} cannot be read as text ({error}).") from error
    fields, text = _parted(said.replace("\r\n", "\n"))
    if "\0" in text or len(text.encode()) > MAX_TEXT_BYTES:
        raise ArchiveError(
            f"{str(file)!r} contains NUL, or more than {MAX_TEXT_BYTES:,} bytes of text."
        )
    return _Found(uri, text, fields)


def _parted(said: str) -> tuple[dict[str, Any], str]:
    """Our front matter and the text; a front matter of others is text."""
    if not said.startswith(f"{_FENCE}\n"):
        return {}, said
    head, fence, rest = said[len(_FENCE) + 1 :].partition(f"\n{_FENCE}\n")
    fields = {name.strip(): _value(value.strip()) for name, value in _pairs(head)}
    return (fields, rest) if fence and "uri" in fields else ({}, said)


def _pairs(head: str) -> Iterator[tuple[str, str]]:
    for line in head.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            yield name, value


def _value(said: str) -> Any:
    try:
        return loads(said)
    except CodecError:
        return said  # as people write it, without quotes


def _put(tree: StoredTree, found: _Found) -> PutFile | None:
    """The next version of a file, if it is not as it is on the disk."""
    file = tree.realm.find(found.uri)
    since, until = _moment(found, "valid_from"), _moment(found, "valid_to")
    if file is None:
        tree.check_writable(found.uri)
    put = tree.next_version(found.uri, file, found.text, "imported")
    version = put.version
    if since is not None:
        version = replace(version, valid_from=since)
    if "valid_to" in found.fields:
        version = replace(version, valid_to=until)
    if file is None:
        return PutFile(put.owner, put.id, put.path, put.category, version)
    last = file.latest
    same = found.text.rstrip() == last.body.decode().replace("\r\n", "\n").rstrip()
    if same and (version.valid_from, version.valid_to) == (last.valid_from, last.valid_to):
        return None
    return PutFile(put.owner, put.id, put.path, put.category, version)


def _moment(found: _Found, name: str) -> int | None:
    said = found.fields.get(name)
    if said is None:
        return None
    try:
        moment = datetime.fromisoformat(str(said))
    except ValueError:
        raise ArchiveError(
            f"{str(found.uri)!r} has an invalid date in {name}: {shown(said)}."
        ) from None
    return clock.from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
