"""The handler of commit jobs: finishes a commit as its user and agent.

A job may come more than once, to several workers at once; a commit is finished once all the same
(see `finish`). One that cannot be finished is tried a few times and then noted as failed, which
`client.get_task` tells and `client.retry_task` tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local

from sennit.errors import NotFoundError
from sennit.memory.commit.result import CommitResult
from sennit.memory.memory import Memory
from sennit.memory.scope import MemoryScope
from sennit.services.models.protocol import Model
from sennit.stores.base import Store
from sennit.stores.job_queue import CommitJob

ATTEMPTS = 5
"""How often a commit is tried before it is noted as failed."""

_AGENT = "assistant"  # of commits from before they said for which agent they are


class CommitJobHandler:
    """Finishes commits of all users of a store."""

    def __init__(
        self,
        store: Store,
        model: Callable[[], Model] | None,
        told: Callable[[CommitResult], object],
    ) -> None:
        """`model` makes one that thinks, for each thread; `told` is told what became of a job."""
        self._store, self._model, self._told = store, model, told
        self._own = local()

    def __call__(self, job: CommitJob) -> None:
        """Do a job; raises whatever went wrong if it is to be tried again."""
        memory = Memory(MemoryScope(self._store, job.owner, _AGENT))
        memory.use(model=self._thinker())
        try:
            if job.attempts >= ATTEMPTS:
                died = f"Workers have died of it, or were killed at it, {job.attempts} times."
                self._told(memory.give_up(job.commit, died))
                return
            self._told(memory.attempt(job.commit, last=job.attempts + 1 >= ATTEMPTS))
        except NotFoundError:
            pass  # its session was deleted meanwhile: there is nothing left to do
        except Exception:
            self._told(memory.result(job.commit))
            raise

    def _thinker(self) -> Model | None:
        """The model of this thread: each asks in an event loop of its own."""
        if self._model is None:
            return None
        if not hasattr(self._own, "model"):
            self._own.model = self._model()
        return self._own.model
