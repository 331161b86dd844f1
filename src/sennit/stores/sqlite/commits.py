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
    changed,
    counted_by,
    covered_already,
    no_commit,
)
from sennit.stores.sqlite import file_statements as sql
from sennit.stores.sqlite.detached import DetachedTable


class CommitTable:
    """The commits and uses of one session."""

    def __init__(
        self, connection: sqlite3.Connection, owner: int, session: int, *, empty: bool = False
    ) -> None:
        """An `empty` session has just been added, so it has no commits."""
        self._run, self._many = connection.execute, connection.executemany
        self._key = (owner, session)
        self._detached = DetachedTable(connection, owner, session)
        self._last: int | None = 0 if empty else None

    def all(self) -> CommitsRecord:
        """All of them."""
        entries: dict[int, list[UUID]] = {}
        for number, uid in self._run(sql.ARCHIVED, self._key):
            entries.setdefault(number, []).append(id_from_bytes(uid))
        commits = [
            _commit(row, tuple(entries.get(row[1], ())))
            for row in self._run(sql.COMMITS, self._key)
        ]
        return CommitsRecord(commits, [_use(row) for row in self._run(sql.USES, self._key)])

    def last(self) -> int:
        """The number of the last commit; 0 if there is none."""
        last = self._last
        if last is None:
            last = self._last = self._run(sql.LAST_COMMIT, self._key).fetchone()[0]
        return last

    def get(self, number: int) -> CommitRecord:
        """The commit of that number, which is there."""
        rows = self._run(sql.ENTRIES_OF_COMMIT, (*self._key, number))
        (commit,) = self.numbered([number])
        return replace(commit, entries=tuple(id_from_bytes(uid) for (uid,) in rows))

    def numbered(self, numbers: Sequence[int]) -> list[CommitRecord]:
        """Commits by their numbers, without their entries."""
        found = (self._run(sql.COMMIT_BY_NUMBER, (*self._key, one)) for one in sorted(set(numbers)))
        return [_commit(row, ()) for rows in found for row in rows]

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
        """The uses that a commit counts; with None those that none counts yet."""
        return [_use(row) for row in self._run(sql.USES_OF, (*self._key, commit))]

    def apply(self, change: CommitChange) -> None:
        """Make a change; raises ConflictError, NotFoundError."""
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
            return  # made before, and its acknowledgement lost
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
        """Note which messages a commit covers; raises ConflictError, NotFoundError."""
        rows = [
            (commit.number, place, *self._key, entry.bytes)
            for place, entry in enumerate(commit.entries)
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
        """Note how far a commit has come; False if that was noted before."""
        row = self._run(sql.COMMIT_BY_ID, (*self._key, change.commit.bytes)).fetchone()
        if row is None:
            raise no_commit(change.commit)
        there = _commit(row, ())
        wanted = changed(there, change)
        if wanted is there:
            return False
        values = (wanted.state, wanted.body, wanted.version)
        self._run(sql.CHANGE_COMMIT, (*values, *self._key, change.commit.bytes))
        return True

    def forget_message(self, number: int) -> None:
        """Take a message out of the commit that covers it."""
        self._run(sql.DELETE_ARCHIVED, (*self._key, number))

    def copy(self, found: CommitsRecord) -> None:
        """Take over what another store has."""
        for use in found.uses:
            self._run(sql.ADD_USE, (*self._key, *_use_row(use)))
        counted = counted_by(found.uses)
        for commit in found.commits:
            self._add_commit(AddCommit(commit, tuple(counted.get(commit.number, ()))))
            values = (commit.state, commit.body, commit.version)
            self._run(sql.CHANGE_COMMIT, (*values, *self._key, commit.id.bytes))


def _commit(row: Any, entries: tuple[UUID, ...]) -> CommitRecord:
    uid, number, branch, created, state, body, version = row
    made = id_from_bytes(uid), number, id_from_bytes(branch), created, state
    return CommitRecord(*made, entries, body, version)


def _use(row: Any) -> UseRecord:
    uid, branch, created, head, body, number = row
    at = None if head is None else id_from_bytes(head)
    return UseRecord(id_from_bytes(uid), id_from_bytes(branch), created, at, body, number)


def _use_row(use: UseRecord) -> tuple[object, ...]:
    head = None if use.head is None else use.head.bytes
    return use.id.bytes, use.branch.bytes, use.created, head, use.body
