"""Leases: one holder at a time, until it expires; tokens only grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sennit import clock
from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.records.sessions import Append, Lease, TakeLease
from sennit.testing.conformance.fixtures import TTL, LeaseFixture, Scenario, raises, same

_HOUR_NS = 3_600_000_000_000


def _free(s: Scenario) -> LeaseFixture:
    """Return a branch whose lease was released."""
    door = LeaseFixture(s)
    door.release(door.lease)
    return door


def _held(door: LeaseFixture, holder: str) -> None:
    """Assert that a holder has the lease, and that others are refused in words for people."""
    error = raises(ConflictError, lambda: door.acquire("eve"), "Acquiring a held branch")
    same(error.holder, holder, "Who holds the branch")
    assert "is busy" in str(error), f"It does not say that the branch is busy: {error}"
    same(door.store.is_leased(*door.key), True, "Whether it is leased")


def _growing(leases: Sequence[Lease]) -> None:
    tokens = [lease.token for lease in leases]
    same(tokens, sorted(set(tokens)), "Tokens, each larger than those before")


def a_free_branch_can_be_leased_and_is_refused_to_others(s: Scenario) -> None:
    door = _free(s)
    same(door.store.is_leased(*door.key), False, "Whether a free branch is leased")
    lease = door.acquire("worker-7@host")
    same((lease.branch, lease.holder), (door.branch, "worker-7@host"), "Branch and holder")
    assert lease.expires > 0, f"A lease that is held expires some day, got {lease}"
    _held(door, "worker-7@host")
    door.beside()


def an_expired_or_released_lease_can_be_taken_over(s: Scenario) -> None:
    door = _free(s)
    leases = [door.acquire("ada", ttl=0)]
    same(door.store.is_leased(*door.key), False, "Whether an expired lease counts")
    leases.append(door.acquire("bob"))
    _held(door, "bob")
    door.release(leases[-1])
    for n in range(20):
        leases.append(door.acquire(f"holder {n}", ttl=TTL if n % 2 else 0))
        if n % 2:
            door.release(leases[-1])
    _growing(leases)


def wall_clocks_that_differ_neither_end_nor_prolong_a_lease(s: Scenario) -> None:
    door = _free(s)
    lease = door.acquire("ada")
    for hours in (-6, 6):
        wrong = clock.now_ns() + hours * _HOUR_NS
        with clock.wall_clock_from(lambda wrong=wrong: wrong):
            _held(door, "ada")
    door.release(lease)
    ahead = clock.now_ns() + 6 * _HOUR_NS
    with clock.wall_clock_from(lambda: ahead):
        door.acquire("ada", ttl=0)
    door.acquire("bob")


def the_same_holder_may_acquire_again(s: Scenario) -> None:
    door = _free(s)
    first, second = door.acquire("ada"), door.acquire("ada")
    _growing([first, second])
    assert second.expires >= first.expires, f"It ends sooner than before: {first}, {second}"
    raises(ConflictError, lambda: door.renew(first), "Renewing an older token")


def a_renewed_lease_holds_longer(s: Scenario) -> None:
    door = _free(s)
    lease = door.acquire("ada", ttl=0)
    renewed = door.renew(lease)
    same(renewed, replace(lease, expires=renewed.expires), "The renewed lease")
    assert renewed.expires > lease.expires, f"It does not last longer: {lease}, {renewed}"
    _held(door, "ada")
    same(door.renew(lease).token, lease.token, "Token after renewing an older copy")


def a_lost_lease_is_neither_renewed_nor_released(s: Scenario) -> None:
    door = _free(s)
    old = door.acquire("ada", ttl=0)
    new = door.acquire("bob")
    raises(ConflictError, lambda: door.renew(old), "Renewing a lost lease")
    door.release(old)
    _held(door, "bob")
    door.release(door.renew(new))
    raises(ConflictError, lambda: door.renew(old), "Renewing it after the next one ended")
    for _ in range(2):
        door.release(new)
    door.acquire("ada")


def an_unknown_or_removed_branch_cannot_be_leased(s: Scenario) -> None:
    door = LeaseFixture(s)
    s.remove("main")
    raises(NotFoundError, lambda: door.acquire("ada"), "Acquiring a removed branch")
    door.branch = new_id()
    raises(NotFoundError, lambda: door.acquire("ada"), "Acquiring an unknown branch")


def a_lease_changes_nothing_in_the_branch_and_stops_no_appends(s: Scenario) -> None:
    door, before = _free(s), s.stored()
    lease = door.renew(door.acquire("ada"))
    same(s.stored(), before, "The branch")
    s.append("main", "b").shows(main="ab")
    door.release(lease)
    same(s.stored().version, before.version, "Its version")


def a_lease_taken_among_changes_is_one_like_any_other(s: Scenario) -> None:
    door = _free(s)
    (head,) = s.write(TakeLease(door.branch, "bob", TTL)).heads
    assert head.taken is not None, "Taking a lease tells of it"
    _growing([door.lease, head.taken.lease])
    assert head.taken.lease.expires > door.lease.expires, "It expires later than the one before"
    same((head.length, head.taken.seq, head.taken.run), (1, 0, None), "How the branch stands")
    _held(door, "bob")
    door.renew(head.taken.lease)
    changes = s.adding("b"), Append(door.branch, s.ids("b")), TakeLease(door.branch, "ada", TTL)
    s.refuses(ConflictError, *changes).shows(main="a")
