"""Commits and usage records of one session in an SQL store.

Changes are made under the lock of the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from sennit.stores.base import no_message
from sennit.stores.detached import DetachedMessages
from sennit.stores.records.commits import (
    AddCommit,
    AddUses,
    ArchiveRecord,
    CommitChange,
    CommitRecord,
    CommitsRecord,
    PutCommit,
    UseRecord,
    apply_change,
    commit_not_found,
    covered_already,
    uses_by_commit,
)
from sennit.stores.sql import statements as sql
from sennit.stores.sql.connection import Row, SqlConnection, Statement


class CommitTable:
    """The commits and uses of one session."""

    def __init__(
        self, connection: SqlConnection, owner: int, session: int, *, empty: bool = False
    ) -> None:
        """Open the commits of a session; an `empty` one was just added and has none."""
        self._connection, self._key = connection, (owner, session)
        self._last: int | None = 0 if empty else None

    def _rows(self, statement: Statement, *values: object) -> list[Row]:
        return self._connection.rows(statement, *self._key, *values)

    def _entries(self, statement: Statement, *values: object) -> dict[int, tuple[UUID, ...]]:
        """Return the messages of commits, by commit number."""
        entries: dict[int, list[UUID]] = {}
        for number, uid in self._rows(statement, *values):
            entries.setdefault(number, []).append(self._connection.uid(uid))
        return {number: tuple(uids) for number, uids in entries.items()}

    def all(self) -> CommitsRecord:
        """Return all commits and uses."""
        entries = self._entries(sql.ARCHIVED)
        commits = [self._commit(row, entries.get(row[1], ())) for row in self._rows(sql.COMMITS)]
        return CommitsRecord(commits, [self._use(row) for row in self._rows(sql.USES)])

    def last(self) -> int:
        """Return the number of the last commit, or 0."""
        last = self._last
        if last is None:
            last = self._last = self._rows(sql.LAST_COMMIT)[0][0]
        return last

    def get(self, number: int) -> CommitRecord:
        """Return the commit with that number, which must exist."""
        (commit,) = self.numbered([number])
        return replace(commit, entries=self._entries(sql.ENTRIES_OF_COMMIT, number).get(number, ()))

    def numbered(self, numbers: Sequence[int]) -> list[CommitRecord]:
        """Return the commits with these numbers, without their entries."""
        rows = self._rows(sql.COMMITS_BY_NUMBER, list(numbers))
        return [self._commit(row, ()) for row in rows]

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number."""
        commits = self._rows(sql.COMMITS_PAST, after)
        entries = self._entries(sql.ARCHIVED_PAST, after) if commits else {}
        return [
            ArchiveRecord(number, self._connection.uid(uid), entries.get(number, ()))
            for number, uid in commits
        ]

    def uses_of(self, commit: int | None) -> list[UseRecord]:
        """Return the uses that a commit counts; with None, those that no commit counts yet."""
        rows = self._rows(sql.UNCOUNTED_USES) if commit is None else self._rows(sql.USES_OF, commit)
        return [self._use(row) for row in rows]

    def apply(self, change: CommitChange, detached: DetachedMessages) -> None:
        """Apply a change; raises ConflictError, NotFoundError."""
        match change:
            case AddCommit():
                self._add_commit(change, detached)
            case PutCommit():
                self.put_commit(change)
            case AddUses():
                self._add_uses(change.uses)

    def _add_uses(self, uses: Sequence[UseRecord]) -> None:
        self._connection.run_many(
            sql.ADD_USE,
            [(*self._key, use.id, use.branch, use.created, use.head, use.body) for use in uses],
        )

    def _add_commit(self, change: AddCommit, detached: DetachedMessages) -> None:
        new, run = change.commit, self._connection.run
        if self._rows(sql.COMMIT_BY_ID, new.id):
            return  # a retry after a lost acknowledgement
        if new.number != self.last() + 1:
            raise covered_already(new)
        messages = self._message_numbers(new.entries)
        if self._rows(sql.COVERED, messages):
            raise covered_already(new)
        values = (new.number, new.id, new.branch, new.created, new.state, new.body)
        run(sql.ADD_COMMIT, *self._key, *values)
        self._last = new.number
        run(sql.ADD_ARCHIVED, *self._key, new.number, messages)
        detached.attach(messages)
        if change.uses:
            claimed = run(sql.CLAIM_USES, new.number, *self._key, list(change.uses))
            if claimed < len(change.uses):
                raise covered_already(new)

    def _message_numbers(self, messages: Sequence[UUID]) -> list[int]:
        """Return the numbers of messages; raises NotFoundError."""
        uid = self._connection.uid
        rows = self._rows(sql.MESSAGE_NUMBERS, list(messages))
        numbers = {uid(column): number for column, number in rows}
        for message in messages:
            if message not in numbers:
                raise no_message(message)
        return [numbers[message] for message in messages]

    def put_commit(self, change: PutCommit) -> bool:
        """Update a commit's state and body; return False if that was done before."""
        rows = self._rows(sql.COMMIT_BY_ID, change.commit)
        if not rows:
            raise commit_not_found(change.commit)
        stored = self._commit(rows[0], ())
        updated = apply_change(stored, change)
        if updated is stored:
            return False
        self._put(updated)
        return True

    def _put(self, commit: CommitRecord) -> None:
        values = (commit.state, commit.body, commit.version)
        self._connection.run(sql.CHANGE_COMMIT, *values, *self._key, commit.id)

    def forget_messages(self, numbers: list[int]) -> None:
        """Remove messages from the commits that cover them."""
        self._connection.run(sql.DELETE_ARCHIVED, *self._key, numbers)

    def copy(self, source: CommitsRecord, detached: DetachedMessages) -> None:
        """Copy the commits and uses of another store."""
        self._add_uses(source.uses)
        counted = uses_by_commit(source.uses)
        for commit in source.commits:
            uses = tuple(counted.get(commit.number, ()))
            self._add_commit(AddCommit(commit, uses), detached)
            self._put(commit)

    def _commit(self, row: Row, entries: tuple[UUID, ...]) -> CommitRecord:
        uid = self._connection.uid
        commit, number, branch, created, state, body, version = row
        return CommitRecord(
            uid(commit), number, uid(branch), created, state, entries, body, version
        )

    def _use(self, row: Row) -> UseRecord:
        uid = self._connection.uid
        use, branch, created, head, body, number = row
        head_id = None if head is None else uid(head)
        return UseRecord(uid(use), uid(branch), created, head_id, body, number)
