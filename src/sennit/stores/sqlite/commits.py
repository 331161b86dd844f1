"""Commits and usage records of one session in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from sennit.ids import id_from_bytes
from sennit.stores.base import no_message
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
from sennit.stores.sqlite import file_statements as sql
from sennit.stores.sqlite.detached import DetachedTable


class CommitTable:
    """The commits and uses of one session."""

    def __init__(
        self, connection: sqlite3.Connection, owner: int, session: int, *, empty: bool = False
    ) -> None:
        """Open the commits of a session; an `empty` one was just added and has none."""
        self._run, self._many = connection.execute, connection.executemany
        self._key = (owner, session)
        self._detached = DetachedTable(connection, owner, session)
        self._last: int | None = 0 if empty else None

    def all(self) -> CommitsRecord:
        """Return all commits and uses."""
        entries: dict[int, list[UUID]] = {}
        for number, uid in self._run(sql.ARCHIVED, self._key):
            entries.setdefault(number, []).append(id_from_bytes(uid))
        commits = [
            _commit(row, tuple(entries.get(row[1], ())))
            for row in self._run(sql.COMMITS, self._key)
        ]
        return CommitsRecord(commits, [_use(row) for row in self._run(sql.USES, self._key)])

    def last(self) -> int:
        """Return the number of the last commit, or 0."""
        last = self._last
        if last is None:
            last = self._last = self._run(sql.LAST_COMMIT, self._key).fetchone()[0]
        return last

    def get(self, number: int) -> CommitRecord:
        """Return the commit with that number, which must exist."""
        rows = self._run(sql.ENTRIES_OF_COMMIT, (*self._key, number))
        (commit,) = self.numbered([number])
        return replace(commit, entries=tuple(id_from_bytes(uid) for (uid,) in rows))

    def numbered(self, numbers: Sequence[int]) -> list[CommitRecord]:
        """Return the commits with these numbers, without their entries."""
        results = (
            self._run(sql.COMMIT_BY_NUMBER, (*self._key, number)) for number in sorted(set(numbers))
        )
        return [_commit(row, ()) for cursor in results for row in cursor]

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number."""
        commits = self._run(sql.COMMITS_PAST, (*self._key, after)).fetchall()
        entries: dict[int, list[UUID]] = {number: [] for number, _ in commits}
        for number, uid in self._run(sql.ARCHIVED_PAST, (*self._key, after)) if commits else ():
            entries[number].append(id_from_bytes(uid))
        return [
            ArchiveRecord(number, id_from_bytes(uid), tuple(entries[number]))
            for number, uid in commits
        ]

    def uses_of(self, commit: int | None) -> list[UseRecord]:
        """Return the uses that a commit counts; with None, those that no commit counts yet."""
        return [_use(row) for row in self._run(sql.USES_OF, (*self._key, commit))]

    def apply(self, change: CommitChange) -> None:
        """Apply a change; raises ConflictError, NotFoundError."""
        match change:
            case AddCommit():
                self._add_commit(change)
            case PutCommit():
                self.put_commit(change)
            case AddUses():
                self._many(sql.ADD_USE, [(*self._key, *_use_row(use)) for use in change.uses])

    def _add_commit(self, change: AddCommit) -> None:
        new = change.commit
        if self._run(sql.COMMIT_BY_ID, (*self._key, new.id.bytes)).fetchone():
            return  # a retry after a lost acknowledgement
        if new.number != self.last() + 1:
            raise covered_already(new)
        values = (new.number, new.id.bytes, new.branch.bytes, new.created, new.state, new.body)
        self._run(sql.ADD_COMMIT, (*self._key, *values))
        self._last = new.number
        self._cover(new)
        for use in change.uses:
            claimed = self._run(sql.CLAIM_USE, (new.number, *self._key, use.bytes))
            if not claimed.rowcount:
                raise covered_already(new)

    def _cover(self, commit: CommitRecord) -> None:
        """Record which messages a commit covers; raises ConflictError, NotFoundError."""
        rows = [
            (commit.number, position, *self._key, entry.bytes)
            for position, entry in enumerate(commit.entries)
        ]
        try:
            covered = self._many(sql.ADD_ARCHIVED, rows).rowcount if rows else 0
        except sqlite3.IntegrityError:
            raise covered_already(commit) from None
        if covered < len(rows):
            raise no_message(next(filter(self._is_missing, commit.entries)))
        if self._detached.any():
            rows = self._run(sql.NUMBERS_OF_COMMIT, (*self._key, commit.number))
            self._detached.attach([number for (number,) in rows])

    def _is_missing(self, message: UUID) -> bool:
        return self._run(sql.MESSAGE_THERE, (*self._key, message.bytes)).fetchone() is None

    def put_commit(self, change: PutCommit) -> bool:
        """Update a commit's state and body; return False if that was done before."""
        row = self._run(sql.COMMIT_BY_ID, (*self._key, change.commit.bytes)).fetchone()
        if row is None:
            raise commit_not_found(change.commit)
        stored = _commit(row, ())
        updated = apply_change(stored, change)
        if updated is stored:
            return False
        values = (updated.state, updated.body, updated.version)
        self._run(sql.CHANGE_COMMIT, (*values, *self._key, change.commit.bytes))
        return True

    def forget_message(self, number: int) -> None:
        """Remove a message from the commit that covers it."""
        self._run(sql.DELETE_ARCHIVED, (*self._key, number))

    def copy(self, source: CommitsRecord) -> None:
        """Copy the commits and uses of another store."""
        for use in source.uses:
            self._run(sql.ADD_USE, (*self._key, *_use_row(use)))
        counted = uses_by_commit(source.uses)
        for commit in source.commits:
            self._add_commit(AddCommit(commit, tuple(counted.get(commit.number, ()))))
            values = (commit.state, commit.body, commit.version)
            self._run(sql.CHANGE_COMMIT, (*values, *self._key, commit.id.bytes))


def _commit(row: Any, entries: tuple[UUID, ...]) -> CommitRecord:
    uid, number, branch, created, state, body, version = row
    columns = id_from_bytes(uid), number, id_from_bytes(branch), created, state
    return CommitRecord(*columns, entries, body, version)


def _use(row: Any) -> UseRecord:
    uid, branch, created, head, body, number = row
    head_id = None if head is None else id_from_bytes(head)
    return UseRecord(id_from_bytes(uid), id_from_bytes(branch), created, head_id, body, number)


def _use_row(use: UseRecord) -> tuple[object, ...]:
    head = None if use.head is None else use.head.bytes
    return use.id.bytes, use.branch.bytes, use.created, head, use.body
