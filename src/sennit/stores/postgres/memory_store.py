"""The memory half of the PostgreSQL store: search, vectors, files, commits.

A part of the store, which knows the database and its owners; sessions are written beside it.
"""

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
from sennit.stores.postgres.session_writer import Connection, one
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
    """The half of a store that memory reads and writes; see `sennit.stores.base.Store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._has_vectors = False

    @abstractmethod
    def _owner(self, connection: Connection, owner: Owner) -> int: ...

    @abstractmethod
    def _add_owner(self, owner: Owner) -> int: ...

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """The best places for words, the best first."""
        number = self._database.run(lambda connection: self._owner(connection, owner))
        question = MessageQuery(number, asked)
        if not lexemes(asked.words):
            return []
        while self._database.run(question.is_unindexed):
            self._database.change(question.index_more)
        return self._database.run(question.hits)

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """The messages at places that `hits` named, in their order."""
        return self._database.run(
            lambda connection: at_places(connection, self._owner(connection, owner), places)
        )

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """The best files for words, the best first."""

        def numbers(connection: Connection) -> list[int]:
            return [self._owner(connection, owner) for owner in asked.owners]

        def is_unindexed(connection: Connection) -> bool:
            return one(connection.execute(word_sql.HAS_UNINDEXED_FILES, (numbers(connection),)))[0]

        if not lexemes(asked.words) and not asked.places:
            return []
        while self._database.run(is_unindexed):
            self._database.change(lambda connection: index_files(connection, numbers(connection)))
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
        """Keep vectors of things that are still there."""
        self._prepare_vectors()
        self._database.change(
            lambda connection: vectors.put(
                connection, self._owner(connection, owner), model, embedded
            )
        )

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """The cosines of the nearest places, and of those in `also` that have a vector."""
        self._prepare_vectors()
        wanted = list(also)
        return self._database.run(
            lambda connection: vectors.nearest(
                connection, self._owner(connection, owner), model, vector, limit, wanted
            )
        )

    def _prepare_vectors(self) -> None:
        """Make their tables when they are first needed: not every server has the extension."""
        if not self._has_vectors:
            self._database.change(vectors.prepare)
            self._has_vectors = True

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Messages removed from their last branch before a time, the longest removed first."""

        def read(connection: Connection) -> list[RemovedMessage]:
            number = None if owner is None else self._owner(connection, owner)
            return detached.removed(connection, number, session, before, limit)

        return self._database.read(read)

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """The branch on which each message stands; of several "main", or else the oldest."""

        def read(connection: Connection) -> dict[UUID, str]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                return {}
            table = detached.DetachedTable(connection, number, row[0])
            return table.branches_holding(messages)

        return self._database.read(read)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Make changes of files, all or none, and with them that of the commit they come from."""
        for owner in {owner for change in changes for owner in _owners_of(change)}:
            self._add_owner(owner)

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
        """The file at that path, if there is one."""
        return self._read_files(lambda files: files.find(owner, path))

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """The files whose path begins so, in the order of their paths."""
        return self._read_files(lambda files: files.under(owner, under))

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Files by their ids, in that order; those that are there."""
        return self._read_files(lambda files: files.by_ids(owner, list(ids)))

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file, the oldest first; none if there is no such file."""
        return self._read_files(lambda files: files.versions(owner, file))

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Versions, of any owner's files, that came from this owner's sessions, or one of them."""
        return self._read_files(lambda files: files.derived(owner, session, message))

    def written_by(self, user: Owner, commit: UUID) -> list[Derived]:
        """Versions, of the user's own files, that a commit has written."""
        return self._read_files(lambda files: files.written_by(user, commit))

    def owned_by(self, user: Owner) -> list[Owner]:
        """The user, and each of their own agents and resources of which anything was written."""
        named = (user.tenant, user.name)
        rows = self._database.read(
            lambda connection: connection.execute(file_sql.OWNERS_OF_USER, named).fetchall()
        )
        return [user, *(Owner(*row) for row in rows)]

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """The commits and uses of a session; raises NotFoundError if that is not there."""
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
        return self._read_commits(owner, session, lambda found: found.archived(after))

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Commits by their numbers, in order, without their entries; those that are there."""
        return self._read_commits(owner, session, lambda found: found.numbered(numbers))

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """The uses that a commit counts, by its number; with None those that none counts yet."""
        return self._read_commits(owner, session, lambda found: found.uses_of(commit))

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """A commit and its session, if the owner has it."""

        def find(connection: Connection) -> tuple[UUID, CommitRecord] | None:
            number = self._owner(connection, owner)
            row = connection.execute(file_sql.FIND_COMMIT, (number, commit)).fetchone()
            if row is None:
                return None
            return row[1], CommitTable(connection, number, row[0]).get(row[2])

        return self._database.read(find)

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Commits, as session and commit, whose body has a JSON string that begins with one."""
        named = [dumps(text)[:-1] for text in texts]

        def read(connection: Connection) -> list[tuple[UUID, UUID]]:
            values = (self._owner(connection, owner), named)
            rows = connection.execute(file_sql.COMMITS_NAMING, values).fetchall()
            return [(session, uid) for session, uid in rows]

        return self._database.read(read)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Messages of a session by their ids, in that order; those that are there."""
        wanted = list(ids)

        def read(connection: Connection) -> list[MessageRecord]:
            values = (self._owner(connection, owner), session, wanted, wanted)
            rows = connection.execute(file_sql.MESSAGES_BY_ID, values, binary=True).fetchall()
            return [message_in(row) for row in rows]

        return self._database.read(read)

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase the uses and events in an owner's sessions that have one as a JSON string."""
        named = list(map(dumps, texts))

        def erase(connection: Connection) -> None:
            values = (self._owner(connection, owner), named)
            for statement in file_sql.UNNAME:
                connection.execute(statement, values)

        self._database.change(erase)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings in the uses and events of an owner's sessions, old by new."""

        def replace(connection: Connection) -> None:
            number = self._owner(connection, owner)
            for old, new in names.items():
                values = {"owner": number, "old": dumps(old).decode(), "new": dumps(new).decode()}
                for statement in file_sql.RENAME:
                    connection.execute(statement, values)

        self._database.change(replace)

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """The commits that are not finished, as session and commit, the oldest first."""

        def read(connection: Connection) -> list[tuple[UUID, UUID]]:
            number = self._owner(connection, owner)
            rows = connection.execute(file_sql.OPEN_COMMITS, (number,)).fetchall()
            return [(session, uid) for session, uid in rows]

        return self._database.read(read)


def _owners_of(change: FileChange) -> Iterator[Owner]:
    """Return the owners whose rows a change locks: of the file, and of its source sessions."""
    yield change.owner
    if isinstance(change, PutFile):
        yield from (one.owner for one in change.version.evidence)
