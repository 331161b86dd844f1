"""A branch lease, renewed by a heartbeat while a run holds it.

A holder that died is recognised at once on the same machine and in the same PID namespace, and
elsewhere when its lease has expired. A holder that is brief, such as a decision being recorded, is
waited for; a run only if that is wanted. One that is to be interrupted is cancelled if it is in
this process. In another one it loses its lease: it can write nothing more, and what it leaves
behind is treated as after a crash.
"""

from __future__ import annotations

from asyncio import (
    CancelledError,
    Task,
    create_task,
    ensure_future,
    get_running_loop,
    sleep,
    to_thread,
)
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sennit import process
from sennit.errors import ConflictError, SennitError
from sennit.finish_uncancelled import finish_uncancelled
from sennit.ids import new_id
from sennit.sessions.branch import LeaseTerms
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import Lease
from sennit.turns.recovery import UnfinishedRun, unfinished

_TTL = 30_000_000  # microseconds without a sign of life
_BEAT = 10.0  # seconds between two of them
_TRIES, _PAUSE = 100, 0.02  # how often, and seconds in between, while the holder is brief
_LOOK = 0.1  # seconds between two looks while a run has it
_BRIEF = "/brief"
_T = TypeVar("_T")

MakeWay = Callable[[str], Awaitable[None]]
"""Is told which run has a branch that another one waits for."""


@dataclass(slots=True)
class BranchLease:
    """A branch that is held, as it was found."""

    lease: Lease
    seq: int
    """The number of its last event."""
    left: UnfinishedRun | None
    """Its last run, if that is not over."""
    released: bool = False
    """Whether it was given back already, with what was written last."""


def new_holder(*, brief: bool = False) -> str:
    """Name the next holder of a branch: this process, and one of its runs or brief changes."""
    return f"{process.identity()}/{new_id().hex}{_BRIEF if brief else ''}"


def first_lease() -> LeaseTerms:
    """Terms for a branch that is made for a run which begins at once."""
    return LeaseTerms(new_holder(), _TTL)


@asynccontextmanager
async def held(
    runs: RunRepository, holder: str, make_way: MakeWay | None = None
) -> AsyncGenerator[BranchLease]:
    """Hold a branch; raises ConflictError if another run has it and is alive.

    With `make_way` it is waited for instead, and that is told each time who has it.
    """
    if not runs.durable:
        found = await _patient(partial(_found_now, runs, holder), make_way)
        try:
            yield found
        finally:
            if not found.released:
                runs.release(found.lease)
        return
    found = await _patient(partial(_found_undisturbed, runs, holder), make_way)
    beating = _Beating(runs, found)
    try:
        yield found
    finally:
        beating.stop()
        if not found.released:
            await finish_uncancelled(_given_back(runs, found.lease))


async def _patient(
    take: Callable[[], Awaitable[BranchLease]], make_way: MakeWay | None
) -> BranchLease:
    """Take a branch; raises ConflictError if a run has it, or something brief for too long."""
    tries = 0
    while True:
        try:
            return await take()
        except ConflictError as error:
            brief = error.holder.endswith(_BRIEF) and tries < _TRIES
            if not brief and (make_way is None or not error.holder):
                raise
            if not brief and make_way is not None:
                await make_way(error.holder)
        tries += 1
        await sleep(_PAUSE if brief else _LOOK)


async def take_away(runs: RunRepository, holder: str) -> None:
    """End the lease of a run in another process, unless it has given that back meanwhile."""
    with suppress(ConflictError):
        await finish_uncancelled(to_thread(_take_away, runs, holder))


def _take_away(runs: RunRepository, holder: str) -> None:
    # in its place, so that nobody else is pushed out
    runs.release(runs.acquire(holder, 1))


async def _found_now(runs: RunRepository, holder: str) -> BranchLease:
    return _found(runs, holder)


async def _found_undisturbed(runs: RunRepository, holder: str) -> BranchLease:
    """Hold it with what others write; nearly always that tells all there is to know.

    Being cancelled meanwhile gives it back, as it is taken all the same.
    """
    taking = runs.take(holder, _TTL)
    try:
        if taking.written is not None:
            await _or_given_back(runs, taking.written, lambda _: taking.taken.lease)
    except ConflictError as error:
        if not is_dead(error.holder):
            raise
        return await _in_thread(runs, partial(_found, runs, holder))
    taken = taking.taken
    if taking.as_known and (taken.run is None or taken.run.state == "ended"):
        return BranchLease(taken.lease, taken.seq, None)
    return await _in_thread(runs, partial(_looked_at, runs, taken.lease))


async def _in_thread(runs: RunRepository, take: Callable[[], BranchLease]) -> BranchLease:
    return await _or_given_back(runs, to_thread(take), lambda found: found.lease)


async def _or_given_back(
    runs: RunRepository, work: Awaitable[_T], lease_in: Callable[[_T], Lease]
) -> _T:
    """Return the result of work; if cancelled, wait for it and release its lease."""
    taking = ensure_future(work)
    try:
        return await finish_uncancelled(taking)
    except CancelledError:
        if taking.exception() is None:
            await finish_uncancelled(_given_back(runs, lease_in(taking.result())))
        raise


async def _given_back(runs: RunRepository, lease: Lease) -> None:
    with suppress(SennitError):  # then it runs out by itself
        await get_running_loop().run_in_executor(None, runs.release, lease)


def _found(runs: RunRepository, holder: str) -> BranchLease:
    return _looked_at(runs, _taken(runs, holder))


def _looked_at(runs: RunRepository, lease: Lease) -> BranchLease:
    # Read once it is held: nobody else changes it any more.
    try:
        return BranchLease(lease, runs.last_seq(), unfinished(runs))
    except BaseException:
        runs.release(lease)
        raise


def _taken(runs: RunRepository, holder: str) -> Lease:
    ttl = _TTL if runs.durable else 1_000_000 * _TTL
    try:
        return runs.acquire(holder, ttl)
    except ConflictError as error:
        if not is_dead(error.holder):
            raise
        _take_away(runs, error.holder)
        return runs.acquire(holder, ttl)


def is_own(holder: str) -> bool:
    """Return whether a holder is a run of this process."""
    return holder.partition("/")[0] == process.identity()


def is_dead(holder: str) -> bool:
    """Return whether a holder was a process of this machine that has surely ended."""
    return process.is_gone(holder.partition("/")[0])


class _Beating:
    """Signs of life; most runs are over before the first, so until then it is only a timer."""

    def __init__(self, runs: RunRepository, held: BranchLease) -> None:
        self._runs, self._held = runs, held
        self._task: Task[None] | None = None
        self._timer = get_running_loop().call_later(_BEAT, self._begin)

    def stop(self) -> None:
        """No more of them."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = create_task(self._beat())

    async def _beat(self) -> None:
        with suppress(SennitError):  # once it is lost, the next write says so
            while True:
                self._held.lease = await to_thread(self._runs.renew, self._held.lease, _TTL)
                await sleep(_BEAT)
