"""The result of a commit, the same from `commit` and `get_task`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.memory.uri import archive_name
from sennit.messages.codec import loads
from sennit.stores.records.commits import CommitRecord

Status: TypeAlias = Literal["pending", "committed", "partial", "failed", "undone"]


class CommitResult(dict[str, Any]):
    """The result of a commit: a plain dict with properties for its most used keys.

    `status` is "committed", "partial" (some memories could not be written: see `reasons`), "failed"
    (nothing was written beyond the archive: see `reasons`; `client.retry_task` tries again),
    "pending" (a worker has yet to finish it) or "undone".
    """

    @property
    def status(self) -> Status:
        """The status of the commit."""
        return self["status"]

    @property
    def task_id(self) -> str | None:
        """The id for `get_task`, `retry_task` and `undo_commit`; None if nothing was done."""
        return self["task_id"]

    @property
    def reasons(self) -> list[str]:
        """The reasons why the commit is not simply committed."""
        return self["reasons"]


def empty_result() -> CommitResult:
    """Return the result of a commit without anything to archive."""
    return _result("committed", None, archived=False)


def result_of(commit: CommitRecord) -> CommitResult:
    """Return the result of a stored commit."""
    body: dict[str, Any] = loads(commit.body)
    status: Status = "pending" if commit.state == "open" else commit.state
    result = _result(status, commit.id, archived=True)
    result["archive"] = archive_name(commit.number)
    result.update(body.get("result", {}))
    result["status"] = status
    return result


def failed_result(commit: CommitRecord, reason: str) -> CommitResult:
    """Return the result of a commit that cannot be finished now."""
    result = result_of(commit)
    result.update(status="failed", reasons=[reason])
    return result


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """A commit with its session, branch, result and decisions."""

    id: UUID
    """The id of the commit."""
    session: UUID
    """The id of the session."""
    branch: UUID
    """The id of the branch."""
    created_at: datetime
    """When the commit began."""
    result: CommitResult
    """The result so far, as `commit` returns it."""
    decisions: tuple[dict[str, Any], ...]
    """As in `memory_diff.json`: did, category, uri, version, reason."""


def commit_status(session: UUID, commit: CommitRecord) -> CommitStatus:
    """Return a stored commit with its result and decisions."""
    decisions = tuple(loads(commit.body).get("diff", ()))
    created_at = clock.to_datetime(commit.created)
    return CommitStatus(commit.id, session, commit.branch, created_at, result_of(commit), decisions)


def _result(status: Status, commit: UUID | None, *, archived: bool) -> CommitResult:
    return CommitResult(
        status=status,
        memories_extracted=0,
        active_count_updated=0,
        archived=archived,
        task_id=None if commit is None else str(commit),
        archive=None,
        method=None,
        counts={},
        refused=0,
        model_calls=0,
        warnings=[],
        reasons=[],
    )
