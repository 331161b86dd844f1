"""The thread of this process that finishes background commits.

A commit that waits here is in the store already, open. If the process ends first, the next one that
uses this memory goes on with it. What is to be done when nothing has happened for a while waits
here too, and is put off whenever something happens. Stores with workers of their own (see `served`)
have no need of this thread.
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
    """Does jobs one after another in a thread that is started by the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = Condition()
        self._jobs: deque[Job] = deque()
        self._later: dict[Hashable, tuple[float, Job]] = {}
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Have a job done; a closed worker takes none, as what it is about is in the store."""
        with self._changed:
            self._jobs.append(job)
            self._start()

    def put_off(self, key: Hashable, seconds: float, job: Job) -> None:
        """Have a job done in a while, in place of the one that waits under this key."""
        with self._changed:
            self._later[key] = (clock.monotonic() + seconds, job)
            self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except NotFoundError:
                pass  # its session was deleted meanwhile: there is nothing left to do
            except Exception:  # the jobs after it are not to blame
                _log.exception("A commit in the background failed; it stays open in the store.")

    def _next(self) -> Job | None:
        with self._changed:
            while True:
                if self._jobs:
                    return self._jobs.popleft()
                if self._closed:
                    return None
                if not self._later:
                    self._changed.wait()
                    continue
                key, (moment, job) = min(self._later.items(), key=lambda one: one[1][0])
                left = moment - clock.monotonic()
                if left <= 0:
                    del self._later[key]
                    return job
                self._changed.wait(left)

    def close(self) -> None:
        """Finish all that was submitted; what was put off is left. Then take nothing more."""
        with self._changed:
            self._closed = True
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join()
