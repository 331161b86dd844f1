"""Files of all owners in an SQL store, inside one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from uuid import UUID

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
    derived_order,
    in_order,
    is_repeated,
    no_file,
    path_taken,
)
from sennit.stores.records.sessions import Owner
from sennit.stores.sql import statements as sql
from sennit.stores.sql.connection import Row, SqlConnection, Statement

_LAST_CHARACTER = "\U0010ffff"


class FileReader:
    """Reads files inside one snapshot; `number` returns an owner's number, or 0."""

    def __init__(self, connection: SqlConnection, number: Callable[[Owner], int]) -> None:
        self._connection, self._number = connection, number

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at a path, or None."""
        return next(iter(self._files(owner, sql.FIND_FILE, path)), None)

    def by_id(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Return the files with these ids, in that order, without missing ones."""
        files = {file.id: file for file in self._files(owner, sql.FILES_BY_ID, list(ids))}
        return [files[uid] for uid in ids if uid in files]

    def under(self, owner: Owner, path: str) -> list[FileRecord]:
        """Return the files whose path starts with `path`."""
        return self._files(owner, sql.LIST_FILES, path, path + _LAST_CHARACTER)

    def _files(self, owner: Owner, statement: Statement, *keys: object) -> list[FileRecord]:
        number = self._number(owner)
        return self.files(owner, number, self._connection.rows(statement, number, *keys))

    def files(self, owner: Owner, number: int, rows: Sequence[Row]) -> list[FileRecord]:
        """Return the files of these rows, each with the version joined to its row."""
        latest = self._versions(number, [row[6:] for row in rows])
        uid = self._connection.uid
        return [
            FileRecord(owner, uid(file), path, category, created, active, version)
            for (_, file, path, category, created, active, *_), version in zip(
                rows, latest, strict=True
            )
        ]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first."""
        number = self._number(owner)
        return self._versions(number, self._connection.rows(sql.VERSIONS, number, file))

    def all(self, owner: Owner) -> list[StoredFile]:
        """Return all files with all their versions."""
        return [StoredFile(file, self.versions(owner, file.id)) for file in self.under(owner, "")]

    def derived(self, home: Owner, session: UUID | None, message: UUID | None) -> list[Derived]:
        """Return the versions derived from an owner's sessions."""
        number = self._number(home)
        return self._derived(
            self._connection.rows(sql.DERIVED, home=number, session=session, message=message)
        )

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Return the versions of the user's files that a commit wrote."""
        values = {"tenant": user.tenant, "user": user.name, "commit": commit}
        return self._derived(self._connection.rows(sql.WRITTEN_BY, **values))

    def _derived(self, rows: Iterable[Row]) -> list[Derived]:
        uid = self._connection.uid
        versions = [Derived(Owner(*home), uid(file), number) for *home, file, number in rows]
        return sorted(versions, key=derived_order)

    def _versions(self, owner: int, rows: Sequence[Row]) -> list[VersionRecord]:
        evidence: dict[int, list[EvidenceRecord]] = {row[0]: [] for row in rows}
        uid = self._connection.uid
        if rows:
            for version, *home, session, message in self._connection.rows(
                sql.EVIDENCE, owner, list(evidence)
            ):
                evidence[version].append(EvidenceRecord(Owner(*home), uid(session), uid(message)))
        return [self._version(row, evidence[row[0]]) for row in rows]

    def _version(self, row: Row, evidence: list[EvidenceRecord]) -> VersionRecord:
        row_number, *covered, replaced = row[:9]
        if len(row) > 9 and row_checksum(*covered) != row[9]:
            raise damaged(f"version {row_number} of a file does not match its checksum")
        number, written, valid_from, body, valid_to, commit, info = covered
        return VersionRecord(
            number=number,
            written=written,
            valid_from=valid_from,
            body=body,
            valid_to=valid_to,
            commit=None if commit is None else self._connection.uid(commit),
            info=loads(info),
            evidence=in_order(evidence),
            replaced=replaced,
        )


