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
    as_kept,
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
    """Reads files inside one snapshot; `number` gives an owner's number, 0 for nobody's."""

    def __init__(self, connection: sqlite3.Connection, number: Callable[[Owner], int]) -> None:
        self._connection = connection
        self._run, self._many = connection.execute, connection.executemany
        self._number = number

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at a path."""
        return self._one(owner, sql.FIND_FILE, path)

    def by_id(self, owner: Owner, file: UUID) -> FileRecord | None:
        """The file with that id."""
        return self._one(owner, sql.FILE_BY_ID, file.bytes)

    def _one(self, owner: Owner, statement: str, key: object) -> FileRecord | None:
        number = self._number(owner)
        row = self._run(statement, (number, key)).fetchone()
        return None if row is None else self.file(owner, number, row)

    def under(self, owner: Owner, path: str) -> list[FileRecord]:
        """The files whose path begins so."""
        number = self._number(owner)
        rows = self._run(sql.LIST_FILES, (number, path, path)).fetchall()
        return [self.file(owner, number, row) for row in rows]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file."""
        number = self._number(owner)
        rows = self._run(sql.VERSIONS, (number, file.bytes)).fetchall()
        return [self._version(number, row) for row in rows]

    def all(self, owner: Owner) -> list[StoredFile]:
        """All files with all their versions."""
        return [StoredFile(file, self.versions(owner, file.id)) for file in self.under(owner, "")]

    def derived(self, home: Owner, session: UUID | None, message: UUID | None) -> list[Derived]:
        """Versions that came from the sessions of an owner."""
        named = {
            "home": self._number(home),
            "session": None if session is None else session.bytes,
            "message": None if message is None else message.bytes,
        }
        return _derived(self._run(sql.DERIVED, named))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Versions, of the user's own files, that a commit has written."""
        named = {"tenant": user.tenant, "user": user.name, "commit": commit.bytes}
        return _derived(self._run(sql.WRITTEN_BY, named))

    def file(self, owner: Owner, number: int, row: Any) -> FileRecord:
        """The file in a row, with the version that is in it too."""
        _, uid, path, category, created, active, *version = row
        latest = self._version(number, version)
        return FileRecord(owner, id_from_bytes(uid), path, category, created, active, latest)

    def _version(self, owner: int, row: Any) -> VersionRecord:
        no, *covered, replaced, checksum = row
        if row_checksum(*covered) != checksum:
            raise damaged(f"version {no} of a file does not match its checksum")
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
                for *home, session, message in self._run(sql.EVIDENCE, (owner, no))
            ),
            replaced=replaced,
        )


class FileWriter(FileReader):
    """Changes files inside one transaction; `number` makes an owner's number if there is none."""

    def apply(self, changes: Sequence[FileChange]) -> None:
        """Make changes; raises ConflictError, NotFoundError."""
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
        version, there = as_kept(change.version), self.by_id(change.owner, change.id)
        if version.number <= (there.latest.number if there else 0):
            self._refuse_other(change, version)
            return
        if version.number != (there.latest.number + 1 if there else 1):
            raise other_version(change.path, version.number)
        if there is None or there.path != change.path:
            self._refuse_taken(change.owner, change.id, change.path)
        owner = self._number(change.owner)
        if there is None:
            values = (change.id.bytes, change.path, change.category, version.written)
            file = self._run(sql.ADD_FILE, (owner, *values)).fetchone()[0]
        else:
            file = self._no(owner, change.id)
            self._run(sql.MOVE_FILE, (change.path, change.category, owner, change.id.bytes))
        self._add_version(owner, file, version)
        self._run(sql.SET_LATEST, (version.number, change.category, owner, file))
        self._run(sql.SET_REPLACED, (owner, file))

    def _refuse_other(self, change: PutFile, version: VersionRecord) -> None:
        """A version that is there just so was written before, its acknowledgement lost."""
        found = {one.number: one for one in self.versions(change.owner, change.id)}
        there = found.get(version.number)
        if there is None or as_kept(there) != version:
            raise other_version(change.path, version.number)

    def _refuse_taken(self, owner: Owner, file: UUID, path: str) -> None:
        row = self._run(sql.PATH_TAKEN, (self._number(owner), path)).fetchone()
        if row is not None and row[0] != file.bytes:
            raise path_taken(path)

    def _no(self, owner: int, file: UUID) -> int:
        return self._run(sql.FILE_BY_ID, (owner, file.bytes)).fetchone()[0]

    def _add_version(self, owner: int, file: int, version: VersionRecord) -> None:
        commit = None if version.commit is None else version.commit.bytes
        values = (version.number, version.written, version.valid_from, version.body)
        more = (version.valid_to, commit, dumps(version.info).decode())
        no = self._run(sql.ADD_VERSION, (owner, file, *values, *more)).fetchone()[0]
        self._run(ADD_WORDS, file_words(no, version.body))
        rows = [
            (owner, no, self._number(one.owner), one.session.bytes, one.message.bytes)
            for one in version.evidence
        ]
        self._many(sql.ADD_EVIDENCE, rows)

    def _move(self, change: MoveFile) -> None:
        if self.by_id(change.owner, change.id) is None:
            raise no_file(change.id)
        self._refuse_taken(change.owner, change.id, change.path)
        key = (self._number(change.owner), change.id.bytes)
        self._run(sql.MOVE_FILE, (change.path, change.category, *key))

    def _remove(self, change: RemoveFile) -> None:
        numbers = tuple(one.number for one in self.versions(change.owner, change.id))
        self._remove_versions(RemoveVersions(change.owner, change.id, numbers))

    def _remove_versions(self, change: RemoveVersions) -> None:
        owner = self._number(change.owner)
        rows = self._run(sql.VERSIONS, (owner, change.id.bytes)).fetchall()
        gone = {row[0]: row[4] for row in rows if row[1] in change.numbers}
        if not gone:
            return
        file = self._no(owner, change.id)
        for no, body in gone.items():
            drop_words(self._connection, [file_words(no, body)])
            self._run(sql.DELETE_EVIDENCE, (owner, no))
            self._run(sql.DELETE_VERSION, (owner, no))
        if len(gone) == len(rows):
            self._run(sql.DELETE_FILE, (owner, file))
        else:
            self._run(sql.FALL_BACK, (owner, file, owner, file))
            self._run(sql.SET_REPLACED, (owner, file))

    def copy(self, kept: StoredFile) -> None:
        """Take over a file of another store, with all its versions."""
        file = kept.file
        owner = self._number(file.owner)
        values = (file.id.bytes, file.path, file.category, file.created)
        no = self._run(sql.ADD_FILE, (owner, *values)).fetchone()[0]
        for version in kept.versions:
            self._add_version(owner, no, version)
        self._run(sql.SET_LATEST, (file.latest.number, file.category, owner, no))
        self._run(sql.SET_REPLACED, (owner, no))
        self._run(sql.COUNT_USES, (file.active, owner, file.path))


def file_words(version: int, body: bytes) -> tuple[int, str]:
    """A version's row in the index of words."""
    return -version, tokenizer.apart(body.decode(errors="replace"))


def _derived(rows: Iterable[Any]) -> list[Derived]:
    return [Derived(Owner(*home), id_from_bytes(file), number) for *home, file, number in rows]
