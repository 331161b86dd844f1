"""Files of all owners in PostgreSQL, inside one transaction.

Changes first lock the rows of the owners, in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.messages.codec import dumps, loads
from sennit.stores.postgres import file_statements as sql
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
    in_order,
    no_file,
    other_version,
    path_taken,
)
from sennit.stores.records.sessions import Owner

if TYPE_CHECKING:
    import psycopg

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class FileReader:
    """Reads files inside one snapshot; `number` returns an owner's number, or 0."""

    def __init__(self, connection: _Connection, number: Callable[[Owner], int]) -> None:
        self._connection, self._number = connection, number

    def _rows(self, statement: Any, *values: Any) -> list[tuple[Any, ...]]:
        # Binary, because the text format sends a body as twice as many hexadecimal digits.
        return self._connection.execute(statement, values, binary=True).fetchall()

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at a path, or None."""
        files = self._files(owner, sql.FIND_FILE, path)
        return files[0] if files else None

    def by_id(self, owner: Owner, file: UUID) -> FileRecord | None:
        """Return the file with that id, or None."""
        files = self.by_ids(owner, [file])
        return files[0] if files else None

    def by_ids(self, owner: Owner, ids: list[UUID]) -> list[FileRecord]:
        """Return the files with these ids, in that order, without missing ones."""
        return self._files(owner, sql.FILES_BY_ID, ids, ids)

    def under(self, owner: Owner, path: str) -> list[FileRecord]:
        """Return the files whose path starts with `path`."""
        return self._files(owner, sql.LIST_FILES, path)

    def _files(self, owner: Owner, statement: Any, *keys: object) -> list[FileRecord]:
        number = self._number(owner)
        return self.files(owner, number, self._rows(statement, number, *keys))

    def files(self, owner: Owner, number: int, rows: Sequence[Any]) -> list[FileRecord]:
        """Return the files of these rows, each with the version joined to its row."""
        latest = self._versions(number, [row[6:] for row in rows])
        return [_file(owner, row, version) for row, version in zip(rows, latest, strict=True)]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first."""
        number = self._number(owner)
        return self._versions(number, self._rows(sql.VERSIONS, number, file))

    def all(self, owner: Owner) -> list[StoredFile]:
        """Return all files with all their versions."""
        return [StoredFile(file, self.versions(owner, file.id)) for file in self.under(owner, "")]

    def derived(self, home: Owner, session: UUID | None, message: UUID | None) -> list[Derived]:
        """Return the versions derived from an owner's sessions."""
        values = {"home": self._number(home), "session": session, "message": message}
        return _derived(self._connection.execute(sql.DERIVED, values))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Return the versions of the user's files that a commit wrote."""
        values = {"tenant": user.tenant, "user": user.name, "commit": commit}
        return _derived(self._connection.execute(sql.WRITTEN_BY, values))

    def _versions(self, owner: int, rows: Sequence[Any]) -> list[VersionRecord]:
        evidence: dict[int, list[EvidenceRecord]] = {row[0]: [] for row in rows}
        if rows:
            for version, *home, session, message in self._rows(sql.EVIDENCE, owner, list(evidence)):
                evidence[version].append(EvidenceRecord(Owner(*home), session, message))
        return [_version(row, evidence[row[0]]) for row in rows]


def _file(owner: Owner, row: Any, latest: VersionRecord) -> FileRecord:
    _, uid, path, category, created, active, *_ = row
    return FileRecord(owner, uid, path, category, created, active, latest)


def _version(row: Any, evidence: list[EvidenceRecord]) -> VersionRecord:
    _, number, written, valid_from, body, valid_to, commit, info, replaced = row
    return VersionRecord(
        number=number,
        written=written,
        valid_from=valid_from,
        body=body,
        valid_to=valid_to,
        commit=commit,
        info=loads(info),
        evidence=in_order(evidence),
        replaced=replaced,
    )


