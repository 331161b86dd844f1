"""Export of virtual files to a folder on disk, and import from it.

Exported Markdown begins with front matter: its URI, validity and evidence. An import takes the text
and the validity; the rest of the front matter is only for reading. The URI of a file follows from
its path in the folder, never from its front matter.

Files on disk are not trusted: links and special files are refused, names are validated like any
URI, and everything is checked before anything is written, in one transaction. Nothing is deleted: a
file that is missing in the folder stays.
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
from sennit.atomic_file import atomic_write
from sennit.errors import ArchiveError, CodecError, ValidationError, listed, short_repr
from sennit.memory.files.entry import FileEntry
from sennit.memory.files.stored_files import MAX_TEXT_BYTES, StoredTree
from sennit.memory.history.history import MemoryRecord, iso
from sennit.memory.uri import SCHEME, SCOPES, Uri
from sennit.messages.codec import dumps, loads
from sennit.paths import make_private_folder, nearest_path, private_opener
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.files import PutFile

_FENCE = "---"
_MAX_FILES = 100_000


@dataclass(frozen=True, slots=True)
class FolderImport:
    """The numbers of imported files."""

    created: int
    """The number of new files."""
    updated: int
    """The number of files that got a new version."""
    unchanged: int
    """The number of files that were the same."""
    skipped: int
    """Files of sessions, which are read-only, and of a shared space that is not open here."""


def export_folder(
    path: Path,
    uri: str,
    files: Iterator[tuple[FileEntry, Callable[[], str]]],
    get_memory: Callable[[str], MemoryRecord],
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write files at or below a URI to a new folder; return their number. Raises ExistsError."""
    prefix_length = 0 if uri == SCHEME else len(Uri.parse(uri).names) + 1
    count = 0
    with atomic_write(path) as part:
        make_private_folder(part)
        for entry, read_text in files:
            names = entry.uri[len(SCHEME) :].split("/")[prefix_length:]
            target = part.joinpath(*names or [entry.name])  # for a single file, its own name
            if entry.is_folder:
                _make_folders(part, target)
                continue
            _make_folders(part, target.parent)
            is_stored = entry.version > 0 and entry.name.endswith(".md")
            head = front_matter(get_memory(entry.uri)) if is_stored else ""
            with open(target, "w", encoding="utf-8", newline="", opener=private_opener) as file:
                file.write(head + read_text())
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
        "evidence": [f"{source.session}/{source.message}" for source in memory.evidence],
    }
    lines = [f"{name}: {dumps(value).decode()}" for name, value in fields.items()]
    return "\n".join([_FENCE, *lines, _FENCE, ""])


@dataclass(frozen=True, slots=True)
class _DiskFile:
    """A file on disk."""

    uri: Uri
    text: str
    fields: dict[str, Any]


def import_folder(tree: StoredTree, path: Path, uri: str) -> FolderImport:
    """Import a folder as files below a URI; raises ArchiveError, and then imports nothing.

    An edited file becomes a new version; the old ones stay.
    """
    skipped, by_uri = 0, dict[Uri, _DiskFile]()
    for file, names in _readable_files(path):
        target = _target_uri(uri, names, file)
        if target.scope == "session" or (target.is_shared and not tree.scope.shares):
            skipped += 1
        elif target in by_uri:
            raise ArchiveError(
                f"{str(file)!r} and another file would both be imported as {str(target)!r}."
            )
        else:
            by_uri[target] = _read_file(file, target)
    disk_files = list(by_uri.values())

    def import_once() -> FolderImport:
        puts = [
            put for disk_file in disk_files if (put := _next_version(tree, disk_file)) is not None
        ]
        tree.scope.store.change_files(puts)
        new = sum(put.version.number == 1 for put in puts)
        return FolderImport(new, len(puts) - new, len(disk_files) - len(puts), skipped)

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
    """Yield all files of a folder; raises ArchiveError for a link or special file."""
    if path.is_symlink() or not path.is_dir():
        raise ArchiveError(f"There is no folder at {str(path)!r}.{nearest_path(path)}")
    count = 0
    pending: list[tuple[Path, tuple[str, ...]]] = [(path, ())]
    while pending:
        folder, above = pending.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                names = (*above, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), names))
                    continue
                if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    raise ArchiveError(f"{'/'.join(names)!r} is a link or not a regular file.")
                count += 1
                if count > _MAX_FILES:
                    raise ArchiveError(f"The folder contains more than {_MAX_FILES:,} files.")
                yield Path(entry.path), names


