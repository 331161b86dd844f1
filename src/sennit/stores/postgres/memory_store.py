"""The memory half of the PostgreSQL store: search, vectors, files, commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from sennit.messages.codec import dumps
from sennit.stores.base import no_session
from sennit.stores.postgres import detached, vectors
from sennit.stores.postgres import file_statements as file_sql
from sennit.stores.postgres import search_statements as word_sql
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.commits import CommitTable
from sennit.stores.postgres.connection import Database
from sennit.stores.postgres.files import FileReader, FileWriter
from sennit.stores.postgres.search import MessageQuery, at_places, file_hits, index_files, lexemes
from sennit.stores.postgres.session_reader import message_in
from sennit.stores.postgres.session_writer import Connection, fetch_one
from sennit.stores.records.commits import ArchiveRecord, CommitRecord, CommitsRecord, UseRecord
from sennit.stores.records.files import (
    Derived,
    EndCommit,
    FileChange,
    FileRecord,
    PutFile,
    VersionRecord,
)
from sennit.stores.records.search import FileHit, FileQuery, Hit, StoredMessage, TextQuery
from sennit.stores.records.sessions import MessageRecord, Owner, RemovedMessage
from sennit.stores.records.vectors import Embedded, Unembedded

_T = TypeVar("_T")


class PostgresMemory(ABC):
    """The memory methods of a store; see `sennit.stores.base.Store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._has_vectors = False

    @abstractmethod
    def _owner(self, connection: Connection, owner: Owner) -> int: ...

    @abstractmethod
    def _ensure_owner(self, owner: Owner) -> int: ...

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """Return the best places for the words, best first."""
        number = self._database.run(lambda connection: self._owner(connection, owner))
        query = MessageQuery(number, asked)
        if not lexemes(asked.words):
            return []
        while self._database.run(query.is_unindexed):
            self._database.change(query.index_more)
        return self._database.run(query.hits)

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """Return the messages at places from `hits`, in that order."""
        return self._database.run(
            lambda connection: at_places(connection, self._owner(connection, owner), places)
        )

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """Return the best files for the words, best first."""

        def owner_numbers(connection: Connection) -> list[int]:
            return [self._owner(connection, owner) for owner in asked.owners]

        def is_unindexed(connection: Connection) -> bool:
            return fetch_one(
                connection.execute(word_sql.HAS_UNINDEXED_FILES, (owner_numbers(connection),))
            )[0]

        if not lexemes(asked.words) and not asked.places:
            return []
        while self._database.run(is_unindexed):
            self._database.change(
                lambda connection: index_files(connection, owner_numbers(connection))
            )
        return self._database.run(
            lambda connection: file_hits(connection, partial(self._owner, connection), asked)
        )

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """Return items without a vector of this embedder, oldest first."""
        self._prepare_vectors()
        return self._database.run(
            lambda connection: vectors.unembedded(
                connection, self._owner(connection, owner), model, limit
            )
        )

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Store vectors; those of erased items are dropped."""
        self._prepare_vectors()
        self._database.change(
            lambda connection: vectors.put(
                connection, self._owner(connection, owner), model, embedded
            )
        )

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosines of the nearest places, and of those in `also` that have a vector."""
        self._prepare_vectors()
        places = list(also)
        return self._database.run(
            lambda connection: vectors.nearest(
                connection, self._owner(connection, owner), model, vector, limit, places
            )
        )

    def _prepare_vectors(self) -> None:
        """Create the vector table on first use: not every server has pgvector."""
        if not self._has_vectors:
            self._database.change(vectors.prepare)
            self._has_vectors = True

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Return messages removed from their last branch before a time, longest removed first."""

        def read(connection: Connection) -> list[RemovedMessage]:
            number = None if owner is None else self._owner(connection, owner)
            return detached.removed(connection, number, session, before, limit)

        return self._database.read(read)

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """Return the branch name of each message; of several "main", or else the oldest."""

        def read(connection: Connection) -> dict[UUID, str]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                return {}
            table = detached.DetachedTable(connection, number, row[0])
            return table.branches_holding(messages)

        return self._database.read(read)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Apply file changes and the end of their commit, all in one transaction."""
        for owner in {owner for change in changes for owner in _owners_of(change)}:
            self._ensure_owner(owner)

        def change(connection: Connection) -> None:
            if (end is None or self._end_commit(connection, end)) and changes:
                FileWriter(connection, partial(self._owner, connection)).apply(changes)

        self._database.change(change)

    def _end_commit(self, connection: Connection, end: EndCommit) -> bool:
        number = self._owner(connection, end.owner)
        row = connection.execute(sql.LOCK_SESSION, (number, end.session)).fetchone()
        if row is None:
            raise no_session(end.session)
        return CommitTable(connection, number, row[0]).put_commit(end.change)

    def _read_files(self, read: Callable[[FileReader], _T]) -> _T:
        return self._database.read(
            lambda connection: read(FileReader(connection, partial(self._owner, connection)))
        )

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at that path, or None."""
        return self._read_files(lambda files: files.find(owner, path))

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """Return the files whose path starts with `under`, sorted by path."""
        return self._read_files(lambda files: files.under(owner, under))

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Return the existing files with these ids, in that order."""
        return self._read_files(lambda files: files.by_ids(owner, list(ids)))

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """Return all versions of a file, oldest first; none if the file does not exist."""
        return self._read_files(lambda files: files.versions(owner, file))

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Return the versions of any files derived from this owner's sessions, or from one."""
        return self._read_files(lambda files: files.derived(owner, session, message))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Return the versions of the user's files that a commit wrote."""
        return self._read_files(lambda files: files.written_by(user, commit))

    def owned_by(self, user: Owner) -> list[Owner]:
        """Return the user and those of their agents and resources that have data."""
        values = (user.tenant, user.name)
        rows = self._database.read(
            lambda connection: connection.execute(file_sql.OWNERS_OF_USER, values).fetchall()
        )
        return [user, *(Owner(*row) for row in rows)]

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """Return the commits and uses of a session; raises NotFoundError if it does not exist."""
        return self._read_commits(owner, session, CommitTable.all)

    def _read_commits(self, owner: Owner, session: UUID, work: Callable[[CommitTable], _T]) -> _T:
        def read(connection: Connection) -> _T:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return work(CommitTable(connection, number, row[0]))

        return self._database.read(read)

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number, in order."""
        return self._read_commits(owner, session, lambda table: table.archived(after))

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Return the existing commits with these numbers, in order, without their entries."""
        return self._read_commits(owner, session, lambda table: table.numbered(numbers))

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """Return the uses that commit number `commit` counts; with None, the uncounted ones."""
        return self._read_commits(owner, session, lambda table: table.uses_of(commit))

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """Return a commit and its session id, or None."""

        def find(connection: Connection) -> tuple[UUID, CommitRecord] | None:
            number = self._owner(connection, owner)
            row = connection.execute(file_sql.FIND_COMMIT, (number, commit)).fetchone()
            if row is None:
                return None
            return row[1], CommitTable(connection, number, row[0]).get(row[2])

        return self._database.read(find)

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Return commits, as session and commit, with a JSON string that starts with a text."""
        prefixes = [dumps(text)[:-1] for text in texts]

        def read(connection: Connection) -> list[tuple[UUID, UUID]]:
            values = (self._owner(connection, owner), prefixes)
            rows = connection.execute(file_sql.COMMITS_NAMING, values).fetchall()
            return [(session, uid) for session, uid in rows]

        return self._database.read(read)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Return the existing messages with these ids, in that order."""
        uids = list(ids)

        def read(connection: Connection) -> list[MessageRecord]:
            values = (self._owner(connection, owner), session, uids, uids)
            rows = connection.execute(file_sql.MESSAGES_BY_ID, values, binary=True).fetchall()
            return [message_in(row) for row in rows]

        return self._database.read(read)

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase uses and events in an owner's sessions that contain one of these JSON strings."""
        strings = list(map(dumps, texts))

        def erase(connection: Connection) -> None:
            values = (self._owner(connection, owner), strings)
            for statement in file_sql.UNNAME:
                connection.execute(statement, values)

        self._database.change(erase)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings, old to new, in the uses and events of an owner's sessions."""

        def replace(connection: Connection) -> None:
            number = self._owner(connection, owner)
            for old, new in names.items():
                values = {"owner": number, "old": dumps(old).decode(), "new": dumps(new).decode()}
                for statement in file_sql.RENAME:
                    connection.execute(statement, values)

        self._database.change(replace)

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """Return the open commits as session and commit, oldest first."""

        def read(connection: Connection) -> list[tuple[UUID, UUID]]:
            number = self._owner(connection, owner)
            rows = connection.execute(file_sql.OPEN_COMMITS, (number,)).fetchall()
            return [(session, uid) for session, uid in rows]

        return self._database.read(read)


def _owners_of(change: FileChange) -> Iterator[Owner]:
    """Return the owners whose rows a change locks: of the file, and of its source sessions."""
    yield change.owner
    if isinstance(change, PutFile):
        yield from (evidence.owner for evidence in change.version.evidence)
