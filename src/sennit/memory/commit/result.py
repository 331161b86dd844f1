"""The result of a commit, the same from `commit` and `get_task`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.messages.codec import loads
from sennit.stores.records.commits import CommitRecord

Status: TypeAlias = Literal["pending", "committed", "partial", "failed", "undone"]


class CommitResult(dict[str, Any]):
    """A plain dict with names for what is asked most.

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


def nothing_done() -> CommitResult:
    """The result where there was nothing to commit."""
    return _result("committed", None, archived=False)


def result_of(commit: CommitRecord) -> CommitResult:
    """The result of a commit as the store has it."""
    body: dict[str, Any] = loads(commit.body)
    status: Status = "pending" if commit.state == "open" else commit.state
    found = _result(status, commit.id, archived=True)
    found["archive"] = archive_name(commit.number)
    found.update(body.get("result", {}))
    found["status"] = status
    return found


def failed(commit: CommitRecord, reason: str) -> CommitResult:
    """The result of a commit that could not be finished now."""
    found = result_of(commit)
    found.update(status="failed", reasons=[reason])
    return found


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """A commit as it stands: where it was made, what became of it, and each of its decisions."""

    id: UUID
    session: UUID
    branch: UUID
    created_at: datetime
    result: CommitResult
    decisions: tuple[dict[str, Any], ...]
    """As `memory_diff.json` has them: did, category, uri, version, reason."""


def committed(session: UUID, commit: CommitRecord) -> CommitStatus:
    """A commit of a session as the store has it."""
    decisions = tuple(loads(commit.body).get("diff", ()))
    made = clock.to_datetime(commit.created)
    return CommitStatus(commit.id, session, commit.branch, made, result_of(commit), decisions)


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


def archive_name(number: int) -> str:
    """The folder of a commit's archive."""
    return f"archive_{number:03}"
