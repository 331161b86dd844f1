"""Files of all owners in PostgreSQL, inside one transaction.

Whoever changes them locks the rows of their owners first, in one order.
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
    as_kept,
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
    """Reads files inside one snapshot; `number` gives an owner's number, 0 for nobody's."""

    def __init__(self, connection: _Connection, number: Callable[[Owner], int]) -> None:
        self._connection, self._number = connection, number

    def _rows(self, statement: Any, *values: Any) -> list[tuple[Any, ...]]:
        # Binary, as bodies would otherwise come as twice as many hexadecimal digits.
        return self._connection.execute(statement, values, binary=True).fetchall()

    def find(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at a path."""
        found = self._files(owner, sql.FIND_FILE, path)
        return found[0] if found else None

    def by_id(self, owner: Owner, file: UUID) -> FileRecord | None:
        """The file with that id."""
        found = self.by_ids(owner, [file])
        return found[0] if found else None

    def by_ids(self, owner: Owner, ids: list[UUID]) -> list[FileRecord]:
        """Files by their ids."""
        return self._files(owner, sql.FILES_BY_ID, ids, ids)

    def under(self, owner: Owner, path: str) -> list[FileRecord]:
        """The files whose path begins so."""
        return self._files(owner, sql.LIST_FILES, path)

    def _files(self, owner: Owner, statement: Any, *keys: object) -> list[FileRecord]:
        number = self._number(owner)
        return self.files(owner, number, self._rows(statement, number, *keys))

    def files(self, owner: Owner, number: int, rows: Sequence[Any]) -> list[FileRecord]:
        """The files in rows, each with the version that is in its row too."""
        latest = self._versions(number, [row[6:] for row in rows])
        return [_file(owner, row, version) for row, version in zip(rows, latest, strict=True)]

    def versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file."""
        number = self._number(owner)
        return self._versions(number, self._rows(sql.VERSIONS, number, file))

    def all(self, owner: Owner) -> list[StoredFile]:
        """All files with all their versions."""
        return [StoredFile(file, self.versions(owner, file.id)) for file in self.under(owner, "")]

    def derived(self, home: Owner, session: UUID | None, message: UUID | None) -> list[Derived]:
        """Versions that came from the sessions of an owner."""
        named = {"home": self._number(home), "session": session, "message": message}
        return _derived(self._connection.execute(sql.DERIVED, named))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Versions, of the user's own files, that a commit has written."""
        named = {"tenant": user.tenant, "user": user.name, "commit": commit}
        return _derived(self._connection.execute(sql.WRITTEN_BY, named))

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
        """Make changes; raises ConflictError, NotFoundError."""
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
        version, there = as_kept(change.version), self.by_id(change.owner, change.id)
        if version.number <= (there.latest.number if there else 0):
            self._refuse_other(change, version)
            return
        if version.number != (there.latest.number + 1 if there else 1):
            raise other_version(change.path, version.number)
        if there is None or there.path != change.path:
            self._refuse_taken(change.owner, change.id, change.path)
        owner, run = self._number(change.owner), self._connection.execute
        if there is None:
            values = (change.id, change.path, change.category, version.written)
            file = self._rows(sql.ADD_FILE, owner, *values)[0][0]
        else:
            file = self._no(owner, change.id)
            run(sql.MOVE_FILE, (change.path, change.category, owner, change.id))
        self._add_version(owner, file, version)
        run(sql.SET_LATEST, (version.number, change.category, owner, file))
        run(sql.SET_REPLACED, (owner, file))

    def _refuse_other(self, change: PutFile, version: VersionRecord) -> None:
        """A version that is there just so was written before, its acknowledgement lost."""
        found = {one.number: one for one in self.versions(change.owner, change.id)}
        there = found.get(version.number)
        if there is None or as_kept(there) != version:
            raise other_version(change.path, version.number)

    def _refuse_taken(self, owner: Owner, file: UUID, path: str) -> None:
        rows = self._rows(sql.PATH_TAKEN, self._number(owner), path)
        if rows and rows[0][0] != file:
            raise path_taken(path)

    def _no(self, owner: int, file: UUID) -> int:
        return self._rows(sql.FILES_BY_ID, owner, [file], [file])[0][0]

    def _add_version(self, owner: int, file: int, version: VersionRecord) -> None:
        values = (version.number, version.written, version.valid_from, version.body)
        more = (version.valid_to, version.commit, dumps(version.info).decode())
        no = self._rows(sql.ADD_VERSION, owner, file, *values, *more)[0][0]
        if version.evidence:
            columns = (
                [self._number(one.owner) for one in version.evidence],
                [one.session for one in version.evidence],
                [one.message for one in version.evidence],
            )
            self._connection.execute(sql.ADD_EVIDENCE, (owner, no, *columns))

    def _move(self, change: MoveFile) -> None:
        if self.by_id(change.owner, change.id) is None:
            raise no_file(change.id)
        self._refuse_taken(change.owner, change.id, change.path)
        key = (self._number(change.owner), change.id)
        self._connection.execute(sql.MOVE_FILE, (change.path, change.category, *key))

    def _remove(self, change: RemoveFile) -> None:
        numbers = tuple(one.number for one in self.versions(change.owner, change.id))
        self._remove_versions(RemoveVersions(change.owner, change.id, numbers))

    def _remove_versions(self, change: RemoveVersions) -> None:
        owner, run = self._number(change.owner), self._connection.execute
        rows = self._rows(sql.VERSIONS, owner, change.id)
        gone = [row[0] for row in rows if row[1] in change.numbers]
        if not gone:
            return
        file = self._no(owner, change.id)
        run(sql.DELETE_EVIDENCE, (owner, gone))
        run(sql.DELETE_VERSIONS, (owner, gone))
        if len(gone) == len(rows):
            run(sql.DELETE_FILE, (owner, file))
        else:
            run(sql.FALL_BACK, (owner, file, owner, file))
            run(sql.SET_REPLACED, (owner, file))


def _derived(rows: Iterable[Any]) -> list[Derived]:
    found = [Derived(Owner(*home), file, number) for *home, file, number in rows]
    return sorted(
        found,
        key=lambda one: (*one.owner.key, one.file, one.number),
    )