def _target_uri(uri: str, names: tuple[str, ...], file: Path) -> Uri:
    base = SCHEME if uri == SCHEME else f"{Uri.parse(uri)}/"
    if uri == SCHEME and names[0] not in SCOPES:
        raise ArchiveError(
            f"{str(file)!r} is in none of the folders {listed(SCOPES)}; pass the URI that the "
            f"folder corresponds to, such as 'viking://user/memories'."
        )
    try:
        return Uri.parse(base + "/".join(names))
    except ValidationError as error:
        raise ArchiveError(f"{str(file)!r} cannot be imported. {error}") from error


def _read_file(file: Path, uri: Uri) -> _DiskFile:
    if file.stat().st_size > 2 * MAX_TEXT_BYTES:
        raise ArchiveError(f"{str(file)!r} is too large: at most {MAX_TEXT_BYTES:,} bytes of text.")
    try:
        # O_NOFOLLOW refuses a link that has replaced the file since the check.
        # O_BINARY keeps Windows from converting line ends and stopping at Ctrl-Z.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(file, flags)
        with os.fdopen(handle, encoding="utf-8-sig", newline="") as stream:
            content = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{str(file)!r} cannot be read as text ({error}).") from error
    fields, text = _split_front_matter(content.replace("\r\n", "\n"))
    if "\0" in text or len(text.encode()) > MAX_TEXT_BYTES:
        raise ArchiveError(
            f"{str(file)!r} contains NUL, or more than {MAX_TEXT_BYTES:,} bytes of text."
        )
    return _DiskFile(uri, text, fields)


def _split_front_matter(content: str) -> tuple[dict[str, Any], str]:
    """Return our front matter and the text; any other front matter is text."""
    if not content.startswith(f"{_FENCE}\n"):
        return {}, content
    head, fence, rest = content[len(_FENCE) + 1 :].partition(f"\n{_FENCE}\n")
    pairs = (line.partition(":") for line in head.splitlines())
    fields = {name.strip(): _parse_value(value.strip()) for name, colon, value in pairs if colon}
    return (fields, rest) if fence and "uri" in fields else ({}, content)


def _parse_value(raw: str) -> Any:
    try:
        return loads(raw)
    except CodecError:
        return raw  # written by hand, without quotes


def _next_version(tree: StoredTree, disk_file: _DiskFile) -> PutFile | None:
    """Return the next version of a file, or None if it is as on disk."""
    file = tree.scope.find(disk_file.uri)
    valid_from, valid_to = _parse_date(disk_file, "valid_from"), _parse_date(disk_file, "valid_to")
    if file is None:
        tree.check_writable(disk_file.uri)
    put = tree.next_version(disk_file.uri, file, disk_file.text, "imported")
    version = put.version
    if valid_from is not None:
        version = replace(version, valid_from=valid_from)
    if "valid_to" in disk_file.fields:
        version = replace(version, valid_to=valid_to)
    if file is not None:
        last = file.latest
        same = disk_file.text.rstrip() == last.body.decode().replace("\r\n", "\n").rstrip()
        if same and (version.valid_from, version.valid_to) == (last.valid_from, last.valid_to):
            return None
    return PutFile(put.owner, put.id, put.path, put.category, version)


def _parse_date(disk_file: _DiskFile, name: str) -> int | None:
    raw = disk_file.fields.get(name)
    if raw is None:
        return None
    try:
        moment = datetime.fromisoformat(str(raw))
    except ValueError:
        raise ArchiveError(
            f"{str(disk_file.uri)!r} has an invalid date in {name}: {short_repr(raw)}."
        ) from None
    return clock.from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
