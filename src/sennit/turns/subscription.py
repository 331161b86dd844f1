"""Subscription to the events of a run, also one of another process.

A run in this program hands over what it shows, as soon as that is durable. What another program
runs is looked for in the store now and then. Either way there are no gaps: whatever lies between
what was seen and what is heard is read from the store.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Queue, get_running_loop, timeout, to_thread
from collections import deque
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

from sennit.errors import ValidationError, shown
from sennit.messages.codec import loads
from sennit.sessions.run_repository import RunRepository
from sennit.turns.branch_lease import MakeWay, is_dead, is_own, take_away
from sennit.turns.events import AnyEvent, RunEnded
from sennit.turns.options import WhenBusy
from sennit.turns.recovery import shown_after

_LOOK = 0.1  # seconds between two looks at a run of another program
_IDLE = 2.0  # the same while no run is under way
_MOST_HEARD = 256  # what is told beyond that is read from the store, when there is time for it
_T = TypeVar("_T")

_lock = Lock()
# By the place of a branch, never by its id alone: other owners and stores may have that id too.
_ears: dict[Hashable, WeakSet[_Ear]] = {}
_holders: dict[Hashable, str] = {}  # of the runs in this process, by the place of their branch
_running: dict[str, Callable[[], None]] = {}  # how to stop runs, by their holders


class _Ear:
    """A subscriber's queue on one event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.heard: Queue[tuple[str, list[AnyEvent]]] = Queue()
        """Who holds the branch, and what that run told."""

    def tell(self, holder: str, events: list[AnyEvent]) -> None:
        """Called wherever the run is; the loop may have ended meanwhile. No events: go and look."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, holder, events)

    def _take(self, holder: str, events: list[AnyEvent]) -> None:
        # Whoever reads too slowly loses the oldest, sees the gap, and reads from the store.
        while self.heard.qsize() >= _MOST_HEARD:
            self.heard.get_nowait()
        self.heard.put_nowait((holder, events))

    def forget(self) -> None:
        """Forget what was told so far; the store has it."""
        while not self.heard.empty():
            self.heard.get_nowait()


@contextmanager
def running_here(runs: RunRepository, holder: str, stop: Callable[[], None]) -> Generator[None]:
    """While a run holds a branch, those who have joined it need not look at the store.

    `stop` is called, in any thread, if another run is to have the branch.
    """
    place = runs.place
    _running[holder], _holders[place] = stop, holder
    try:
        yield
    finally:
        del _running[holder]
        if _holders.get(place) == holder:  # not that of a run which has taken the branch away
            del _holders[place]
        tell_joined(runs, holder, [])


def way_of(runs: RunRepository, when_busy: WhenBusy) -> MakeWay | None:
    """Return how a run handles a busy branch; None if it is refused."""

    async def interrupt(holder: str) -> None:
        if not is_own(holder):
            await take_away(runs, holder)
        elif (stop := _running.get(holder)) is not None:
            stop()

    async def wait(_: str) -> None:
        """Do nothing about it."""

    return {"error": None, "wait": wait, "interrupt": interrupt}[when_busy]


def tell_joined(runs: RunRepository, holder: str, events: list[AnyEvent]) -> None:
    """Pass on what has happened on a branch; an end that is not stored has no number."""
    unstored = bool(events) and not events[0].seq
    if _ears and not unstored:
        with _lock:
            ears = list(_ears.get(runs.place, ()))
        for ear in ears:
            ear.tell(holder, events)


def is_under_way(runs: RunRepository) -> bool:
    """Return whether a run is under way on a branch, here or in another program that is alive."""
    return bool(_holder(runs))


def _holder(runs: RunRepository) -> str:
    """Return the holder of a branch with an active run; "" if there is none."""
    if (here := _holders.get(runs.place)) is not None:  # though the store may not have it yet
        return here
    last = runs.last()
    if last is None or last.state != "running":
        return ""
    holder = str(loads(last.body).get("holder", ""))
    if is_own(holder):
        return holder if holder in _running else ""
    return holder if not is_dead(holder) and runs.is_leased() else ""


def _listen(place: Hashable) -> _Ear:
    ear = _Ear(get_running_loop())
    with _lock:
        _ears.setdefault(place, WeakSet()).add(ear)
    return ear


def _stop_listening(place: Hashable, ear: _Ear) -> None:
    with _lock:
        ears = _ears.get(place, WeakSet())
        ears.discard(ear)
        if not ears:
            _ears.pop(place, None)


class Subscription:
    """The events of a branch past a number, as they come: an async iterator, best in `async with`.

    It ends when the run that is under way has ended; without one, with the last event there is. A
    run whose program has died is over too, until someone resumes it. Leaving early stops nothing.
    With `follow` it does not end: the events of later runs come too.
    """

    def __init__(self, runs: RunRepository, after: int, *, follow: bool = False) -> None:
        if type(after) is not int or after < 0:
            raise ValidationError(
                f"after must be the number of an event, or 0 for all, got {shown(after)}."
            )
        self._runs, self._after, self._follow = runs, after, follow
        self._holder = ""
        """Who holds the branch, if a run was under way at the last look."""
        self._ready: deque[AnyEvent] = deque()
        self._ear: _Ear | None = None
        self._waiting = False
        self._over = False

    async def __aenter__(self) -> Subscription:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> AnyEvent:
        await self._wait()
        if not self._ready:
            raise StopAsyncIteration
        event = self._ready.popleft()
        self._after = event.seq
        return event

    async def batch(self) -> list[AnyEvent]:
        """All events there are, at least one; none at the end."""
        await self._wait()
        events = list(self._ready)
        self._ready.clear()
        if events:
            self._after = events[-1].seq
        return events

    async def _wait(self) -> None:
        while not self._ready and not self._over:
            await self._go_on(self._begin())
        if not self._ready:
            self._end()

    def _begin(self) -> _Ear:
        if self._ear is None:
            self._ear = _listen(self._runs.place)
        return self._ear

    def _end(self) -> None:
        self._over = True
        if self._ear is not None:
            _stop_listening(self._runs.place, self._ear)

    async def _go_on(self, ear: _Ear) -> None:
        """Hear or read what comes next; the first time, and if nothing is heard, it is read."""
        heard = await self._hear(ear) if self._waiting else []
        if heard and heard[0].seq <= self._after + 1:
            self._take(heard)
            return
        # before reading, so that nothing is missed
        self._holder = await self._look(lambda: _holder(self._runs))
        self._take([*await self._look(lambda: shown_after(self._runs, self._after)), *heard])
        self._waiting = True
        if not self._follow:
            self._over = self._over or not (self._ready or self._holder)

    def _take(self, events: list[AnyEvent]) -> None:
        last = self._after
        for event in events:
            if event.seq > last:
                self._ready.append(event)
                last = event.seq

    async def _hear(self, ear: _Ear) -> list[AnyEvent]:
        """Return the next event of this process; None when it is time to read the store."""
        # A client that has connected to the same server again is told nothing here: it has to look.
        here = bool(self._holder) and _holders.get(self._runs.place) == self._holder
        elsewhere = _IDLE if self._follow and not self._holder else _LOOK
        with suppress(TimeoutError):
            async with timeout(None if here else elsewhere):
                holder, heard = await ear.heard.get()
                if holder != self._holder:  # a new run
                    ear.forget()
                    return []
                ended = bool(heard) and isinstance(heard[-1], RunEnded)
                self._over = ended and not self._follow
                return heard
        return []

    async def _look(self, at: Callable[[], _T]) -> _T:
        return await to_thread(at) if self._runs.durable else at()
