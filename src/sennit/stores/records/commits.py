"""Records of commits and usage.

A commit covers entries of a branch that no commit before has covered, and keeps their order. What
is done with them afterwards (a summary, memories) is noted in its body, whose form is not the
store's business. A commit counts its changes: whoever changes it says which one they saw, so two
who finish the same commit do not both count.

The records are here, and the twin in memory of the tables; other stores keep them in rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import ConflictError, NotFoundError

CommitState: TypeAlias = Literal["open", "committed", "partial", "failed", "undone"]
"""Open until its memories are written; what it has come to then."""


class CommitRecord(msgspec.Struct, frozen=True, gc=False):
    """Entries of a branch that were archived together."""

    id: UUID
    number: int
    """1, 2, 3 in its session."""
    branch: UUID
    created: int
    state: CommitState
    entries: tuple[UUID, ...]
    """Its messages in order, less those that were erased since."""
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

    The number must be the next one, the entries must be there and in no other commit, and the uses
    in none, or it is refused with ConflictError: refresh, and choose again.
    """

    commit: CommitRecord
    uses: tuple[UUID, ...] = ()


class PutCommit(msgspec.Struct, frozen=True, gc=False):
    """Note how far a commit has come; refused if it was changed since it was seen."""

    commit: UUID
    state: CommitState
    body: bytes
    version: int
    """The one it was seen in."""


class AddUses(msgspec.Struct, frozen=True, gc=False):
    """Keep what was used; what is there already is left alone."""

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
        """All of them."""
        uses = sorted(self.uses.values(), key=lambda use: (use.created, use.id))
        return CommitsRecord(list(self.commits.values()), uses)

    def archived(self, after: int) -> list[ArchiveRecord]:
        """Return the archives of commits after a number."""
        return [
            ArchiveRecord(one.number, one.id, one.entries)
            for one in self.commits.values()
            if one.number > after
        ]

    def numbered(self, numbers: Iterable[int]) -> list[CommitRecord]:
        """Commits by their numbers, without their entries."""
        wanted = set(numbers)
        found = (one for one in self.commits.values() if one.number in wanted)
        return [msgspec.structs.replace(one, entries=()) for one in found]

    def uses_of(self, commit: int | None) -> list[UseRecord]:
        """The uses that a commit counts; with None those that none counts yet."""
        return [use for use in self.all().uses if use.commit == commit]

    def after(self, change: CommitChange) -> CommitLog:
        """The log as it is after a change; raises ConflictError, NotFoundError."""
        log = CommitLog(dict(self.commits), dict(self.uses))
        match change:
            case AddCommit():
                log._add_commit(change)
            case PutCommit():
                there = log.commits.get(change.commit)
                if there is None:
                    raise no_commit(change.commit)
                log.commits[there.id] = changed(there, change)
            case AddUses():
                for use in change.uses:
                    log.uses.setdefault(use.id, msgspec.structs.replace(use, commit=None))
        return log

    def _add_commit(self, change: AddCommit) -> None:
        new = change.commit
        if new.id in self.commits:
            return
        covered = {entry for one in self.commits.values() for entry in one.entries}
        if new.number != len(self.commits) + 1 or not covered.isdisjoint(new.entries):
            raise covered_already(new)
        for uid in change.uses:
            use = self.uses.get(uid)
            if use is None or use.commit is not None:
                raise covered_already(new)
            self.uses[uid] = msgspec.structs.replace(use, commit=new.number)
        self.commits[new.id] = msgspec.structs.replace(new, version=0)

    def unnaming(self, named: bytes) -> CommitLog:
        """The log without the uses that hold these bytes."""
        uses = {uid: use for uid, use in self.uses.items() if named not in use.body}
        return CommitLog(dict(self.commits), uses)

    def renaming(self, old: bytes, new: bytes) -> CommitLog:
        """The log with other bytes in place of these, in its uses."""
        uses = {
            uid: msgspec.structs.replace(use, body=use.body.replace(old, new))
            for uid, use in self.uses.items()
        }
        return CommitLog(dict(self.commits), uses)

    def without(self, messages: Iterable[UUID]) -> CommitLog:
        """The log after these messages were erased."""
        gone = set(messages)
        return CommitLog(
            {
                one.id: msgspec.structs.replace(one, entries=_less(one.entries, gone))
                for one in self.commits.values()
            },
            dict(self.uses),
        )


def _less(entries: Sequence[UUID], gone: set[UUID]) -> tuple[UUID, ...]:
    return tuple(entry for entry in entries if entry not in gone)


def counted_by(uses: Iterable[UseRecord]) -> dict[int, list[UUID]]:
    """The uses that commits count, by the commit's number."""
    found: dict[int, list[UUID]] = {}
    for use in uses:
        if use.commit is not None:
            found.setdefault(use.commit, []).append(use.id)
    return found


def changed(there: CommitRecord, change: PutCommit) -> CommitRecord:
    """The commit after a change; raises ConflictError if it was changed by someone else."""
    wanted = msgspec.structs.replace(
        there, state=change.state, body=change.body, version=change.version + 1
    )
    if wanted == there:  # made before, and its acknowledgement lost
        return there
    if there.version != change.version:
        raise ConflictError(
            f"Commit {there.id} was changed by another process: it is {there.state!r} now."
        )
    return wanted


def covered_already(commit: CommitRecord) -> ConflictError:
    """The error for entries or a number that another commit has taken."""
    return ConflictError(
        f"Commit {commit.number} of this session was made by another process, or already covers "
        f"some of these messages or uses; refresh and commit the rest."
    )


def no_commit(commit: UUID) -> NotFoundError:
    """The error for a commit that is not in the session."""
    return NotFoundError(f"There is no commit {commit} here; its session may have been deleted.")
