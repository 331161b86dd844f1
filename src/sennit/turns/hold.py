"""Holding a branch while something runs on it, with a sign of life now and then.

Whoever holds a branch and dies is recognised at once on the same machine, elsewhere when its lease
has run out.
"""

from __future__ import annotations

import os
from asyncio import create_task, sleep, to_thread
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from platform import node

from sennit.errors import ConflictError, SennitError
from sennit.sessions.runs import BranchRuns
from sennit.stores.records import Lease
from sennit.turns.recovery import Unfinished

_TTL = 30_000_000  # microseconds without a sign of life


@asynccontextmanager
async def held(
    runs: BranchRuns, holder: str, left: Unfinished | None
) -> AsyncGenerator[tuple[Lease, int]]:
    """Hold a branch; gives the lease and the number of its last event.

    Raises ConflictError if another run has it and is alive. `left` is the run that had it last.
    """
    if not runs.durable:
        lease = _taken(runs, holder, left)
        try:
            yield lease, runs.last_seq()
        finally:
            runs.release(lease)
        return
    lease, seq = await to_thread(lambda: (_taken(runs, holder, left), runs.last_seq()))
    beating = create_task(_keep_holding(runs, lease))
    try:
        yield lease, seq
    finally:
        beating.cancel()
        with suppress(SennitError):  # then it runs out by itself
            await to_thread(runs.release, lease)


def _taken(runs: BranchRuns, holder: str, left: Unfinished | None) -> Lease:
    ttl = _TTL if runs.durable else 1_000_000 * _TTL
    try:
        return runs.acquire(holder, ttl)
    except ConflictError:
        before = "" if left is None else str(left.notes.get("holder", ""))
        if not _is_dead(before):
            raise
        runs.release(runs.acquire(before, 1))  # in its place, so that nobody else is pushed out
        return runs.acquire(holder, ttl)


def _is_dead(holder: str) -> bool:
    """Whether a holder was a process of this machine that is gone."""
    machine, _, rest = holder.partition("/")
    process = rest.partition("/")[0]
    if machine != node() or not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


async def _keep_holding(runs: BranchRuns, lease: Lease) -> None:
    with suppress(SennitError):  # once it is lost, the next write says so
        while True:
            await sleep(_TTL / 3_000_000)
            lease = await to_thread(runs.renew, lease, _TTL)