class FileWriter(FileReader):
    """Changes files inside one transaction that holds the locks of their owners."""

    def apply(self, changes: Sequence[FileChange]) -> None:
        """Apply changes; raises ConflictError, NotFoundError."""
        owners = sorted({self._number(change.owner) for change in changes})
        self._connection.execute(sql.LOCK_OWNERS, (owners,))
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
                    self._connection.execute(sql.COUNT_USES, (change.times, *key))

    def _put(self, change: PutFile) -> None:
        version, stored = as_stored(change.version), self.by_id(change.owner, change.id)
        if version.number <= (stored.latest.number if stored else 0):
            self._refuse_other(change, version)
            return
        if version.number != (stored.latest.number + 1 if stored else 1):
            raise other_version(change.path, version.number)
        if stored is None or stored.path != change.path:
            self._refuse_taken(change.owner, change.id, change.path)
        owner, run = self._number(change.owner), self._connection.execute
        if stored is None:
            values = (change.id, change.path, change.category, version.written)
            file = self._rows(sql.ADD_FILE, owner, *values)[0][0]
        else:
            file = self._file_number(owner, change.id)
            run(sql.MOVE_FILE, (change.path, change.category, owner, change.id))
        self._add_version(owner, file, version)
        run(sql.SET_LATEST, (version.number, change.category, owner, file))
        run(sql.SET_REPLACED, (owner, file))

    def _refuse_other(self, change: PutFile, version: VersionRecord) -> None:
        """Raise ConflictError unless exactly this version is stored: then the write is a retry."""
        versions = {each.number: each for each in self.versions(change.owner, change.id)}
        stored = versions.get(version.number)
        if stored is None or as_stored(stored) != version:
            raise other_version(change.path, version.number)

    def _refuse_taken(self, owner: Owner, file: UUID, path: str) -> None:
        rows = self._rows(sql.PATH_TAKEN, self._number(owner), path)
        if rows and rows[0][0] != file:
            raise path_taken(path)

    def _file_number(self, owner: int, file: UUID) -> int:
        return self._rows(sql.FILES_BY_ID, owner, [file], [file])[0][0]

    def _add_version(self, owner: int, file: int, version: VersionRecord) -> None:
        values = (version.number, version.written, version.valid_from, version.body)
        details = (version.valid_to, version.commit, dumps(version.info).decode())
        number = self._rows(sql.ADD_VERSION, owner, file, *values, *details)[0][0]
        if version.evidence:
            columns = (
                [self._number(evidence.owner) for evidence in version.evidence],
                [evidence.session for evidence in version.evidence],
                [evidence.message for evidence in version.evidence],
            )
            self._connection.execute(sql.ADD_EVIDENCE, (owner, number, *columns))

    def _move(self, change: MoveFile) -> None:
        if self.by_id(change.owner, change.id) is None:
            raise no_file(change.id)
        self._refuse_taken(change.owner, change.id, change.path)
        key = (self._number(change.owner), change.id)
        self._connection.execute(sql.MOVE_FILE, (change.path, change.category, *key))

    def _remove(self, change: RemoveFile) -> None:
        numbers = tuple(version.number for version in self.versions(change.owner, change.id))
        self._remove_versions(RemoveVersions(change.owner, change.id, numbers))

    def _remove_versions(self, change: RemoveVersions) -> None:
        owner, run = self._number(change.owner), self._connection.execute
        rows = self._rows(sql.VERSIONS, owner, change.id)
        removed = [row[0] for row in rows if row[1] in change.numbers]
        if not removed:
            return
        file = self._file_number(owner, change.id)
        run(sql.DELETE_EVIDENCE, (owner, removed))
        run(sql.DELETE_VERSIONS, (owner, removed))
        if len(removed) == len(rows):
            run(sql.DELETE_FILE, (owner, file))
        else:
            run(sql.FALL_BACK, (owner, file, owner, file))
            run(sql.SET_REPLACED, (owner, file))


def _derived(rows: Iterable[Any]) -> list[Derived]:
    versions = [Derived(Owner(*home), file, number) for *home, file, number in rows]
    return sorted(
        versions,
        key=lambda version: (*version.owner.key, version.file, version.number),
    )
