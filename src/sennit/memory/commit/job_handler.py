"""The handler of commit jobs: finishes a commit as its user and agent.

A job may be delivered more than once, to several workers at once; the commit is still finished once
(see `finalize`). A commit that cannot be finished is retried a few times and then marked as failed:
`client.get_task` reports it, and `client.retry_task` tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local

from sennit.errors import NotFoundError
from sennit.memory.commit.result import CommitResult
from sennit.memory.memory import MemoryEngine
from sennit.memory.scope import MemoryScope
from sennit.services.models.protocol import Model
from sennit.stores.base import Store
from sennit.stores.job_queue import CommitJob

ATTEMPTS = 5
"""The number of attempts before a commit is marked as failed."""

_DEFAULT_AGENT = "assistant"  # for commits that name no agent


class CommitJobHandler:
    """Finishes commits of all users of a store."""

    def __init__(
        self,
        store: Store,
        model: Callable[[], Model] | None,
        on_result: Callable[[CommitResult], object],
    ) -> None:
        """`model` creates a model for each thread; `on_result` gets the result of each job."""
        self._store, self._model, self._on_result = store, model, on_result
        self._thread_local = local()

    def __call__(self, job: CommitJob) -> None:
        """Finish the commit of a job; raises the error if the job is to be retried."""
        memory = MemoryEngine(MemoryScope(self._store, job.owner, _DEFAULT_AGENT))
        memory.use(model=self._thread_model())
        try:
            if job.attempts >= ATTEMPTS:
                reason = f"Gave up after {job.attempts} attempts: workers crashed or were killed."
                self._on_result(memory.mark_failed(job.commit, reason))
                return
            self._on_result(memory.attempt(job.commit, last=job.attempts + 1 >= ATTEMPTS))
        except NotFoundError:
            pass  # its session was deleted in the meantime
        except Exception:
            self._on_result(memory.result(job.commit))
            raise

    def _thread_model(self) -> Model | None:
        """Return the model of this thread, which runs an event loop of its own."""
        if self._model is None:
            return None
        if not hasattr(self._thread_local, "model"):
            self._thread_local.model = self._model()
        return self._thread_local.model
