"""Commits and usage records of one session in PostgreSQL.

Changes are made under the lock of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from sennit.stores.postgres import file_statements as sql
from sennit.stores.postgres.detached import DetachedTable
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
)

if TYPE_CHECKING:
    import psycopg

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

Numbers: TypeAlias = Callable[[Sequence[UUID]], list[int]]
"""Returns the numbers of stored messages; raises NotFoundError."""


class CommitTable:
    """The commits and uses of one session."""

    def __init__(self, connection: _Connection, owner: int, session: int) -> None:
        self._connection, self._key = connection, (owner, session)

    def _rows(self, statement: Any, *values: Any) -> list[tuple[Any, ...]]:
        # Binary, because the text format sends a body as twice as many hexadecimal digits.
        return self._connection.execute(statement, (*self._key, *values), binary=True).fetchall()

    def all(self) -> CommitsRecord:
        """Return all commits and uses."""
        entries: dict[int, list[UUID]] = {}
        for number, uid in self._rows(sql.ARCHIVED):
            entries.setdefault(number, []).append(uid)
        commits = [_commit(row, tuple(entries.get(row[1], ()))) for row in self._rows(sql.COMMITS)]
        return CommitsRecord(commits, [UseRecord(*row) for row in self._rows(sql.USES)])

    def get(self, number: int) -> CommitRecord:
        """Return the commit with that number, which must exist."""
        (commit,) = self.numbered([number])
        entries = tuple(uid for (uid,) in self._rows(sql.ENTRIES_OF_COMMIT, number))
        return replace(commit, entries=entries)

    def numbered(self, numbers: Sequence[int]) -> list[CommitRecord]:
        """Return the commits with these numbers, without their entries."""
        return [_commit(row, ()) for row in self._rows(sql.COMMITS_BY_NUMBER, list(numbers))]

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number."""
        commits = self._rows(sql.COMMITS_PAST, after)
        entries: dict[int, list[UUID]] = {number: [] for number, _ in commits}
        for number, uid in self._rows(sql.ARCHIVED_PAST, after) if commits else ():
            entries[number].append(uid)
        return [ArchiveRecord(number, uid, tuple(entries[number])) for number, uid in commits]

    def last(self) -> int:
        """Return the number of the last commit, or 0."""
        return self._rows(sql.LAST_COMMIT)[0][0]

    def uses_of(self, commit: int | None) -> list[UseRecord]:
        """Return the uses that a commit counts; with None, those that no commit counts yet."""
        return [UseRecord(*row) for row in self._rows(sql.USES_OF, commit)]

    def apply(self, change: CommitChange, numbers: Numbers) -> None:
        """Apply a change; raises ConflictError, NotFoundError."""
        match change:
            case AddCommit():
                self._add_commit(change, numbers)
            case PutCommit():
                self.put_commit(change)
            case AddUses():
                for use in change.uses:
                    columns = (use.id, use.branch, use.created, use.head, use.body)
                    self._connection.execute(sql.ADD_USE, (*self._key, *columns))

    def _add_commit(self, change: AddCommit, numbers: Numbers) -> None:
        run, new = self._connection.execute, change.commit
        if self._rows(sql.COMMIT_BY_ID, new.id):
            return  # a retry after a lost acknowledgement
        if new.number != self.last() + 1:
            raise covered_already(new)
        messages = numbers(new.entries)
        if self._rows(sql.COVERED, messages)[0][0]:
            raise covered_already(new)
        values = (new.number, new.id, new.branch, new.created, new.state, new.body)
        run(sql.ADD_COMMIT, (*self._key, *values))
        run(sql.ADD_ARCHIVED, (*self._key, new.number, messages))
        DetachedTable(self._connection, *self._key).attach(messages)
        if change.uses:
            claimed = run(sql.CLAIM_USES, (new.number, *self._key, list(change.uses)))
            if claimed.rowcount < len(change.uses):
                raise covered_already(new)

    def put_commit(self, change: PutCommit) -> bool:
        """Update a commit's state and body; return False if that was done before."""
        rows = self._rows(sql.COMMIT_BY_ID, change.commit)
        if not rows:
            raise commit_not_found(change.commit)
        stored = _commit(rows[0], ())
        updated = apply_change(stored, change)
        if updated is stored:
            return False
        values = (updated.state, updated.body, updated.version)
        self._connection.execute(sql.CHANGE_COMMIT, (*values, *self._key, change.commit))
        return True

    def forget_messages(self, numbers: list[int]) -> None:
        """Remove messages from the commits that cover them."""
        self._connection.execute(sql.DELETE_ARCHIVED, (*self._key, numbers))


def _commit(row: Any, entries: tuple[UUID, ...]) -> CommitRecord:
    uid, number, branch, created, state, body, version = row
    return CommitRecord(uid, number, branch, created, state, entries, body, version)
