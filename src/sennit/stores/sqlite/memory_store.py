"""The memory half of the SQLite store: search, vectors, files, commits.

A part of the store, which opens connections and transactions; sessions are written beside it.
"""

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

_PAUSE = 0.001


class SQLiteMemory(ABC):
    """The half of a store that memory reads and writes; see `sennit.stores.base.Store`."""

    def __init__(self) -> None:
        self._matrix_lock = Lock()
        self._matrices: dict[tuple[Owner, str], VectorMatrix] = {}

    @abstractmethod
    def _writing(self, *, aside: bool = False) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _unhurried(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _reading(self) -> AbstractContextManager[sqlite3.Connection]: ...

    @abstractmethod
    def _owner(self, connection: sqlite3.Connection, owner: Owner) -> int: ...

    @abstractmethod
    def _added_owner(self, connection: sqlite3.Connection, owner: Owner) -> int: ...

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """The best places for words, the best first."""
        if not asked.words:
            return []
        self._index_the_rest()
        with self._reading() as connection:
            return search.hits(connection, self._owner(connection, owner), asked)

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """The messages at places that `hits` named, in their order."""
        with self._reading() as connection:
            return search.at_places(connection, self._owner(connection, owner), places)

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """The best files for words, the best first."""
        if not asked.words and not asked.places:
            return []
        with self._reading() as connection:
            return search.file_hits(connection, partial(self._owner, connection), asked)

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """Return items without a vector of this embedder, oldest first."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            return vectors.unembedded(connection, number, model, limit)

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Keep vectors of things that are still there."""
        with self._writing() as connection:
            vectors.put(connection, self._owner(connection, owner), model, embedded)

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """The cosines of the nearest places, and of those in `also` that have a vector."""
        key = (owner, model)
        with self._matrix_lock, self._reading() as connection:
            number = self._owner(connection, owner)
            had = self._matrices.get(key) or VectorMatrix()
            matrix = vectors.continued(connection, number, model, had)
            self._matrices[key] = matrix
            return matrix.nearest(vector, limit, also)

    def _index_the_rest(self) -> None:
        """Bring the index up to date, in batches, so that no writer waits long."""
        for batch in count():
            with self._reading() as connection:
                if search.is_complete(connection):
                    return
            if batch:  # or this thread would have the lock again before those who wait for it
                time.sleep(_PAUSE)
            with self._unhurried() as connection:
                search.index_more(connection)

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Messages removed from their last branch before a time, the longest removed first."""
        with self._reading() as connection:
            number = None if owner is None else self._owner(connection, owner)
            return detached.removed(connection, number, session, before, limit)

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """The branch on which each message stands; of several "main", or else the oldest."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None:
                return {}
            return DetachedTable(connection, number, row[0]).branches_holding(messages)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Make changes of files, all or none, and with them that of the commit they come from."""
        with self._writing() as connection:
            if end is None or self._end_commit(connection, end):
                FileWriter(connection, partial(self._added_owner, connection)).apply(changes)

    def _end_commit(self, connection: sqlite3.Connection, end: EndCommit) -> bool:
        owner = self._owner(connection, end.owner)
        session = session_row(connection, owner, end.session)[0]
        return CommitTable(connection, owner, session).put_commit(end.change)

    @contextmanager
    def _files(self) -> Generator[FileReader]:
        with self._reading() as connection:
            yield FileReader(connection, partial(self._owner, connection))

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at that path, if there is one."""
        with self._files() as found:
            return found.find(owner, path)

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """The files whose path begins so, in the order of their paths."""
        with self._files() as found:
            return found.under(owner, under)

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Files by their ids, in that order; those that are there."""
        with self._files() as found:
            return [file for uid in ids if (file := found.by_id(owner, uid)) is not None]

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file, the oldest first; none if there is no such file."""
        with self._files() as found:
            return found.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Versions, of any owner's files, that came from this owner's sessions, or one of them."""
        with self._files() as found:
            return found.derived(owner, session, message)

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Versions, of the user's own files, that a commit has written."""
        with self._files() as found:
            return found.written_by(user, commit)

    def owned_by(self, user: Owner) -> list[Owner]:
        """The user, and each of their own agents and resources of which anything was written."""
        with self._reading() as connection:
            rows = connection.execute(file_sql.OWNERS_OF_USER, (user.tenant, user.name)).fetchall()
        return [user, *(Owner(*row) for row in rows)]

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """The commits and uses of a session; raises NotFoundError if that is not there."""
        with self._commits(owner, session) as found:
            return found.all()

    @contextmanager
    def _commits(self, owner: Owner, session: UUID) -> Generator[CommitTable]:
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            yield CommitTable(connection, number, row[0])

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number, in order."""
        with self._commits(owner, session) as found:
            return found.archived(after)

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Commits by their numbers, in order, without their entries; those that are there."""
        with self._commits(owner, session) as found:
            return found.numbered(numbers)

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """The uses that a commit counts, by its number; with None those that none counts yet."""
        with self._commits(owner, session) as found:
            return found.uses_of(commit)

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """A commit and its session, if the owner has it."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(file_sql.FIND_COMMIT, (number, commit.bytes)).fetchone()
            if row is None:
                return None
            return id_from_bytes(row[1]), CommitTable(connection, number, row[0]).get(row[2])

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Commits, as session and commit, whose body has a JSON string that begins with one."""
        named = dumps([dumps(text)[:-1].decode() for text in texts]).decode()
        with self._reading() as connection:
            values = (self._owner(connection, owner), named)
            rows = connection.execute(file_sql.COMMITS_NAMING, values)
            return [(id_from_bytes(session), id_from_bytes(uid)) for session, uid in rows]

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase the uses and events in an owner's sessions that have one as a JSON string."""
        named = dumps([dumps(text).decode() for text in texts]).decode()
        with self._writing() as connection:
            values = (self._owner(connection, owner), named)
            for statement in file_sql.UNNAME:
                connection.execute(statement, values)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings in the uses and events of an owner's sessions, old by new."""
        with self._writing() as connection:
            number = self._owner(connection, owner)
            for old, new in names.items():
                values = {"owner": number, "old": dumps(old).decode(), "new": dumps(new).decode()}
                for statement in file_sql.RENAME:
                    connection.execute(statement, values)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Messages of a session by their ids, in that order; those that are there."""
        with self._reading() as connection:
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
        """The commits that are not finished, as session and commit, the oldest first."""
        with self._reading() as connection:
            rows = connection.execute(file_sql.OPEN_COMMITS, (self._owner(connection, owner),))
            return [(id_from_bytes(session), id_from_bytes(uid)) for session, uid in rows]
