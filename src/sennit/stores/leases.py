"""Lease rules, the same for every store.

A lease is held until it expires or is released. Its token is a fencing token: it grows with each
holder, so that a writer that lost its lease without noticing is refused.

`now` and `expires` are microseconds of one clock that all users of the store share: the server's on
PostgreSQL, the machine's monotonic clock elsewhere. Wall clocks may differ by more than a lease.
"""

from __future__ import annotations

from uuid import UUID

from sennit import clock, process
from sennit.errors import ConflictError
from sennit.stores.records.sessions import Lease


def monotonic_us() -> int:
    """Return the machine's monotonic clock in microseconds."""
    return int(clock.monotonic() * 1_000_000)


def next_lease(last: Lease | None, branch: UUID, holder: str, ttl: int, now: int) -> Lease:
    """Return the lease that follows `last`; raises ConflictError while another holder has it."""
    if last is not None and last.holder != holder and is_live(last, now):
        seconds = -(-(last.expires - now) // 1_000_000)
        who = process.in_words(last.holder.partition("/")[0])
        raise ConflictError(
            f"The branch is busy: {who} is answering on it. Try again when that has ended; if it "
            f"has died, the branch is free in {seconds} s.",
            holder=last.holder,
        )
    return Lease(branch, holder, 1 if last is None else last.token + 1, now + ttl)


def extend(last: Lease | None, lease: Lease, ttl: int, now: int) -> Lease:
    """Return an extended lease; raises ConflictError if it was lost or released."""
    if not is_held(last, lease):
        raise ConflictError(
            "Another run has taken over this branch. Refresh the session, and try again once that "
            "run has ended."
        )
    return Lease(lease.branch, lease.holder, lease.token, now + ttl)


def is_held(last: Lease | None, lease: Lease) -> bool:
    """Return whether a lease is still the last one, and was not released."""
    if last is None or last.expires == 0:
        return False
    return (last.holder, last.token) == (lease.holder, lease.token)


def is_live(last: Lease | None, now: int) -> bool:
    """Return whether the last lease of a branch has not expired."""
    return last is not None and last.expires > now


def released(lease: Lease) -> Lease:
    """Return a lease as released: it expires at 0 and keeps its token."""
    return Lease(lease.branch, lease.holder, lease.token, 0)
