"""Records of files and their versions.

A file has one path and one or more versions. The last one is what it says now; older ones say what
it said before. Each knows from which messages it came, which commit wrote it, and when it held
true. A version that is replaced ends where the next one begins to hold.

Changes of several owners are made together, all or none, and together with the commit they come
from, if they come from one: whoever finishes a commit a second time is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """A message that something came from."""

    owner: Owner
    """Whose session it stands in."""
    session: UUID
    message: UUID


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A version of a file."""

    number: int
    """1, 2, 3 in its file."""
    written: int
    """When it was learnt, in microseconds like all times here."""
    valid_from: int
    body: bytes
    valid_to: int | None = None
    """When it ceased to be true, if that is known."""
    commit: UUID | None = None
    """The commit that wrote it; None if a person did."""
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    evidence: tuple[EvidenceRecord, ...] = ()
    """In the order of owner, session and message."""
    replaced: int | None = None
    """When the next version begins to hold; set by the store."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it is now."""

    owner: Owner
    id: UUID
    path: str
    """Such as "memories/profile.md"; a folder that was made on purpose ends with a slash."""
    category: str | None
    created: int
    active: int
    """How often it was used, as far as commits have counted."""
    latest: VersionRecord


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file with all its versions, the oldest first."""

    file: FileRecord
    versions: list[VersionRecord]


class PutFile(msgspec.Struct, frozen=True, gc=False):
    """Write the next version of a file, or its first one.

    A version's number is that of the one it follows and 1. ConflictError if another one has that
    number, or another file has the path. One that is there just so is left alone.
    """

    owner: Owner
    id: UUID
    path: str
    category: str | None
    version: VersionRecord


class MoveFile(msgspec.Struct, frozen=True, gc=False):
    """Give a file another path; ConflictError if that is taken."""

    owner: Owner
    id: UUID
    path: str
    category: str | None


class RemoveFile(msgspec.Struct, frozen=True, gc=False):
    """Erase a file with all its versions; one that is gone already is no error."""

    owner: Owner
    id: UUID


class RemoveVersions(msgspec.Struct, frozen=True, gc=False):
    """Erase versions of a file; the last one left is what it says, and without any it is gone."""

    owner: Owner
    id: UUID
    numbers: tuple[int, ...]


class CountUses(msgspec.Struct, frozen=True, gc=False):
    """Count that a file was used; one that is not there is not counted."""

    owner: Owner
    path: str
    times: int


FileChange: TypeAlias = PutFile | MoveFile | RemoveFile | RemoveVersions | CountUses


class EndCommit(msgspec.Struct, frozen=True, gc=False):
    """The end of a commit, written together with file changes."""

    owner: Owner
    session: UUID
    change: PutCommit


class Derived(msgspec.Struct, frozen=True, gc=False):
    """A version of a file that came from certain messages, or was written by a certain commit."""

    owner: Owner
    file: UUID
    number: int


class FileStore(Protocol):
    """The part of a store that keeps files and commits."""

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Make changes of files, all or none, and with them that of the commit they come from.

        Raises ConflictError if a file or the commit was changed by someone else, NotFoundError if
        the commit or a file to move is not there. Repeating changes that end a commit is a no-op.
        """
        ...

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at that path, if there is one."""
        ...

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """The files whose path begins so, in the order of their paths."""
        ...

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Files by their ids, in that order; those that are there."""
        ...

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file, the oldest first; none if there is no such file."""
        ...

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Versions, of any owner's files, that came from this owner's sessions, or one of them."""
        ...

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Versions, of the user's own files, that a commit has written."""
        ...

    def owned_by(self, user: Owner) -> list[Owner]:
        """The user, and each of their own agents and resources of which anything was written."""
        ...

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """The commits and uses of a session; raises NotFoundError if that is not there."""
        ...

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number, in order; raises as `commits` does.

        Where there is no such commit this costs next to nothing, however much is archived.
        """
        ...

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Commits by their numbers, in order, without their entries; those that are there."""
        ...

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """The uses that a commit counts, by its number; with None those that none counts yet."""
        ...

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """A commit and its session, if the owner has it."""
        ...

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Commits, as session and commit, whose body has a JSON string that begins with one."""
        ...

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase the uses and events in an owner's sessions that have one as a JSON string."""
        ...

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings in the uses and events of an owner's sessions, old by new."""
        ...

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Messages of a session by their ids, in that order; those that are there."""
        ...

    def scrub(self) -> None:
        """Leave no trace of what was erased in files that the store itself looks after."""
        ...

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """The commits that are not finished, as session and commit, the oldest first."""
        ...

    def is_served(self) -> bool:
        """Return whether workers are there that finish open commits, so that nobody else need."""
        ...


def in_order(evidence: Iterable[EvidenceRecord]) -> tuple[EvidenceRecord, ...]:
    """Each once, in the order in which stores give them."""
    found = {(*one.owner.key, one.session, one.message): one for one in evidence}
    return tuple(found[key] for key in sorted(found))


def as_kept(version: VersionRecord) -> VersionRecord:
    """A version as a store gives it back before anything follows it."""
    info: dict[str, Any] = loads(dumps(version.info)) if version.info else {}
    return replace(version, info=info, evidence=in_order(version.evidence), replaced=None)


def other_version(path: str, number: int) -> ConflictError:
    """The error for a version whose number another one has, or that does not follow the last."""
    return ConflictError(
        f"{path!r} was changed by another writer: version {number} is not the next one. Read it "
        f"again and retry."
    )


def path_taken(path: str) -> ConflictError:
    """The error for a path that another file has."""
    return ConflictError(f"There is another file at {path!r}.")


def no_file(file: UUID) -> NotFoundError:
    """The error for a file that is not there."""
    return NotFoundError(f"There is no file {file} here; it may have been removed.")
