"""Who finishes commits that nobody waits for: one thread of this process.

A commit that waits here is in the store already, open. If the process ends first, the next client
of that user finds it there and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue
from threading import Lock, Thread


class Worker:
    """Does jobs one after another in a thread that is started by the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: Queue[Callable[[], object] | None] = Queue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, job: Callable[[], object]) -> bool:
        """Have a job done; False if the worker was closed. A job says itself how it went."""
        with self._lock:
            if self._closed:
                return False
            if self._thread is None:
                self._thread = Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put(job)
            return True

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def close(self) -> None:
        """Finish all that is waiting; then take nothing more."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()
