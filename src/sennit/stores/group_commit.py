"""Group commit: many writers share one transaction.

An async caller must not block its loop while a disk turns, and a thread per write costs more than
the write. So async writes go to one thread per store, which takes all that has come in, makes it
durable in one transaction, and tells everyone. While it waits for the disk, the next group gathers,
and a loop wakes the thread when it has run all that was ready: so a group holds what all of that
has to write, and the two threads have fewer turns.
The writes of an owner who has a large one among them come after those of all others, in a group of
their own, so that nobody waits for what another owner has to say at length.
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

_LARGEST = 1000
_MANY = 64  # messages of a write that others do not wait for
_BYTES = 65_536


class GroupCommitter:
    """Writes for those who do not want to wait; each is told when its write is durable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Write, Done]] = []
        self._later: list[tuple[Write, Done]] = []  # the next group, if there is anything in it
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung for all that wait, and at the end
        self._soon: Callable[[Wake], None] | None = None  # whose loop rings it
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False
        after_fork.watch(self)

    def disown(self) -> list[object]:
        """Start anew in a forked child, where the thread is not; the store refuses the writes."""
        self._waiting, self._later, self._bell, self._lock = [], [], SimpleQueue(), Lock()
        self._thread = None
        return []

    def submit(self, write: Write, done: Done, soon: Callable[[Wake], None] | None) -> None:
        """Have a write made; `done` is called in the writer's thread, in the order of commits.

        `soon` wakes that thread once the caller's loop has run all that is ready; None if there is
        no loop here. `done` gives what wakes whoever waits, which is called when all of a group
        know, once for those it is the same for: woken one by one, they would come back one by one,
        in smaller groups.
        """
        with self._lock:
            if self._closed:
                raise StoreError("The store is closed; open it again.")
            if self._thread is None:
                self._thread = Thread(target=self._work, name="sennit-writer", daemon=True)
                self._thread.start()
            self._waiting.append((write, done))
            if soon is None or soon != self._soon:  # nobody waits for another loop
                self._bell.put(None)
            elif len(self._waiting) == 1 and not self._later:
                soon(partial(self._bell.put, None))
            self._soon = soon

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._bell.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            outcomes = zip(group, self._written(group), strict=True)
            for wake in {done(outcome) for (_, done), outcome in outcomes}:
                wake()

    def _next_group(self) -> list[tuple[Write, Done]] | None:
        """Return the next group of writes, empty if it was taken already; None at the end."""
        self._bell.get()
        with self._lock:
            group, self._later = self._later, []
            if not group:
                come_in, self._waiting = self._waiting[:_LARGEST], self._waiting[_LARGEST:]
                group, self._later = _quick_first(come_in)
            if self._waiting or self._later or self._closed:  # or its loop has ended before
                self._bell.put(None)
            return None if self._closed and not group else group

    def _written(self, group: list[tuple[Write, Done]]) -> list[Outcome]:
        try:
            return list(self._store.write_many([write for write, _ in group])) if group else []
        except SennitError as error:
            return [error] * len(group)
        except Exception as error:  # or this thread would end, and all would wait for ever
            failed = StoreError(
                f"Unexpected error while writing to the store ({error!r}); please report it."
            )
            failed.__cause__ = error
            return [failed] * len(group)


def _quick_first(
    group: list[tuple[Write, Done]],
) -> tuple[list[tuple[Write, Done]], list[tuple[Write, Done]]]:
    """Part the writes of those who have a large one from all others, which come first."""
    if len(group) == 1:
        return group, []
    large = {write.owner for write, _ in group if _is_large(write)}
    quick = [one for one in group if one[0].owner not in large]
    return (quick, [one for one in group if one[0].owner in large]) if quick else (group, [])


def _is_large(write: Write) -> bool:
    added = (one.messages for one in write.changes if isinstance(one, AddMessages))
    return any(
        len(messages) > _MANY or sum(len(one.body) for one in messages) > _BYTES
        for messages in added
    )
