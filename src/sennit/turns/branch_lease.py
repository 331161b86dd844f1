"""A branch lease, renewed by a heartbeat while a run holds it.

A dead holder is detected at once on the same machine and in the same PID namespace, and elsewhere
when its lease expires. A brief holder, such as an approval being recorded, is waited for; a run
only if `when_busy` says so. A run to be interrupted is cancelled if it is in this process. In
another process it loses its lease: it can write nothing more, and is recovered as after a crash.
"""

from __future__ import annotations

from asyncio import (
    CancelledError,
    Task,
    create_task,
    ensure_future,
    get_running_loop,
    sleep,
)
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sennit import process
from sennit.errors import ConflictError, SennitError
from sennit.finish_uncancelled import finish_uncancelled
from sennit.ids import new_id
from sennit.messages.codec import loads
from sennit.sessions.branch import LeaseTerms
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import Lease, RunRecord
from sennit.turns.recovery import UnfinishedRun, find_unfinished_run

_LEASE_TTL_US = 30_000_000  # without a heartbeat
_HEARTBEAT_SECONDS = 10.0  # between two renewals
_BRIEF_RETRIES, _BRIEF_RETRY_SECONDS = 100, 0.02
_BRIEF_SUFFIX = "/brief"
_T = TypeVar("_T")

BusyHandler = Callable[[str], Awaitable[None]]
"""Called with the holder of a busy branch; returns when the lease should be tried again."""


@dataclass(slots=True)
class BranchLease:
    """A held lease, and the state of the branch when it was acquired."""

    lease: Lease
    seq: int
    """The sequence number of the last event."""
    unfinished_run: UnfinishedRun | None
    """The last run, if it has not ended."""
    last_run: RunRecord | None = None
    """The last run, if there was any."""
    released: bool = False
    """True if the last write has released the lease."""

    @property
    def last_prompt(self) -> list[Any] | None:
        """The note of its last prompt in the record of the last run, if there is one."""
        return None if self.last_run is None else loads(self.last_run.body).get("prompt")


def new_holder(*, brief: bool = False) -> str:
    """Return a new holder id: this process, and one of its runs or brief changes."""
    return f"{process.identity()}/{new_id().hex}{_BRIEF_SUFFIX if brief else ''}"


def first_lease() -> LeaseTerms:
    """Return lease terms for a branch that is created for a run."""
    return LeaseTerms(new_holder(), _LEASE_TTL_US)


@asynccontextmanager
async def hold_lease(
    runs: RunRepository, holder: str, on_busy: BusyHandler | None = None
) -> AsyncGenerator[BranchLease]:
    """Hold the lease of a branch; raise ConflictError if another live run holds it.

    With `on_busy` the lease is waited for, and `on_busy` is awaited with the holder on each retry.
    """
    branch_lease = await _acquire_with_retries(runs, holder, on_busy)
    beating = _Heartbeat(runs, branch_lease)
    try:
        yield branch_lease
    finally:
        beating.stop()
        if not branch_lease.released:
            await finish_uncancelled(_release(runs, branch_lease.lease))


async def _acquire_with_retries(
    runs: RunRepository, holder: str, on_busy: BusyHandler | None
) -> BranchLease:
    """Acquire a lease; raise ConflictError if a run holds it, or a brief holder for too long."""
    retries = 0
    while True:
        try:
            return await _acquire(runs, holder)
        except ConflictError as error:
            brief = error.holder.endswith(_BRIEF_SUFFIX) and retries < _BRIEF_RETRIES
            if not brief and (on_busy is None or not error.holder):
                raise
            if brief or on_busy is None:
                await sleep(_BRIEF_RETRY_SECONDS)
            else:
                await on_busy(error.holder)
        retries += 1


async def revoke_lease(runs: RunRepository, holder: str) -> None:
    """End the lease of a run in another process, unless that has released it."""
    with suppress(ConflictError):
        await finish_uncancelled(runs.read(partial(_revoke, runs, holder)))


def _revoke(runs: RunRepository, holder: str) -> None:
    # as the same holder, so that nobody else loses the lease
    runs.release(runs.acquire(holder, 1))


async def _acquire(runs: RunRepository, holder: str) -> BranchLease:
    """Acquire the lease in a group commit, which nearly always returns the whole branch state.

    If cancelled, release the lease once it is acquired.
    """
    try:
        grant, as_known = await _release_if_cancelled(
            runs, runs.take(holder, _LEASE_TTL_US), lambda acquisition: acquisition.grant.lease
        )
    except ConflictError as error:
        if not is_dead(error.holder):
            raise
        return await _load_in_thread(runs, partial(_take_over, runs, holder, error.holder))
    if as_known and (grant.run is None or grant.run.state == "ended"):
        return BranchLease(grant.lease, grant.seq, None, grant.run)
    return await _load_in_thread(runs, lambda: grant.lease)


async def _load_in_thread(runs: RunRepository, acquire: Callable[[], Lease]) -> BranchLease:
    return await _release_if_cancelled(
        runs, runs.read(lambda: _load(runs, acquire())), lambda branch_lease: branch_lease.lease
    )


async def _release_if_cancelled(
    runs: RunRepository, work: Awaitable[_T], lease_in: Callable[[_T], Lease]
) -> _T:
    """Return the result of work; if cancelled, wait for it and release its lease."""
    task = ensure_future(work)
    try:
        return await finish_uncancelled(task)
    except CancelledError:
        if task.exception() is None:
            await finish_uncancelled(_release(runs, lease_in(task.result())))
        raise


async def _release(runs: RunRepository, lease: Lease) -> None:
    with suppress(SennitError):  # then it expires
        await runs.read(partial(runs.release, lease))


def _load(runs: RunRepository, lease: Lease) -> BranchLease:
    # Read under the lease, when nobody else writes.
    try:
        unfinished_run = find_unfinished_run(runs)
        last_run = runs.last() if unfinished_run is None else unfinished_run.record
        return BranchLease(lease, runs.last_seq(), unfinished_run, last_run)
    except BaseException:
        runs.release(lease)
        raise


def _take_over(runs: RunRepository, holder: str, dead: str) -> Lease:
    with suppress(ConflictError):
        _revoke(runs, dead)
    return runs.acquire(holder, _LEASE_TTL_US)


def is_own(holder: str) -> bool:
    """Return whether a holder is a run of this process."""
    return holder.partition("/")[0] == process.identity()


def is_dead(holder: str) -> bool:
    """Return whether a holder was a process of this machine that has ended."""
    return process.is_gone(holder.partition("/")[0])


class _Heartbeat:
    """Lease renewal; a mere timer until the first, as most runs end before it."""

    def __init__(self, runs: RunRepository, branch_lease: BranchLease) -> None:
        self._runs, self._branch_lease = runs, branch_lease
        self._task: Task[None] | None = None
        self._timer = get_running_loop().call_later(_HEARTBEAT_SECONDS, self._start)

    def stop(self) -> None:
        """Stop the renewals."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = create_task(self._renew())

    async def _renew(self) -> None:
        with suppress(SennitError):  # a lost lease fails the next write
            while True:
                lease = self._branch_lease.lease
                self._branch_lease.lease = await self._runs.read(
                    partial(self._runs.renew, lease, _LEASE_TTL_US)
                )
                await sleep(_HEARTBEAT_SECONDS)
