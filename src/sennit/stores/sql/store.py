"""The store methods that both SQL stores share: files, commits, removed messages and search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from sennit.errors import NotFoundError
from sennit.messages.codec import dumps
from sennit.stores.base import no_session
from sennit.stores.detached import DetachedMessages
from sennit.stores.records.commits import ArchiveRecord, CommitRecord, CommitsRecord, UseRecord
from sennit.stores.records.files import Derived, EndCommit, FileChange, FileRecord, VersionRecord
from sennit.stores.records.search import TextSearchStore
from sennit.stores.records.sessions import FoundMessage, MessageRecord, Owner, RemovedMessage
from sennit.stores.search.messages import search_messages
from sennit.stores.sql import statements as sql
from sennit.stores.sql.blobs import SqlBlobs
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql.connection import SqlConnection, Statement
from sennit.stores.sql.files import FileReader, FileWriter
from sennit.stores.sql.search import message_in

_T = TypeVar("_T")


class SqlStore(SqlBlobs, TextSearchStore, ABC):
    """The memory methods of an SQL store; see `sennit.stores.base.Store`."""

    @abstractmethod
    def _read(self, work: Callable[[SqlConnection], _T]) -> _T:
        """Run work in one snapshot."""

    @abstractmethod
    def _change(self, work: Callable[[SqlConnection], _T]) -> _T:
        """Run work in one transaction, rolled back if it raises."""

    @abstractmethod
    def _number(self, connection: SqlConnection, owner: Owner) -> int:
        """Return the owner's number; 0, which is never assigned, if the owner has no data."""

    @abstractmethod
    def _file_writer(self, connection: SqlConnection) -> FileWriter:
        """Return a writer of files, which finds the numbers of all owners it needs."""

    @abstractmethod
    def _detached(self, connection: SqlConnection, owner: int, session: int) -> DetachedMessages:
        """Return the detached messages of a session."""

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        """Return messages that contain words of `text`, best first."""
        return search_messages(self, owner, text, session, limit)

    def _session(
        self,
        connection: SqlConnection,
        owner: Owner,
        session: UUID,
        find: Statement = sql.FIND_SESSION,
    ) -> tuple[int, int]:
        """Return the numbers of an owner and a session; raises NotFoundError."""
        number = self._number(connection, owner)
        rows = connection.rows(find, number, session)
        if not rows:
            raise no_session(session)
        return number, rows[0][0]

    def removed(
        self, owner: Owner | None, session: UUID | None, before: int, limit: int
    ) -> list[RemovedMessage]:
        """Return messages removed from their last branch before a time, longest removed first."""

        def read(connection: SqlConnection) -> list[RemovedMessage]:
            number = None if owner is None else self._number(connection, owner)
            return removed_messages(connection, number, session, before, limit)

        return self._read(read)

    def branches_holding(
        self, owner: Owner, session: UUID, messages: Sequence[UUID]
    ) -> dict[UUID, str]:
        """Return the branch name of each message; of several "main", or else the oldest."""

        def read(connection: SqlConnection) -> dict[UUID, str]:
            key = self._session(connection, owner, session)
            return self._detached(connection, *key).branches_holding(messages)

        try:
            return self._read(read)
        except NotFoundError:
            return {}

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Apply file changes and the end of their commit, all in one transaction."""

        def change(connection: SqlConnection) -> None:
            if end is not None:
                key = self._session(connection, end.owner, end.session, sql.LOCK_SESSION)
                if not CommitTable(connection, *key).put_commit(end.change):
                    return
            self._file_writer(connection).apply(changes)

        self._change(change)

    def _read_files(self, read: Callable[[FileReader], _T]) -> _T:
        return self._read(
            lambda connection: read(FileReader(connection, partial(self._number, connection)))
        )

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """Return the file at that path, or None."""
        return self._read_files(lambda files: files.find(owner, path))

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """Return the files whose path starts with `under`, sorted by path."""
        return self._read_files(lambda files: files.under(owner, under))

    def files(self, owner: Owner, ids: Sequence[UUID]) -> list[FileRecord]:
        """Return the existing files with these ids, in that order."""
        return self._read_files(lambda files: files.by_id(owner, ids))

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
        rows = self._read(
            lambda connection: connection.rows(sql.OWNERS_OF_USER, user.tenant, user.name)
        )
        return [user, *(Owner(*row) for row in rows)]

    def _read_commits(self, owner: Owner, session: UUID, read: Callable[[CommitTable], _T]) -> _T:
        return self._read(
            lambda connection: read(
                CommitTable(connection, *self._session(connection, owner, session))
            )
        )

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """Return the commits and uses of a session; raises NotFoundError if it does not exist."""
        return self._read_commits(owner, session, CommitTable.all)

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

        def find(connection: SqlConnection) -> tuple[UUID, CommitRecord] | None:
            owner_number = self._number(connection, owner)
            for session, uid, number in connection.rows(sql.FIND_COMMIT, owner_number, commit):
                table = CommitTable(connection, owner_number, session)
                return connection.uid(uid), table.get(number)
            return None

        return self._read(find)

    def _list_commits(
        self, owner: Owner, statement: Statement, *values: object
    ) -> list[tuple[UUID, UUID]]:
        """Return commits, as session and commit."""

        def read(connection: SqlConnection) -> list[tuple[UUID, UUID]]:
            rows = connection.rows(statement, self._number(connection, owner), *values)
            return [(connection.uid(session), connection.uid(uid)) for session, uid in rows]

        return self._read(read)

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """Return the open commits as session and commit, oldest first."""
        return self._list_commits(owner, sql.OPEN_COMMITS)

    def commits_naming(self, owner: Owner, texts: Sequence[str]) -> list[tuple[UUID, UUID]]:
        """Return commits, as session and commit, with a JSON string that starts with a text."""
        prefixes = [dumps(text)[:-1] for text in texts]
        return self._list_commits(owner, sql.COMMITS_NAMING, prefixes)

    def unname(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase uses and events in an owner's sessions that contain one of these JSON strings."""
        self._erase_naming(owner, texts, (sql.ERASE_USES, sql.ERASE_EVENTS))

    def erase_uses(self, owner: Owner, texts: Sequence[str]) -> None:
        """Erase uses in an owner's sessions that contain one of these JSON strings."""
        self._erase_naming(owner, texts, (sql.ERASE_USES,))

    def _erase_naming(
        self, owner: Owner, texts: Sequence[str], statements: Sequence[Statement]
    ) -> None:
        strings = list(map(dumps, texts))

        def erase(connection: SqlConnection) -> None:
            for statement in statements:
                connection.run(statement, self._number(connection, owner), strings)

        self._change(erase)

    def rename(self, owner: Owner, names: Mapping[str, str]) -> None:
        """Replace JSON strings, old to new, in the uses and events of an owner's sessions."""

        def replace(connection: SqlConnection) -> None:
            number = self._number(connection, owner)
            for old, new in names.items():
                strings = {"old": dumps(old).decode(), "new": dumps(new).decode()}
                for statement in sql.RENAME:
                    connection.run(statement, owner=number, **strings)

        self._change(replace)

    def messages(self, owner: Owner, session: UUID, ids: Sequence[UUID]) -> list[MessageRecord]:
        """Return the existing messages with these ids, in that order."""

        def read(connection: SqlConnection) -> list[MessageRecord]:
            number = self._number(connection, owner)
            rows = connection.rows(sql.MESSAGES_BY_ID, number, session, list(ids))
            by_id = {
                message.id: message for message in (message_in(connection, row) for row in rows)
            }
            return [by_id[uid] for uid in ids if uid in by_id]

        return self._read(read)


def removed_messages(
    connection: SqlConnection, owner: int | None, session: UUID | None, before: int, limit: int
) -> list[RemovedMessage]:
    """Return messages removed before a time, of one owner or of all."""
    uid = connection.uid
    rows = connection.rows(
        sql.REMOVED, owner=owner, session=session, before=before, limit=max(0, limit)
    )
    return [
        RemovedMessage(Owner(*home), uid(session_id), uid(message), since)
        for *home, session_id, message, since in rows
    ]
