"""The job queue protocol of stores with workers.

A job is a commit that is open. It is handed out at least once: a worker that dies has its jobs
taken over, so what comes of a job must be the same however often it is done.
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
    """A commit to be finished."""

    owner: Owner
    commit: UUID
    attempts: int
    """How often it was tried before, with no success."""


Handler: TypeAlias = Callable[[CommitJob], object]
"""Does a job. If it raises, the job comes again later, as often as that happens."""


@runtime_checkable
class StoreWithWorkers(Protocol):
    """A store that has workers."""

    def serve(self, handler: Handler, serving: WorkerOptions) -> None:
        """Be a worker: have the open commits of all owners finished, until told to stop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker."""

    concurrency: int = 1
    """How many jobs are done at once."""
    drain: bool = False
    """Whether to end when no job is left, rather than wait for more."""
    heartbeat: float = 10.0
    """Seconds after which it says again that it lives."""
    silence: float = 30.0
    """Seconds without a sign of life after which a worker's jobs are taken over."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValidationError(f"concurrency must be at least 1, got {self.concurrency}.")
        if not 0 < self.heartbeat < self.silence:
            raise ValidationError(
                f"heartbeat must be above 0 and below silence, got {self.heartbeat} and "
                f"{self.silence}."
            )
