"""Records of commits and usage.

A commit covers entries of a branch that no earlier commit covers, in their order. What is derived
from them (a summary, memories) is stored in its body, which is opaque to the store. A commit has a
version for optimistic locking, so that of two processes that finish the same commit only one
succeeds.

The records are here, with their in-memory implementation; other stores keep them in rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import ConflictError, NotFoundError

CommitState: TypeAlias = Literal["open", "committed", "partial", "failed", "undone"]
"""Open until its memories are written, then the outcome."""


class CommitRecord(msgspec.Struct, frozen=True, gc=False):
    """Entries of a branch that were archived together."""

    id: UUID
    number: int
    """1, 2, 3 in its session."""
    branch: UUID
    created: int
    state: CommitState
    entries: tuple[UUID, ...]
    """Its messages in order, without those erased since."""
    body: bytes = b"{}"
    version: int = 0
    """Counts its changes."""


class ArchiveRecord(msgspec.Struct, frozen=True, gc=False):
    """The entries that a commit covers, without its result."""

    number: int
    commit: UUID
    entries: tuple[UUID, ...]


class UseRecord(msgspec.Struct, frozen=True, gc=False):
    """Something that was used on a branch; `body` is the JSON of what it was."""

    id: UUID
    branch: UUID
    created: int
    head: UUID | None
    """The last message of the branch at that time."""
    body: bytes
    commit: int | None = None
    """The number of the commit that counts it."""


class AddCommit(msgspec.Struct, frozen=True, gc=False):
    """Archive entries under the next number, and count these uses with them.

    Raises ConflictError unless the number is the next one and no other commit covers the entries or
    counts the uses: refresh and try again. Raises NotFoundError if an entry does not exist.
    """

    commit: CommitRecord
    uses: tuple[UUID, ...] = ()


class PutCommit(msgspec.Struct, frozen=True, gc=False):
    """Update a commit's state and body; refused if it has another version."""

    commit: UUID
    state: CommitState
    body: bytes
    version: int
    """The version it was read with."""


class AddUses(msgspec.Struct, frozen=True, gc=False):
    """Store uses; existing ones are left unchanged."""

    uses: tuple[UseRecord, ...]


CommitChange: TypeAlias = AddCommit | PutCommit | AddUses


@dataclass(frozen=True, slots=True)
class CommitsRecord:
    """All commits and uses of a session."""

    commits: list[CommitRecord]
    """In the order of their numbers."""
    uses: list[UseRecord]
    """The oldest first."""


@dataclass(slots=True)
class CommitLog:
    """The commits and uses of one session, in memory."""

    commits: dict[UUID, CommitRecord] = field(default_factory=dict[UUID, CommitRecord])
    uses: dict[UUID, UseRecord] = field(default_factory=dict[UUID, UseRecord])

    def all(self) -> CommitsRecord:
        """Return all commits and uses."""
        uses = sorted(self.uses.values(), key=lambda use: (use.created, use.id))
        return CommitsRecord(list(self.commits.values()), uses)

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number."""
        return [
            ArchiveRecord(commit.number, commit.id, commit.entries)
            for commit in self.commits.values()
            if commit.number > after
        ]

    def numbered(self, numbers: Iterable[int]) -> list[CommitRecord]:
        """Return the commits with these numbers, without their entries."""
        wanted_numbers = set(numbers)
        commits = (commit for commit in self.commits.values() if commit.number in wanted_numbers)
        return [msgspec.structs.replace(commit, entries=()) for commit in commits]

    def uses_of(self, commit: int | None) -> list[UseRecord]:
        """Return the uses that a commit counts; with None, those that no commit counts yet."""
        return [use for use in self.all().uses if use.commit == commit]

    def after(self, change: CommitChange) -> CommitLog:
        """Return a copy with a change applied; raises ConflictError, NotFoundError."""
        log = CommitLog(dict(self.commits), dict(self.uses))
        match change:
            case AddCommit():
                log._add_commit(change)
            case PutCommit():
                stored = log.commits.get(change.commit)
                if stored is None:
                    raise commit_not_found(change.commit)
                log.commits[stored.id] = apply_change(stored, change)
            case AddUses():
                for use in change.uses:
                    log.uses.setdefault(use.id, msgspec.structs.replace(use, commit=None))
        return log

    def _add_commit(self, change: AddCommit) -> None:
        commit = change.commit
        if commit.id in self.commits:
            return
        covered = {entry for other in self.commits.values() for entry in other.entries}
        if commit.number != len(self.commits) + 1 or not covered.isdisjoint(commit.entries):
            raise covered_already(commit)
        for uid in change.uses:
            use = self.uses.get(uid)
            if use is None or use.commit is not None:
                raise covered_already(commit)
            self.uses[uid] = msgspec.structs.replace(use, commit=commit.number)
        self.commits[commit.id] = msgspec.structs.replace(commit, version=0)

    def unnaming(self, string: bytes) -> CommitLog:
        """Return a copy without the uses that contain these bytes."""
        uses = {uid: use for uid, use in self.uses.items() if string not in use.body}
        return CommitLog(dict(self.commits), uses)

    def renaming(self, old: bytes, new: bytes) -> CommitLog:
        """Return a copy with bytes replaced in the bodies of uses."""
        uses = {
            uid: msgspec.structs.replace(use, body=use.body.replace(old, new))
            for uid, use in self.uses.items()
        }
        return CommitLog(dict(self.commits), uses)

    def without(self, messages: Iterable[UUID]) -> CommitLog:
        """Return a copy without these messages."""
        removed = set(messages)
        return CommitLog(
            {
                commit.id: msgspec.structs.replace(
                    commit, entries=_without(commit.entries, removed)
                )
                for commit in self.commits.values()
            },
            dict(self.uses),
        )


def _without(entries: Sequence[UUID], removed: set[UUID]) -> tuple[UUID, ...]:
    return tuple(entry for entry in entries if entry not in removed)


def uses_by_commit(uses: Iterable[UseRecord]) -> dict[int, list[UUID]]:
    """Return the ids of counted uses, by commit number."""
    uses_by_commit: dict[int, list[UUID]] = {}
    for use in uses:
        if use.commit is not None:
            uses_by_commit.setdefault(use.commit, []).append(use.id)
    return uses_by_commit


def apply_change(stored: CommitRecord, change: PutCommit) -> CommitRecord:
    """Return the changed commit; raises ConflictError if it has another version."""
    updated = msgspec.structs.replace(
        stored, state=change.state, body=change.body, version=change.version + 1
    )
    if updated == stored:  # a retry after a lost acknowledgement
        return stored
    if stored.version != change.version:
        raise ConflictError(
            f"Commit {stored.id} was changed by another process: it is {stored.state!r} now."
        )
    return updated


def covered_already(commit: CommitRecord) -> ConflictError:
    """Return the error for a number, messages or uses that another commit has."""
    return ConflictError(
        f"Commit {commit.number} of this session was made by another process, or already covers "
        f"some of these messages or uses; refresh and commit the rest."
    )


def commit_not_found(commit: UUID) -> NotFoundError:
    """Return the error for a commit that is not in the session."""
    return NotFoundError(f"There is no commit {commit} here; its session may have been deleted.")
