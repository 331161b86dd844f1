"""The background thread that finishes commits in this process.

A commit queued here is already in the store, open: if the process ends first, the next one that
uses this memory finishes it. Idle commits are scheduled here too, and rescheduled by each new
message; so is the embedding of texts that a search left out, batch by batch. Stores with workers of
their own (see `job_handler`) need no thread for commits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from threading import Condition, Thread
from typing import TypeAlias

from sennit import clock
from sennit.errors import NotFoundError

_log = logging.getLogger(__name__)

Job: TypeAlias = Callable[[], object]


class BackgroundWorker:
    """Runs jobs one after another in a thread that the first job starts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._condition = Condition()
        self._jobs: deque[Job] = deque()
        self._scheduled: dict[Hashable, tuple[float, Job]] = {}
        self._thread: Thread | None = None
        self._closing = False
        self.closed = False
        """Whether it has run its last job, and accepts no more."""

    def submit(self, job: Job) -> None:
        """Queue a job; a closed worker leaves it to the next process that uses this memory."""
        with self._condition:
            if not self.closed:
                self._jobs.append(job)
                self._start()

    def schedule(self, key: Hashable, seconds: float, job: Job) -> None:
        """Run a job after a delay, in place of the one scheduled under this key."""
        with self._condition:
            if not self.closed:
                self._scheduled[key] = (clock.monotonic() + seconds, job)
                self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._condition.notify()

    def _run(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                job()
            except NotFoundError:
                pass  # its session was deleted in the meantime
            except Exception:  # the jobs after it must still run
                _log.exception("A commit or an embedding in the background failed; both stay due.")

    def _next_job(self) -> Job | None:
        with self._condition:
            while True:
                if self._jobs:
                    return self._jobs.popleft()
                if self._closing:
                    self.closed = True
                    return None
                if not self._scheduled:
                    self._condition.wait()
                    continue
                key, (due_at, job) = min(self._scheduled.items(), key=lambda item: item[1][0])
                delay = due_at - clock.monotonic()
                if delay <= 0:
                    del self._scheduled[key]
                    return job
                self._condition.wait(delay)

    def close(self) -> None:
        """Run the queued jobs, drop the scheduled ones and stop."""
        with self._condition:
            self._closing = True
            self.closed = self.closed or self._thread is None
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
