"""A worker process that finishes background commits of all users."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING

from sennit.api.store_url import open_store
from sennit.errors import ValidationError

if TYPE_CHECKING:
    from sennit.memory.commit.result import CommitResult
    from sennit.services.models.protocol import Model
    from sennit.stores.job_queue import WorkerOptions


def run_worker(
    url: str | PathLike[str] | None = None,
    options: WorkerOptions | None = None,
    *,
    model: Callable[[], Model] | None = None,
    on_result: Callable[[CommitResult], object] = lambda _: None,
    on_start: Callable[[], object] = lambda: None,
) -> None:
    """Finish commits of all users of a PostgreSQL store, until SIGTERM or SIGINT.

    `url` is as for `sennit.open`. Any number of workers may run at once, on any machines;
    `serving` sets their options. `model` creates the model that extracts memories; without it rules
    do. `told` is called with the result of each commit, in the thread that finished it; `begun` is
    called when the worker starts.
    Raises StoreError, and ValidationError for a store that has no workers.
    """
    from sennit.memory.commit.job_handler import CommitJobHandler
    from sennit.stores.job_queue import StoreWithWorkers, WorkerOptions

    store = open_store(url)
    try:
        if not isinstance(store, StoreWithWorkers):
            raise ValidationError(
                "Workers need a PostgreSQL store; on other stores, the program that commits "
                "finishes its commits, or client.finish_commits() does."
            )
        on_start()
        store.serve(CommitJobHandler(store, model, on_result), options or WorkerOptions())
    finally:
        store.close()
