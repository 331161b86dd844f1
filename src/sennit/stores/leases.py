"""Who may run turns on a branch: the rules, the same for every store.

A lease is held until it expires or is given back. Its token grows with each holder and is never
used again, so that whoever lost a lease without noticing can be refused.
"""

from __future__ import annotations

from uuid import UUID

from sennit import clock
from sennit.errors import ConflictError
from sennit.stores.records import Lease, Standing, TakeLease


def taken(last: Lease | None, branch: UUID, holder: str, ttl: int) -> Lease:
    """The lease for a new holder, after `last`; raises ConflictError while another holds it."""
    now = clock.now_us()
    if last is not None and last.holder != holder and last.expires > now:
        raise ConflictError(
            f"Branch {branch} is held by {last.holder!r} until {clock.to_iso(last.expires)}; "
            f"wait until then, or until it is released.",
            holder=last.holder,
        )
    return Lease(branch, holder, 1 if last is None else last.token + 1, now + ttl)


def taken_as_known(last: Lease | None, change: TakeLease, found: Standing) -> tuple[Lease, bool]:
    """The same for a taker who knows something, and whether the branch stands so.

    If it does not, the token grows by two: the next one is never used, so nothing can be written
    with it. A lease that the same holder has with the next token was taken by this very change, of
    which the acknowledgement was lost; what came with it was made then.
    """
    lease = taken(last, change.branch, change.holder, change.ttl)
    if change.known is None:
        return lease, True
    again = change.known.token + 1
    if last is not None and (last.holder, last.token) == (change.holder, again):
        return Lease(change.branch, change.holder, again, lease.expires), True
    if found == change.known:
        return lease, True
    return Lease(change.branch, change.holder, lease.token + 1, lease.expires), False


def renewed(last: Lease | None, lease: Lease, ttl: int) -> Lease:
    """The same lease for longer; raises ConflictError if it was lost or given back."""
    if not is_held(last, lease):
        raise ConflictError(
            f"{lease.holder!r} no longer holds branch {lease.branch} with token {lease.token}; "
            f"stop writing, or acquire it again."
        )
    return Lease(lease.branch, lease.holder, lease.token, clock.now_us() + ttl)


def is_held(last: Lease | None, lease: Lease) -> bool:
    """Whether nobody has taken the lease since, and it was not given back."""
    if last is None or last.expires == 0:
        return False
    return (last.holder, last.token) == (lease.holder, lease.token)


def ended(lease: Lease) -> Lease:
    """A lease that was given back: nobody holds it, and its token stays used."""
    return Lease(lease.branch, lease.holder, lease.token, 0)