class FileWriter(FileReader):
    """Changes files inside one transaction, which locks their owners in one order."""

    def apply(self, changes: Sequence[FileChange]) -> None:
        """Apply changes; raises ConflictError, NotFoundError."""
        owners = sorted({self._number(change.owner) for change in changes})
        self._connection.rows(sql.LOCK_OWNERS, owners)
        for change in changes:
            match change:
                case PutFile():
                    self._put(change)
                case MoveFile():
                    self._move(change)
                case RemoveFile():
                    self._remove_versions(change, None)
                case RemoveVersions():
                    self._remove_versions(change, change.numbers)
                case CountUses():
                    key = (self._number(change.owner), change.path)
                    self._connection.run(sql.COUNT_USES, change.times, *key)

    def _put(self, change: PutFile) -> None:
        version, owner = as_stored(change.version), self._number(change.owner)
        state = self._state(change)
        latest = state[2] if state else 0
        if is_repeated(change, latest, partial(self.versions, change.owner, change.id)):
            return
        if state is None or state[1] != change.path:
            self._refuse_taken(change)
        if state is None:
            values = (change.id, change.path, change.category, version.written, 0, version.number)
            file = self._connection.rows(sql.ADD_FILE, owner, *values)[0][0]
            self._add_version(owner, file, version)
            return
        file, values = state[0], (change.path, change.category, version.number)
        self._connection.run(sql.CHANGE_FILE, *values, owner, file)
        self._add_version(owner, file, version)
        self._connection.run(sql.SET_REPLACED, owner, file)

    def _state(self, change: PutFile | MoveFile | RemoveFile | RemoveVersions) -> Row | None:
        """Return the number, path and latest version of a file, or None."""
        rows = self._connection.rows(sql.FILE_STATE, self._number(change.owner), change.id)
        return rows[0] if rows else None

    def _refuse_taken(self, change: PutFile | MoveFile) -> None:
        """Raise ConflictError if another file has the path."""
        rows = self._connection.rows(sql.FILE_AT, self._number(change.owner), change.path)
        if rows and self._connection.uid(rows[0][0]) != change.id:
            raise path_taken(change.path)

    def _move(self, change: MoveFile) -> None:
        state = self._state(change)
        if state is None:
            raise no_file(change.id)
        self._refuse_taken(change)
        file, _, latest = state
        values = (change.path, change.category, latest, self._number(change.owner), file)
        self._connection.run(sql.CHANGE_FILE, *values)

    def _add_version(self, owner: int, file: int, version: VersionRecord) -> None:
        values = (version.number, version.written, version.valid_from, version.body)
        details = (version.valid_to, version.commit, dumps(version.info).decode())
        number = self._connection.rows(sql.ADD_VERSION, owner, file, *values, *details)[0][0]
        self._index(number, version.body)
        self._connection.run_many(
            sql.ADD_EVIDENCE,
            [
                (owner, number, self._number(evidence.owner), evidence.session, evidence.message)
                for evidence in version.evidence
            ],
        )

    def _index(self, version: int, body: bytes) -> None:
        """Index a new version; by default the next search does so."""

    def _unindex(self, versions: dict[int, bytes]) -> None:
        """Remove erased versions from the index, if that is not done with their rows."""

    def _remove_versions(
        self, change: RemoveFile | RemoveVersions, numbers: Sequence[int] | None
    ) -> None:
        """Erase versions with these numbers, or all."""
        owner, run = self._number(change.owner), self._connection.run
        rows = self._connection.rows(sql.VERSIONS, owner, change.id)
        erased = {row[0]: row[4] for row in rows if numbers is None or row[1] in numbers}
        state = self._state(change)
        if not erased or state is None:
            return
        file = state[0]
        self._unindex(erased)
        run(sql.DELETE_EVIDENCE, owner, list(erased))
        run(sql.DELETE_VERSIONS, owner, list(erased))
        if len(erased) == len(rows):
            run(sql.DELETE_FILE, owner, file)
        else:
            run(sql.FALL_BACK, owner, file, owner, file)
            run(sql.SET_REPLACED, owner, file)

    def copy(self, stored: StoredFile) -> None:
        """Copy a file of another store with all its versions."""
        file = stored.file
        owner = self._number(file.owner)
        values = (file.id, file.path, file.category, file.created, file.active, file.latest.number)
        number = self._connection.rows(sql.ADD_FILE, owner, *values)[0][0]
        for version in stored.versions:
            self._add_version(owner, number, version)
        self._connection.run(sql.SET_REPLACED, owner, number)
