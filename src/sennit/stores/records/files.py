"""Records of files and their versions.

A file has one path and one or more versions; the last one is its current content. Each version
records its source messages, the commit that wrote it, and its validity period, which ends where
that of the next version begins.

Changes to files of several owners are applied in one transaction, together with the end of the
commit they come from, if any: finishing a commit a second time changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import ConflictError, NotFoundError
from sennit.messages.codec import dumps, loads
from sennit.stores.records.commits import (
    ArchiveRecord,
    CommitRecord,
    CommitsRecord,
    PutCommit,
    UseRecord,
)
from sennit.stores.records.sessions import MessageRecord, Owner


class EvidenceRecord(msgspec.Struct, frozen=True, gc=False):
    """A source message of a version."""

    owner: Owner
    """The owner of its session."""
    session: UUID
    message: UUID


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version of a file."""

    number: int
    """1, 2, 3 in its file."""
    written: int
    """The time of writing, in microseconds like all times here."""
    valid_from: int
    body: bytes
    valid_to: int | None = None
    """The end of its validity, if known."""
    commit: UUID | None = None
    """The commit that wrote it; None if a person did."""
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    evidence: tuple[EvidenceRecord, ...] = ()
    """In the order of owner, session and message."""
    replaced: int | None = None
    """The start of the next version's validity; set by the store."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file with its latest version."""

    owner: Owner
    id: UUID
    path: str
    """Such as "memories/profile.md"; a folder that was made on purpose ends with a slash."""
    category: str | None
    created: int
    active: int
    """The number of uses that commits have counted."""
    latest: VersionRecord


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file with all its versions, the oldest first."""

    file: FileRecord
    versions: list[VersionRecord]


class PutFile(msgspec.Struct, frozen=True, gc=False):
    """Write the next version of a file, or its first one.

    The version's number must be the next one. Raises ConflictError if another version has that
    number, or another file has the path. Repeating an identical version changes nothing.
    """

    owner: Owner
    id: UUID
    path: str
    category: str | None
    version: VersionRecord


class MoveFile(msgspec.Struct, frozen=True, gc=False):
    """Move a file to another path; raises ConflictError if that is taken."""

    owner: Owner
    id: UUID
    path: str
    category: str | None


class RemoveFile(msgspec.Struct, frozen=True, gc=False):
    """Erase a file with all its versions, if it exists."""

    owner: Owner
    id: UUID


class RemoveVersions(msgspec.Struct, frozen=True, gc=False):
    """Erase versions of a file; the last remaining one becomes current, and none erases it."""

    owner: Owner
    id: UUID
    numbers: tuple[int, ...]


class CountUses(msgspec.Struct, frozen=True, gc=False):
    """Add to a file's use count, if it exists."""

    owner: Owner
    path: str
    times: int


FileChange: TypeAlias = PutFile | MoveFile | RemoveFile | RemoveVersions | CountUses


def owners_of(change: FileChange) -> Iterator[Owner]:
    """Yield the owners that a change refers to: of the file, and of its source sessions."""
    yield change.owner
    if isinstance(change, PutFile):
        yield from (evidence.owner for evidence in change.version.evidence)


class EndCommit(msgspec.Struct, frozen=True, gc=False):
    """The end of a commit, written together with file changes."""

    owner: Owner
    session: UUID
    change: PutCommit


class Derived(msgspec.Struct, frozen=True, gc=False):
    """A version of a file, found by its source messages or its commit."""

    owner: Owner
    file: UUID
    number: int


class FileStore(Protocol):
    """The part of a store that keeps files and commits."""

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Apply file changes and the end of their commit, all in one transaction.

        Raises ConflictError if a file or the commit was changed by someone else, NotFoundError if
        the commit or a file to move does not exist. Repeating changes that end a commit is a no-op.
        """
        ...

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at that path, or None."""
        ...

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """Return the files whose path starts with `under`, sorted by path."""
        ...

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Return the existing files with these ids, in that order."""
        ...

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first; none if the file does not exist."""
        ...

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Return the versions of any files derived from this owner's sessions, or from one."""
        ...

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Return the versions of the user's files that a commit wrote."""
        ...

    def owned_by(self, user: Owner) -> list[Owner]:
        """Return the user and those of their agents and resources that have data."""
        ...

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """Return the commits and uses of a session; raises NotFoundError if it does not exist."""
        ...

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number, in order; raises as `commits` does.

        Cheap if there is no such commit, however much is archived.
        """
        ...

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Return the existing commits with these numbers, in order, without their entries."""
        ...

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """Return the uses that commit number `commit` counts; with None, the uncounted ones."""
        ...

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """Return a commit and its session id, or None."""
        ...

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Return commits, as session and commit, with a JSON string that starts with a text."""
        ...

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase uses and events in an owner's sessions that contain one of these JSON strings."""
        ...

    def erase_uses(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase uses in an owner's sessions that contain one of these JSON strings."""
        ...

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings, old to new, in the uses and events of an owner's sessions."""
        ...

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Return the existing messages with these ids, in that order."""
        ...

    def scrub(self) -> None:
        """Remove all traces of erased data from the store's own files."""
        ...

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """Return the open commits as session and commit, oldest first."""
        ...

    def has_workers(self) -> bool:
        """Return whether workers finish open commits, so that clients need not."""
        ...


def in_order(evidence: Iterable[EvidenceRecord]) -> tuple[EvidenceRecord, ...]:
    """Return the evidence without duplicates, sorted by owner, session and message."""
    by_key = {(*item.owner.key, item.session.int, item.message.int): item for item in evidence}
    return tuple(by_key[key] for key in sorted(by_key))


def as_stored(version: VersionRecord) -> VersionRecord:
    """Return a version as a store returns it while it is the latest."""
    info: dict[str, Any] = loads(dumps(version.info)) if version.info else {}
    return replace(version, info=info, evidence=in_order(version.evidence), replaced=None)


def derived_order(version: Derived) -> tuple[str, str, str, str, UUID, int]:
    """Return the sort key of derived versions."""
    return *version.owner.key, version.file, version.number


def is_repeated(
    change: PutFile, latest: int, versions: Callable[[], Iterable[VersionRecord]]
) -> bool:
    """Return whether a version was written before, which is a retry after a lost acknowledgement.

    Raises ConflictError unless it was, or has the number after `latest`.
    """
    version = as_stored(change.version)
    if version.number == latest + 1:
        return False
    if version.number > latest or version not in map(as_stored, versions()):
        raise other_version(change.path, version.number)
    return True


def other_version(path: str, number: int) -> ConflictError:
    """Return the error for a version number that is taken or not the next one."""
    return ConflictError(
        f"{path!r} was changed by another writer: version {number} is not the next one. Read it "
        f"again and retry."
    )


def path_taken(path: str) -> ConflictError:
    """Return the error for a path that another file has."""
    return ConflictError(f"There is another file at {path!r}.")


def no_file(file: UUID) -> NotFoundError:
    """Return the error for a file that does not exist."""
    return NotFoundError(f"There is no file {file} here; it may have been removed.")
