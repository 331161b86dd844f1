"""Files of all owners in SQLite, inside one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps, loads
from sennit.stores.base import damaged
from sennit.stores.checksums import row_checksum
from sennit.stores.records.files import (
    CountUses,
    Derived,
    EvidenceRecord,
    FileChange,
    FileRecord,
    MoveFile,
    PutFile,
    RemoveFile,
    RemoveVersions,
    StoredFile,
    VersionRecord,
    as_stored,
    no_file,
    other_version,
    path_taken,
)
from sennit.stores.records.sessions import Owner
from sennit.stores.search import tokenizer
from sennit.stores.sqlite import file_statements as sql
from sennit.stores.sqlite.search_statements import ADD_WORDS
from sennit.stores.sqlite.secure_delete import drop_words


class FileReader:
    """Reads files inside one snapshot; `number` returns an owner's number, or 0."""

    def __init__(self, connection: sqlite3.Connection, number: Callable[[Owner], int]) -> None:
        self._connection = connection
        self._run, self._many = connection.execute, connection.executemany
        self._number = number

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at a path, or None."""
        return self._find_one(owner, sql.FIND_FILE, path)

    def by_id(self, owner: Owner, file: UUID) -> FileRecord | None:
        """Return the file with that id, or None."""
        return self._find_one(owner, sql.FILE_BY_ID, file.bytes)

    def _find_one(self, owner: Owner, statement: str, key: object) -> FileRecord | None:
        number = self._number(owner)
        row = self._run(statement, (number, key)).fetchone()
        return None if row is None else self.file(owner, number, row)

    def under(self, owner: Owner, path: str) -> list[FileRecord]:
        """Return the files whose path starts with `path`."""
        number = self._number(owner)
        rows = self._run(sql.LIST_FILES, (number, path, path)).fetchall()
        return [self.file(owner, number, row) for row in rows]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first."""
        number = self._number(owner)
        rows = self._run(sql.VERSIONS, (number, file.bytes)).fetchall()
        return [self._version(number, row) for row in rows]

    def all(self, owner: Owner) -> list[StoredFile]:
        """Return all files with all their versions."""
        return [StoredFile(file, self.versions(owner, file.id)) for file in self.under(owner, "")]

    def derived(self, home: Owner, session: UUID | None, message: UUID | None) -> list[Derived]:
        """Return the versions derived from an owner's sessions."""
        values = {
            "home": self._number(home),
            "session": None if session is None else session.bytes,
            "message": None if message is None else message.bytes,
        }
        return _derived(self._run(sql.DERIVED, values))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Return the versions of the user's files that a commit wrote."""
        values = {"tenant": user.tenant, "user": user.name, "commit": commit.bytes}
        return _derived(self._run(sql.WRITTEN_BY, values))

    def file(self, owner: Owner, number: int, row: Any) -> FileRecord:
        """Return the file of a row, with the version joined to it."""
        _, uid, path, category, created, active, *version = row
        latest = self._version(number, version)
        return FileRecord(owner, id_from_bytes(uid), path, category, created, active, latest)

    def _version(self, owner: int, row: Any) -> VersionRecord:
        row_number, *covered, replaced, checksum = row
        if row_checksum(*covered) != checksum:
            raise damaged(f"version {row_number} of a file does not match its checksum")
        number, written, valid_from, body, valid_to, commit, info = covered
        return VersionRecord(
            number=number,
            written=written,
            valid_from=valid_from,
            body=body,
            valid_to=valid_to,
            commit=None if commit is None else id_from_bytes(commit),
            info=loads(info),
            evidence=tuple(
                EvidenceRecord(Owner(*home), id_from_bytes(session), id_from_bytes(message))
                for *home, session, message in self._run(sql.EVIDENCE, (owner, row_number))
            ),
            replaced=replaced,
        )


