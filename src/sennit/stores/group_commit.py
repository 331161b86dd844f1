"""Group commit: many writers share one transaction.

An async caller must not block its loop during an fsync, and a thread per write costs more than the
write. So async writes go to one thread per store, which commits all pending writes in one
transaction and completes their futures. Meanwhile the next group collects. A loop wakes the thread
only after it has run all ready callbacks, so a group holds the writes of all of them, and the two
threads switch less often.
The writes of an owner with a large write are deferred to a group of their own, after those of all
other owners, so that nobody waits for another owner's bulk write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, TypeAlias

from sennit.errors import SennitError, StoreError
from sennit.stores import after_fork
from sennit.stores.records.sessions import AddMessages, BranchHead, Write

if TYPE_CHECKING:
    from sennit.stores.base import Store

Outcome: TypeAlias = "list[BranchHead] | SennitError"
Wake: TypeAlias = Callable[[], None]
Done: TypeAlias = Callable[[Outcome], Wake]

_MAX_GROUP_WRITES = 1000
_LARGE_WRITE_MESSAGES = 64  # messages of a write that others do not wait for
_LARGE_WRITE_BYTES = 65_536


class GroupCommitter:
    """Writes in a background thread, and reports when each write is durable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: list[tuple[Write, Done]] = []
        self._deferred: list[tuple[Write, Done]] = []  # the next group, unless empty
        self._wakeups: SimpleQueue[None] = SimpleQueue()  # one item wakes the thread
        self._last_scheduler: Callable[[Wake], None] | None = None  # of the last submitting loop
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False
        after_fork.watch(self)

    def disown(self) -> list[object]:
        """Reset in a forked child, which lacks the thread; the store refuses the writes."""
        self._pending, self._deferred, self._wakeups, self._lock = [], [], SimpleQueue(), Lock()
        self._thread = None
        return []

    def submit(self, write: Write, done: Done, soon: Callable[[Wake], None] | None) -> None:
        """Queue a write; `done` is called in the writer's thread, in commit order.

        `soon` schedules a callback after all ready callbacks of the caller's loop; None without a
        loop. `done` returns a function that wakes the waiter's loop, called once per loop after the
        whole group is done: waiters woken one by one would submit again one by one, in smaller
        groups.
        """
        with self._lock:
            if self._closed:
                raise StoreError("The store is closed; open it again.")
            if self._thread is None:
                self._thread = Thread(target=self._work, name="sennit-writer", daemon=True)
                self._thread.start()
            self._pending.append((write, done))
            if soon is None or soon != self._last_scheduler:  # do not wait for another loop
                self._wakeups.put(None)
            elif len(self._pending) == 1 and not self._deferred:
                soon(partial(self._wakeups.put, None))
            self._last_scheduler = soon

    def close(self) -> None:
        """Write everything that was submitted, then stop the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._wakeups.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            outcomes = zip(group, self._write_group(group), strict=True)
            for wake in {done(outcome) for (_, done), outcome in outcomes}:
                wake()

    def _next_group(self) -> list[tuple[Write, Done]] | None:
        """Return the next group of writes, which may be empty; None when closed."""
        self._wakeups.get()
        with self._lock:
            group, self._deferred = self._deferred, []
            if not group:
                batch, self._pending = (
                    self._pending[:_MAX_GROUP_WRITES],
                    self._pending[_MAX_GROUP_WRITES:],
                )
                group, self._deferred = _split_large(batch)
            if self._pending or self._deferred or self._closed:  # the loop may have ended
                self._wakeups.put(None)
            return None if self._closed and not group else group

    def _write_group(self, group: list[tuple[Write, Done]]) -> list[Outcome]:
        try:
            return list(self._store.write_many([write for write, _ in group])) if group else []
        except SennitError as error:
            return [error] * len(group)
        except Exception as error:  # or this thread would die, and all would wait forever
            failure = StoreError(
                f"Unexpected error while writing to the store ({error!r}); please report it."
            )
            failure.__cause__ = error
            return [failure] * len(group)


def _split_large(
    group: list[tuple[Write, Done]],
) -> tuple[list[tuple[Write, Done]], list[tuple[Write, Done]]]:
    """Split a group into small writes, and all writes of owners with a large one."""
    if len(group) == 1:
        return group, []
    large_owners = {write.owner for write, _ in group if _is_large(write)}
    small = [item for item in group if item[0].owner not in large_owners]
    return (
        (small, [item for item in group if item[0].owner in large_owners]) if small else (group, [])
    )


def _is_large(write: Write) -> bool:
    added = (change.messages for change in write.changes if isinstance(change, AddMessages))
    return any(
        len(messages) > _LARGE_WRITE_MESSAGES
        or sum(len(change.body) for change in messages) > _LARGE_WRITE_BYTES
        for messages in added
    )
