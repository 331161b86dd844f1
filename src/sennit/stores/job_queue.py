"""The job queue protocol of stores with workers.

A job is an open commit. Delivery is at least once: the jobs of a dead worker are taken over, so a
handler must be idempotent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from sennit.errors import ValidationError
from sennit.stores.records.sessions import Owner


@dataclass(frozen=True, slots=True)
class CommitJob:
    """An open commit to finish."""

    owner: Owner
    commit: UUID
    attempts: int
    """The number of failed attempts so far."""


Handler: TypeAlias = Callable[[CommitJob], object]
"""Handles a job; if it raises, the job is retried later, without limit."""


@runtime_checkable
class StoreWithWorkers(Protocol):
    """A store with a job queue for workers."""

    def serve(self, handler: Handler, serving: WorkerOptions) -> None:
        """Run a worker that finishes the open commits of all owners, until it is stopped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker."""

    concurrency: int = 1
    """The number of jobs that run at once."""
    drain: bool = False
    """Whether to stop when the queue is empty, rather than wait for more jobs."""
    heartbeat: float = 10.0
    """Seconds between heartbeats."""
    silence: float = 30.0
    """Seconds without a heartbeat after which a worker's jobs are taken over."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValidationError(f"concurrency must be at least 1, got {self.concurrency}.")
        if not 0 < self.heartbeat < self.silence:
            raise ValidationError(
                f"heartbeat must be above 0 and below silence, got {self.heartbeat} and "
                f"{self.silence}."
            )