class FileWriter(FileReader):
    """Changes files inside one transaction; `number` assigns an owner's number if needed."""

    def apply(self, changes: Sequence[FileChange]) -> None:
        """Apply changes; raises ConflictError, NotFoundError."""
        for change in changes:
            match change:
                case PutFile():
                    self._put(change)
                case MoveFile():
                    self._move(change)
                case RemoveFile():
                    self._remove(change)
                case RemoveVersions():
                    self._remove_versions(change)
                case CountUses():
                    key = (self._number(change.owner), change.path)
                    self._run(sql.COUNT_USES, (change.times, *key))

    def _put(self, change: PutFile) -> None:
        version, stored = as_stored(change.version), self.by_id(change.owner, change.id)
        if version.number <= (stored.latest.number if stored else 0):
            self._refuse_other(change, version)
            return
        if version.number != (stored.latest.number + 1 if stored else 1):
            raise other_version(change.path, version.number)
        if stored is None or stored.path != change.path:
            self._refuse_taken(change.owner, change.id, change.path)
        owner = self._number(change.owner)
        if stored is None:
            values = (change.id.bytes, change.path, change.category, version.written)
            file = self._run(sql.ADD_FILE, (owner, *values)).fetchone()[0]
        else:
            file = self._file_number(owner, change.id)
            self._run(sql.MOVE_FILE, (change.path, change.category, owner, change.id.bytes))
        self._add_version(owner, file, version)
        self._run(sql.SET_LATEST, (version.number, change.category, owner, file))
        self._run(sql.SET_REPLACED, (owner, file))

    def _refuse_other(self, change: PutFile, version: VersionRecord) -> None:
        """Raise ConflictError unless exactly this version is stored: then the write is a retry."""
        versions = {each.number: each for each in self.versions(change.owner, change.id)}
        stored = versions.get(version.number)
        if stored is None or as_stored(stored) != version:
            raise other_version(change.path, version.number)

    def _refuse_taken(self, owner: Owner, file: UUID, path: str) -> None:
        row = self._run(sql.PATH_TAKEN, (self._number(owner), path)).fetchone()
        if row is not None and row[0] != file.bytes:
            raise path_taken(path)

    def _file_number(self, owner: int, file: UUID) -> int:
        return self._run(sql.FILE_BY_ID, (owner, file.bytes)).fetchone()[0]

    def _add_version(self, owner: int, file: int, version: VersionRecord) -> None:
        commit = None if version.commit is None else version.commit.bytes
        values = (version.number, version.written, version.valid_from, version.body)
        details = (version.valid_to, commit, dumps(version.info).decode())
        number = self._run(sql.ADD_VERSION, (owner, file, *values, *details)).fetchone()[0]
        self._run(ADD_WORDS, file_words(number, version.body))
        rows = [
            (
                owner,
                number,
                self._number(evidence.owner),
                evidence.session.bytes,
                evidence.message.bytes,
            )
            for evidence in version.evidence
        ]
        self._many(sql.ADD_EVIDENCE, rows)

    def _move(self, change: MoveFile) -> None:
        if self.by_id(change.owner, change.id) is None:
            raise no_file(change.id)
        self._refuse_taken(change.owner, change.id, change.path)
        key = (self._number(change.owner), change.id.bytes)
        self._run(sql.MOVE_FILE, (change.path, change.category, *key))

    def _remove(self, change: RemoveFile) -> None:
        numbers = tuple(version.number for version in self.versions(change.owner, change.id))
        self._remove_versions(RemoveVersions(change.owner, change.id, numbers))

    def _remove_versions(self, change: RemoveVersions) -> None:
        owner = self._number(change.owner)
        rows = self._run(sql.VERSIONS, (owner, change.id.bytes)).fetchall()
        removed = {row[0]: row[4] for row in rows if row[1] in change.numbers}
        if not removed:
            return
        file = self._file_number(owner, change.id)
        for number, body in removed.items():
            drop_words(self._connection, [file_words(number, body)])
            self._run(sql.DELETE_EVIDENCE, (owner, number))
            self._run(sql.DELETE_VERSION, (owner, number))
        if len(removed) == len(rows):
            self._run(sql.DELETE_FILE, (owner, file))
        else:
            self._run(sql.FALL_BACK, (owner, file, owner, file))
            self._run(sql.SET_REPLACED, (owner, file))

    def copy(self, stored: StoredFile) -> None:
        """Copy a file of another store with all its versions."""
        file = stored.file
        owner = self._number(file.owner)
        values = (file.id.bytes, file.path, file.category, file.created)
        number = self._run(sql.ADD_FILE, (owner, *values)).fetchone()[0]
        for version in stored.versions:
            self._add_version(owner, number, version)
        self._run(sql.SET_LATEST, (file.latest.number, file.category, owner, number))
        self._run(sql.SET_REPLACED, (owner, number))
        self._run(sql.COUNT_USES, (file.active, owner, file.path))


def file_words(version: int, body: bytes) -> tuple[int, str]:
    """Return a version's row in the full-text index."""
    return -version, tokenizer.space_letters(body.decode(errors="replace"))


def _derived(rows: Iterable[Any]) -> list[Derived]:
    return [Derived(Owner(*home), id_from_bytes(file), number) for *home, file, number in rows]
