"""Commits and usage records as JSON lines of an archive.

They follow their session. Of a commit's result only the summary is exported, not its changes to
memories, which are not part of a session archive. An unfinished commit is finished after import.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit.errors import ExistsError, ValidationError
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import plain_dict, validate_text
from sennit.stores.records.commits import (
    AddCommit,
    AddUses,
    CommitChange,
    CommitRecord,
    CommitsRecord,
    UseRecord,
    uses_by_commit,
)
from sennit.stores.transfer.container import Count, Moment

_State: TypeAlias = Literal["open", "committed", "partial", "undone"]
_SUMMARY_FIELDS = ("abstract", "overview")


class CommitLine(msgspec.Struct, tag_field="kind", tag="commit", forbid_unknown_fields=True):
    """A commit."""

    id: UUID
    number: Count
    branch: UUID
    created: Moment
    state: _State
    entries: list[UUID]
    abstract: str
    overview: str


class UseLine(msgspec.Struct, tag_field="kind", tag="use", forbid_unknown_fields=True):
    """A use."""

    id: UUID
    branch: UUID
    created: Moment
    head: UUID | None
    commit: Count | None
    used: dict[str, Any]


def written(record: CommitsRecord) -> Iterator[CommitLine | UseLine]:
    """Yield the lines of commits and uses."""
    for commit in record.commits:
        body: dict[str, Any] = loads(commit.body)
        state: _State = "open" if commit.state == "failed" else commit.state
        summary = [str(body.get(name, "")) for name in _SUMMARY_FIELDS]
        entries = list(commit.entries)
        yield CommitLine(
            commit.id, commit.number, commit.branch, commit.created, state, entries, *summary
        )
    for use in record.uses:
        columns = (use.id, use.branch, use.created, use.head, use.commit)
        yield UseLine(*columns, loads(use.body))


class CommitReader:
    """Parses lines of commits and uses, and refuses those that contradict earlier ones."""

    def __init__(self) -> None:
        self._commits: dict[UUID, CommitRecord] = {}
        self._uses: dict[UUID, UseRecord] = {}
        self._covered: set[UUID] = set()

    def take_commit(self, line: CommitLine, messages: Container[UUID]) -> None:
        """Add a commit; raises ValidationError."""
        if line.id in self._commits or line.number != len(self._commits) + 1:
            raise ValidationError(f"Commit {line.number} is not the next one.")
        for entry in line.entries:
            if entry not in messages or entry in self._covered:
                raise ValidationError(f"Message {entry} is not there, or covered twice.")
            self._covered.add(entry)
        summary = {name: validate_text(getattr(line, name), name) for name in _SUMMARY_FIELDS}
        self._commits[line.id] = CommitRecord(
            line.id,
            line.number,
            line.branch,
            line.created,
            line.state,
            tuple(line.entries),
            dumps({} if line.state == "open" else summary),
        )

    def take_use(self, line: UseLine) -> None:
        """Add a use; raises ValidationError."""
        if line.id in self._uses:
            raise ValidationError(f"Duplicate use {line.id}.")
        if line.commit is not None and not 0 < line.commit <= len(self._commits):
            raise ValidationError(f"There is no commit {line.commit} to count use {line.id}.")
        used = plain_dict(line.used, "A use")
        validate_text(used.get("uri"), "The URI of a use")
        columns = (line.id, line.branch, line.created, line.head, dumps(used), line.commit)
        self._uses[line.id] = UseRecord(*columns)

    def finished(self) -> CommitsRecord:
        """Return the commits and uses read so far."""
        return CommitsRecord(list(self._commits.values()), list(self._uses.values()))


def new_commits(archived: CommitsRecord, stored: CommitsRecord) -> list[CommitChange]:
    """Return the commits that `there` lacks; raises ExistsError if they contradict."""
    for commit, other in zip(archived.commits, stored.commits, strict=False):
        if (commit.id, commit.number) != (other.id, other.number):
            raise ExistsError(
                f"Commit {commit.number} of the session differs from the stored one. Nothing was "
                f"imported; delete the session first, or import as another user."
            )
    known_uses = {use.id for use in stored.uses}
    last = len(stored.commits)
    # One that a commit here has counted was erased here: none would count it again.
    uses = [
        use
        for use in archived.uses
        if use.id not in known_uses and (use.commit is None or use.commit > last)
    ]
    changes: list[CommitChange] = [AddUses(tuple(uses))] if uses else []
    counted = uses_by_commit(archived.uses)
    return changes + [
        AddCommit(commit, tuple(counted.get(commit.number, ())))
        for commit in archived.commits[last:]
    ]
