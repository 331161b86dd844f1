"""Files of the in-memory store.

Changes are applied to a copy, which replaces the original when all succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from sennit.stores.records.files import (
    CountUses,
    Derived,
    FileChange,
    FileRecord,
    MoveFile,
    PutFile,
    RemoveFile,
    RemoveVersions,
    StoredFile,
    VersionRecord,
    as_stored,
    derived_order,
    is_repeated,
    no_file,
    path_taken,
)
from sennit.stores.records.sessions import Owner


class FileLog:
    """The files of all owners."""

    def __init__(self) -> None:
        self._owners: dict[Owner, dict[UUID, StoredFile]] = {}

    def of(self, owner: Owner) -> list[StoredFile]:
        """Return an owner's files, sorted by path."""
        return sorted(self._owners.get(owner, {}).values(), key=lambda stored: stored.file.path)

    def owners(self) -> list[Owner]:
        """Return the owners that have files."""
        return list(self._owners)

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at a path, or None."""
        return next((stored.file for stored in self.of(owner) if stored.file.path == path), None)

    def by_id(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Return the files with these ids, in that order, without missing ones."""
        files = self._owners.get(owner, {})
        return [files[uid].file for uid in ids if uid in files]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first."""
        stored = self._owners.get(owner, {}).get(file)
        return [] if stored is None else list(stored.versions)

    def derived(self, matches: Callable[[Owner, VersionRecord], bool]) -> list[Derived]:
        """Return the versions of all files for which `matches` returns true."""
        versions = [
            Derived(owner, uid, version.number)
            for owner, files in self._owners.items()
            for uid, stored in files.items()
            for version in stored.versions
            if matches(owner, version)
        ]
        return sorted(versions, key=derived_order)

    def after(self, changes: Sequence[FileChange]) -> FileLog:
        """Return a copy with changes applied; raises ConflictError, NotFoundError."""
        log = FileLog()
        log._owners = {owner: dict(files) for owner, files in self._owners.items()}
        for change in changes:
            log._apply(change, log._owners.setdefault(change.owner, {}))
        return log

    def _apply(self, change: FileChange, files: dict[UUID, StoredFile]) -> None:
        match change:
            case PutFile():
                files[change.id] = _put(change, files)
            case MoveFile():
                files[change.id] = _move(change, files)
            case RemoveFile():
                files.pop(change.id, None)
            case RemoveVersions():
                self._remove_versions(change, files)
            case CountUses():
                for uid, stored in files.items():
                    if stored.file.path == change.path:
                        used = replace(stored.file, active=stored.file.active + change.times)
                        files[uid] = StoredFile(used, stored.versions)

    def _remove_versions(self, change: RemoveVersions, files: dict[UUID, StoredFile]) -> None:
        stored = files.get(change.id)
        if stored is None:
            return
        remaining = [version for version in stored.versions if version.number not in change.numbers]
        if remaining:
            files[change.id] = _with_versions(stored.file, remaining)
        else:
            del files[change.id]


def _put(change: PutFile, files: dict[UUID, StoredFile]) -> StoredFile:
    version, stored = as_stored(change.version), files.get(change.id)
    versions = [] if stored is None else stored.versions
    last = versions[-1].number if versions else 0
    if is_repeated(change, last, lambda: versions) and stored is not None:
        return stored
    _refuse_taken(change.id, change.path, files)
    if stored is None:
        columns = (change.path, change.category, version.written)
        file = FileRecord(change.owner, change.id, *columns, 0, version)
    else:
        file = replace(stored.file, path=change.path, category=change.category)
    return _with_versions(file, [*versions, version])


def _move(change: MoveFile, files: dict[UUID, StoredFile]) -> StoredFile:
    stored = files.get(change.id)
    if stored is None:
        raise no_file(change.id)
    _refuse_taken(change.id, change.path, files)
    moved = replace(stored.file, path=change.path, category=change.category)
    return StoredFile(moved, stored.versions)


def _refuse_taken(file: UUID, path: str, files: dict[UUID, StoredFile]) -> None:
    if any(stored.file.path == path and uid != file for uid, stored in files.items()):
        raise path_taken(path)


def _with_versions(file: FileRecord, versions: list[VersionRecord]) -> StoredFile:
    """Return a file with these versions, each replaced when the next becomes valid."""
    dated = list(_set_replaced(versions))
    return StoredFile(replace(file, latest=dated[-1]), dated)


def _set_replaced(versions: list[VersionRecord]) -> Iterator[VersionRecord]:
    for version, following in pairwise(versions):
        yield replace(version, replaced=following.valid_from)
    yield replace(versions[-1], replaced=None)
