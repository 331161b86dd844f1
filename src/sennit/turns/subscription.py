"""Subscription to the events of a branch, also of runs in other processes.

A run in this process pushes its durable events to subscribers. Runs of other processes are polled
from the store. Either way there are no gaps: missing sequence numbers are read from the store.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Queue, get_running_loop, sleep, timeout
from collections import deque
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from sennit.blocking import run_blocking
from sennit.errors import ValidationError, short_repr
from sennit.messages.codec import loads
from sennit.sessions.run_repository import RunRepository
from sennit.turns.branch_lease import BusyHandler, is_dead, is_own, revoke_lease
from sennit.turns.events import AnyEvent, RunEnded
from sennit.turns.options import WhenBusy
from sennit.turns.recovery import shown_after
from sennit.turns.wait_graph import waiting_for

_POLL_SECONDS = 0.1  # while a run of another process is active
_BUSY_POLL_SECONDS = 0.1  # until a branch is free
_IDLE_POLL_SECONDS = 2.0  # while no run is active
_ALTERNATIVE = "'async for' or 'async with'"
_MAX_QUEUED_BATCHES = 256  # older ones are read from the store
_T = TypeVar("_T")

_lock = Lock()
# By store, owner and branch: other owners and stores may have the same branch id.
_subscribers: dict[Hashable, WeakSet[_Subscriber]] = {}
_holders: dict[Hashable, str] = {}  # of runs in this process, by branch
_running: dict[str, Callable[[], None]] = {}  # functions that stop runs, by holder


class _Subscriber:
    """A subscriber's queue on one event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: Queue[tuple[str, list[AnyEvent]]] = Queue()
        """Batches of events with the lease holder of their run."""

    def publish(self, holder: str, events: list[AnyEvent]) -> None:
        """Queue events from any thread; an empty batch makes the subscriber read the store."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._enqueue, holder, events)

    def _enqueue(self, holder: str, events: list[AnyEvent]) -> None:
        # A slow subscriber loses the oldest, sees the gap and reads the store.
        while self.queue.qsize() >= _MAX_QUEUED_BATCHES:
            self.queue.get_nowait()
        self.queue.put_nowait((holder, events))

    def clear(self) -> None:
        """Drop the queued events; the store has them."""
        while not self.queue.empty():
            self.queue.get_nowait()


@contextmanager
def mark_running(runs: RunRepository, holder: str, stop: Callable[[], None]) -> Generator[None]:
    """Register an active run of this process, so that its subscribers need not poll the store.

    `stop` is called, from any thread, to interrupt the run for another one.
    """
    branch_key = runs.place
    _running[holder], _holders[branch_key] = stop, holder
    try:
        yield
    finally:
        del _running[holder]
        if _holders.get(branch_key) == holder:  # unless another run has taken over
            del _holders[branch_key]
        publish_to_subscribers(runs, holder, [])


def busy_handler(runs: RunRepository, when_busy: WhenBusy) -> BusyHandler | None:
    """Return the handler for a busy branch, which pauses; None if the run is refused."""

    async def wait(holder: str) -> None:
        with waiting_for(holder):
            await sleep(_BUSY_POLL_SECONDS)

    async def interrupt(holder: str) -> None:
        if not is_own(holder):
            await revoke_lease(runs, holder)
        elif (stop := _running.get(holder)) is not None:
            stop()
        await sleep(_BUSY_POLL_SECONDS)

    return {"error": None, "wait": wait, "interrupt": interrupt}[when_busy]


def publish_to_subscribers(runs: RunRepository, holder: str, events: list[AnyEvent]) -> None:
    """Push stored events of a branch to its subscribers; those without a number are not."""
    unstored = bool(events) and not events[0].seq
    if _subscribers and not unstored:
        with _lock:
            subscribers = list(_subscribers.get(runs.place, ()))
        for subscriber in subscribers:
            subscriber.publish(holder, events)


def has_active_run(runs: RunRepository) -> bool:
    """Return whether a run is active on a branch, in this process or another live one."""
    return bool(_active_holder(runs))


def _active_holder(runs: RunRepository) -> str:
    """Return the holder of a branch with an active run; "" if there is none."""
    if (local_holder := _holders.get(runs.place)) is not None:  # the store may not have it yet
        return local_holder
    last = runs.last()
    if last is None or last.state != "running":
        return ""
    holder = str(loads(last.body).get("holder", ""))
    if is_own(holder):
        return holder if holder in _running else ""
    return holder if not is_dead(holder) and runs.is_leased() else ""


def _subscribe(branch_key: Hashable) -> _Subscriber:
    subscriber = _Subscriber(get_running_loop())
    with _lock:
        _subscribers.setdefault(branch_key, WeakSet()).add(subscriber)
    return subscriber


def _unsubscribe(branch_key: Hashable, subscriber: _Subscriber) -> None:
    with _lock:
        subscribers = _subscribers.get(branch_key, WeakSet())
        subscribers.discard(subscriber)
        if not subscribers:
            _subscribers.pop(branch_key, None)


class Subscription:
    """The events of a branch after a sequence number, for `for` and `async for`, best in a block.

    It ends with the active run, or without one after the last stored event. A run whose process
    died counts as ended until it is resumed. Leaving early does not stop the run. With `follow`
    the iterator does not end: it waits for later runs.
    """

    def __init__(self, runs: RunRepository, after: int, *, follow: bool = False) -> None:
        if type(after) is not int or after < 0:
            raise ValidationError(
                f"after must be the number of an event, or 0 for all, got {short_repr(after)}."
            )
        self._runs, self._after, self._follow = runs, after, follow
        self._holder = ""
        """The holder of the run that was active at the last read."""
        self._ready: deque[AnyEvent] = deque()
        self._subscriber: _Subscriber | None = None
        self._has_read = False
        self._finished = False

    async def __aenter__(self) -> Subscription:
        self._ensure_subscribed()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    def __aiter__(self) -> Subscription:
        return self

    def __enter__(self) -> Subscription:
        run_blocking(self.__aenter__(), _ALTERNATIVE)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __iter__(self) -> Generator[AnyEvent]:
        while self._ready or run_blocking(self._has_more(), _ALTERNATIVE):
            yield self._next_ready()

    async def __anext__(self) -> AnyEvent:
        await self._wait()
        if not self._ready:
            raise StopAsyncIteration
        return self._next_ready()

    async def _has_more(self) -> bool:
        await self._wait()
        return bool(self._ready)

    def _next_ready(self) -> AnyEvent:
        event = self._ready.popleft()
        self._after = event.seq
        return event

    async def batch(self) -> list[AnyEvent]:
        """Return all available events, waiting for at least one; an empty list at the end."""
        await self._wait()
        events = list(self._ready)
        self._ready.clear()
        if events:
            self._after = events[-1].seq
        return events

    async def _wait(self) -> None:
        while not self._ready and not self._finished:
            await self._fetch(self._ensure_subscribed())
        if not self._ready:
            self._close()

    def _ensure_subscribed(self) -> _Subscriber:
        if self._subscriber is None:
            self._subscriber = _subscribe(self._runs.place)
        return self._subscriber

    def _close(self) -> None:
        self._finished = True
        if self._subscriber is not None:
            _unsubscribe(self._runs.place, self._subscriber)

    async def _fetch(self, subscriber: _Subscriber) -> None:
        """Wait for pushed events; read the store at first, after a timeout and after a gap."""
        received = await self._receive(subscriber) if self._has_read else []
        if received and received[0].seq <= self._after + 1:
            self._enqueue(received)
            return
        # before the events, so that none is missed
        self._holder = await self._read(lambda: _active_holder(self._runs))
        self._enqueue([*await self._read(lambda: shown_after(self._runs, self._after)), *received])
        self._has_read = True
        if not self._follow:
            self._finished = self._finished or not (self._ready or self._holder)

    def _enqueue(self, events: list[AnyEvent]) -> None:
        last = self._after
        for event in events:
            if event.seq > last:
                self._ready.append(event)
                last = event.seq

    async def _receive(self, subscriber: _Subscriber) -> list[AnyEvent]:
        """Return the next pushed events; an empty list when the store has to be read."""
        # Another Client of the same database server gets no pushes here: it has to poll.
        is_local = bool(self._holder) and _holders.get(self._runs.place) == self._holder
        poll_seconds = _IDLE_POLL_SECONDS if self._follow and not self._holder else _POLL_SECONDS
        with suppress(TimeoutError):
            async with timeout(None if is_local else poll_seconds):
                holder, events = await subscriber.queue.get()
                if holder != self._holder:  # a new run
                    subscriber.clear()
                    return []
                ended = bool(events) and isinstance(events[-1], RunEnded)
                self._finished = ended and not self._follow
                return events
        return []

    async def _read(self, read: Callable[[], _T]) -> _T:
        return await self._runs.read(read)
