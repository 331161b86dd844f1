"""Directory entries of the virtual file system."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sennit import clock
from sennit.errors import NotFoundError
from sennit.memory.extraction.values import abstract_of
from sennit.memory.uri import Uri
from sennit.stores.records.files import FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file or folder of the virtual file system."""

    uri: str
    """The address."""
    name: str
    """The last part of the address."""
    is_folder: bool
    """Whether it is a folder."""
    size: int = 0
    """In bytes; 0 for a folder."""
    created_at: datetime | None = None
    """When it was created, if that is known."""
    updated_at: datetime | None = None
    """When it last changed, if that is known."""
    category: str | None = None
    """The category of a memory; None for any other file."""
    abstract: str = ""
    """One line about its contents."""
    version: int = 0
    """The number of versions it has had; 0 for a view."""
    active_count: int = 0
    """The number of times it was used."""


def folder(uri: Uri) -> FileEntry:
    """Return the entry of a folder."""
    return FileEntry(uri=str(uri), name=uri.name, is_folder=True)


def view(uri: Uri, text: str, moment: int | None = None) -> FileEntry:
    """Return the entry of a file that is generated when it is read."""
    at = None if moment is None else clock.to_datetime(moment)
    return FileEntry(
        uri=str(uri),
        name=uri.name,
        is_folder=False,
        size=len(text.encode()),
        created_at=at,
        updated_at=at,
        abstract=abstract_of(text),
    )


def stored(uri: Uri, file: FileRecord) -> FileEntry:
    """Return the entry of a stored file."""
    return FileEntry(
        uri=str(uri),
        name=uri.name,
        is_folder=False,
        size=len(file.latest.body),
        created_at=clock.to_datetime(file.created),
        updated_at=clock.to_datetime(file.latest.written),
        category=file.category,
        abstract=str(file.latest.info.get("abstract", "")),
        version=file.latest.number,
        active_count=file.active,
    )


def not_a_file(uri: Uri) -> NotFoundError:
    """Return the error for reading a folder."""
    return NotFoundError(f"{str(uri)!r} is a folder; list it with ls({str(uri)!r}).")


def nothing_at(uri: Uri) -> NotFoundError:
    """Return the error for a URI where nothing exists."""
    return NotFoundError(
        f"There is no file or folder at {str(uri)!r}; list its parent with ls({str(uri.parent)!r})."
    )
