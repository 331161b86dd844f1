"""The memory half of the SQLite store: search, vectors, files, commits."""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from threading import Lock
from uuid import UUID

from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores.checksums import checked_body
from sennit.stores.records.commits import ArchiveRecord, CommitRecord, CommitsRecord, UseRecord
from sennit.stores.records.files import Derived, EndCommit, FileChange, FileRecord, VersionRecord
from sennit.stores.records.search import FileHit, FileQuery, Hit, StoredMessage, TextQuery
from sennit.stores.records.sessions import MessageRecord, Owner, RemovedMessage
from sennit.stores.records.vectors import Embedded, Unembedded
from sennit.stores.search.vector_matrix import VectorMatrix
from sennit.stores.sqlite import detached, search, vectors
from sennit.stores.sqlite import file_statements as file_sql
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.commits import CommitTable
from sennit.stores.sqlite.detached import DetachedTable
from sennit.stores.sqlite.files import FileReader, FileWriter
from sennit.stores.sqlite.session_reader import session_row

_INDEX_PAUSE_S = 0.001


class SQLiteMemory(ABC):
    """The memory methods of a store; see `sennit.stores.base.Store`."""

    def __init__(self) -> None:
        self._matrix_lock = Lock()
        self._matrices: dict[tuple[Owner, str], VectorMatrix] = {}

    @abstractmethod
    def _transaction(
        self, *, keep_caches: bool = False
    ) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _unsynced_transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _owner(self, connection: sqlite3.Connection, owner: Owner) -> int: ...

    @abstractmethod
    def _ensure_owner(self, connection: sqlite3.Connection, owner: Owner) -> int: ...

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """Return the best places for the words, best first."""
        if not asked.words:
            return []
        self._index_pending()
        with self._snapshot() as connection:
            return search.hits(connection, self._owner(connection, owner), asked)

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """Return the messages at places from `hits`, in that order."""
        with self._snapshot() as connection:
            return search.at_places(connection, self._owner(connection, owner), places)

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """Return the best files for the words, best first."""
        if not asked.words and not asked.places:
            return []
        with self._snapshot() as connection:
            return search.file_hits(connection, partial(self._owner, connection), asked)

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """Return items without a vector of this embedder, oldest first."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            return vectors.unembedded(connection, number, model, limit)

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Store vectors; those of erased items are dropped."""
        with self._transaction() as connection:
            vectors.put(connection, self._owner(connection, owner), model, embedded)

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosines of the nearest places, and of those in `also` that have a vector."""
        key = (owner, model)
        with self._matrix_lock, self._snapshot() as connection:
            number = self._owner(connection, owner)
            cached = self._matrices.get(key) or VectorMatrix()
            matrix = vectors.continued(connection, number, model, cached)
            self._matrices[key] = matrix
            return matrix.nearest(vector, limit, also)

    def _index_pending(self) -> None:
        """Index pending messages in batches, so that no writer waits long."""
        for batch in count():
            with self._snapshot() as connection:
                if search.is_complete(connection):
                    return
            if batch:  # let waiting threads have the lock
                time.sleep(_INDEX_PAUSE_S)
            with self._unsynced_transaction() as connection:
                search.index_more(connection)

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Return messages removed from their last branch before a time, longest removed first."""
        with self._snapshot() as connection:
            number = None if owner is None else self._owner(connection, owner)
            return detached.removed(connection, number, session, before, limit)

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """Return the branch name of each message; of several "main", or else the oldest."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None:
                return {}
            return DetachedTable(connection, number, row[0]).branches_holding(messages)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Apply file changes and the end of their commit, all in one transaction."""
        with self._transaction() as connection:
            if end is None or self._end_commit(connection, end):
                FileWriter(connection, partial(self._ensure_owner, connection)).apply(changes)

    def _end_commit(self, connection: sqlite3.Connection, end: EndCommit) -> bool:
        owner = self._owner(connection, end.owner)
        session = session_row(connection, owner, end.session)[0]
        return CommitTable(connection, owner, session).put_commit(end.change)

    @contextmanager
    def _files(self) -> Generator[FileReader]:
        with self._snapshot() as connection:
            yield FileReader(connection, partial(self._owner, connection))

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at that path, or None."""
        with self._files() as files:
            return files.find(owner, path)

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """Return the files whose path starts with `under`, sorted by path."""
        with self._files() as files:
            return files.under(owner, under)

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Return the existing files with these ids, in that order."""
        with self._files() as reader:
            return [file for uid in ids if (file := reader.by_id(owner, uid)) is not None]

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first; none if the file does not exist."""
        with self._files() as files:
            return files.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Return the versions of any files derived from this owner's sessions, or from one."""
        with self._files() as files:
            return files.derived(owner, session, message)

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Return the versions of the user's files that a commit wrote."""
        with self._files() as files:
            return files.written_by(user, commit)

    def owned_by(self, user: Owner) -> list[Owner]:
        """Return the user and those of their agents and resources that have data."""
        with self._snapshot() as connection:
            rows = connection.execute(file_sql.OWNERS_OF_USER, (user.tenant, user.name)).fetchall()
        return [user, *(Owner(*row) for row in rows)]

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """Return the commits and uses of a session; raises NotFoundError if it does not exist."""
        with self._commits(owner, session) as table:
            return table.all()

    @contextmanager
    def _commits(self, owner: Owner, session: UUID) -> Generator[CommitTable]:
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            yield CommitTable(connection, number, row[0])

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number, in order."""
        with self._commits(owner, session) as table:
            return table.archived(after)

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Return the existing commits with these numbers, in order, without their entries."""
        with self._commits(owner, session) as table:
            return table.numbered(numbers)

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """Return the uses that commit number `commit` counts; with None, the uncounted ones."""
        with self._commits(owner, session) as table:
            return table.uses_of(commit)

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """Return a commit and its session id, or None."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(file_sql.FIND_COMMIT, (number, commit.bytes)).fetchone()
            if row is None:
                return None
            return id_from_bytes(row[1]), CommitTable(connection, number, row[0]).get(row[2])

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Return commits, as session and commit, with a JSON string that starts with a text."""
        prefixes = dumps([dumps(text)[:-1].decode() for text in texts]).decode()
        with self._snapshot() as connection:
            values = (self._owner(connection, owner), prefixes)
            rows = connection.execute(file_sql.COMMITS_NAMING, values)
            return [(id_from_bytes(session), id_from_bytes(uid)) for session, uid in rows]

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase uses and events in an owner's sessions that contain one of these JSON strings."""
        strings = dumps([dumps(text).decode() for text in texts]).decode()
        with self._transaction() as connection:
            values = (self._owner(connection, owner), strings)
            for statement in file_sql.UNNAME:
                connection.execute(statement, values)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings, old to new, in the uses and events of an owner's sessions."""
        with self._transaction() as connection:
            number = self._owner(connection, owner)
            for old, new in names.items():
                values = {"owner": number, "old": dumps(old).decode(), "new": dumps(new).decode()}
                for statement in file_sql.RENAME:
                    connection.execute(statement, values)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Return the existing messages with these ids, in that order."""
        with self._snapshot() as connection:
            key = (self._owner(connection, owner), session.bytes)
            rows = [
                (uid, connection.execute(file_sql.MESSAGE_BY_ID, (*key, uid.bytes)).fetchone())
                for uid in ids
            ]
        return [
            MessageRecord(uid, row[0], checked_body(uid.bytes, *row))
            for uid, row in rows
            if row is not None
        ]

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """Return the open commits as session and commit, oldest first."""
        with self._snapshot() as connection:
            rows = connection.execute(file_sql.OPEN_COMMITS, (self._owner(connection, owner),))
            return [(id_from_bytes(session), id_from_bytes(uid)) for session, uid in rows]
