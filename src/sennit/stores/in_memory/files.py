"""Files of the in-memory store.

A change works on copies, and only when all have been made do the copies take the place of what was
there; so one that is refused leaves nothing behind.
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
    as_kept,
    no_file,
    other_version,
    path_taken,
)
from sennit.stores.records.sessions import Owner


class FileLog:
    """The files of all owners."""

    def __init__(self) -> None:
        self._owners: dict[Owner, dict[UUID, StoredFile]] = {}

    def of(self, owner: Owner) -> list[StoredFile]:
        """An owner's files, in the order of their paths."""
        return sorted(self._owners.get(owner, {}).values(), key=lambda kept: kept.file.path)

    def owners(self) -> list[Owner]:
        """Those who have files."""
        return list(self._owners)

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at a path."""
        return next((one.file for one in self.of(owner) if one.file.path == path), None)

    def by_id(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Files by their ids."""
        files = self._owners.get(owner, {})
        return [files[uid].file for uid in ids if uid in files]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file."""
        kept = self._owners.get(owner, {}).get(file)
        return [] if kept is None else list(kept.versions)

    def derived(self, wanted: Callable[[Owner, VersionRecord], bool]) -> list[Derived]:
        """The versions that are wanted, of all files."""
        found = [
            Derived(owner, uid, version.number)
            for owner, files in self._owners.items()
            for uid, kept in files.items()
            for version in kept.versions
            if wanted(owner, version)
        ]
        return sorted(found, key=_place)

    def after(self, changes: Sequence[FileChange]) -> FileLog:
        """The files as they are after changes; raises ConflictError, NotFoundError."""
        log = FileLog()
        log._owners = {owner: dict(files) for owner, files in self._owners.items()}
        for change in changes:
            log._make(change, log._owners.setdefault(change.owner, {}))
        return log

    def _make(self, change: FileChange, files: dict[UUID, StoredFile]) -> None:
        match change:
            case PutFile():
                files[change.id] = _put(change, files)
            case MoveFile():
                files[change.id] = _moved(change, files)
            case RemoveFile():
                files.pop(change.id, None)
            case RemoveVersions():
                self._remove_versions(change, files)
            case CountUses():
                for uid, kept in files.items():
                    if kept.file.path == change.path:
                        used = replace(kept.file, active=kept.file.active + change.times)
                        files[uid] = StoredFile(used, kept.versions)

    def _remove_versions(self, change: RemoveVersions, files: dict[UUID, StoredFile]) -> None:
        kept = files.get(change.id)
        if kept is None:
            return
        left = [one for one in kept.versions if one.number not in change.numbers]
        if left:
            files[change.id] = _kept(kept.file, left)
        else:
            del files[change.id]


def _put(change: PutFile, files: dict[UUID, StoredFile]) -> StoredFile:
    version, kept = as_kept(change.version), files.get(change.id)
    had = [] if kept is None else kept.versions
    last = had[-1].number if had else 0
    if kept is not None and any(as_kept(one) == version for one in had):
        return kept  # written before, and its acknowledgement lost
    if version.number != last + 1:
        raise other_version(change.path, version.number)
    _refuse_taken(change.id, change.path, files)
    if kept is None:
        place = (change.path, change.category, version.written)
        file = FileRecord(change.owner, change.id, *place, 0, version)
    else:
        file = replace(kept.file, path=change.path, category=change.category)
    return _kept(file, [*had, version])


def _moved(change: MoveFile, files: dict[UUID, StoredFile]) -> StoredFile:
    kept = files.get(change.id)
    if kept is None:
        raise no_file(change.id)
    _refuse_taken(change.id, change.path, files)
    moved = replace(kept.file, path=change.path, category=change.category)
    return StoredFile(moved, kept.versions)


def _refuse_taken(file: UUID, path: str, files: dict[UUID, StoredFile]) -> None:
    if any(kept.file.path == path and uid != file for uid, kept in files.items()):
        raise path_taken(path)


def _kept(file: FileRecord, versions: list[VersionRecord]) -> StoredFile:
    """A file with these versions, each of which ends where the next one begins."""
    ended = list(_ended(versions))
    return StoredFile(replace(file, latest=ended[-1]), ended)


def _ended(versions: list[VersionRecord]) -> Iterator[VersionRecord]:
    for one, following in pairwise(versions):
        yield replace(one, replaced=following.valid_from)
    yield replace(versions[-1], replaced=None)


def _place(one: Derived) -> tuple[str, str, str, str, UUID, int]:
    return *one.owner.key, one.file, one.number
