"""Leases: one holder at a time, until it expires; tokens only grow."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from sennit import clock
from sennit.errors import ConflictError, ExistsError, NotFoundError, SennitError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    Lease,
    RemoveBranch,
    TakeLease,
    Write,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    StoreFixture,
    branch,
    message,
    raises,
    same,
    segment,
    session,
)

_TTL = 60_000_000


class _Door:
    """One branch to lease."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scene = StoreFixture(store)
        self.main = self.scene.branch("main", "one")

    def acquire(self, holder: str, ttl: int = _TTL) -> Lease:
        """Acquire the lease; with a `ttl` of 0 it has expired at the next call."""
        return self.store.acquire(self.scene.owner, self.scene.id, self.main.id, holder, ttl)

    def is_leased(self) -> bool:
        return self.store.is_leased(self.scene.owner, self.scene.id, self.main.id)

    def renew(self, lease: Lease) -> Lease:
        return self.store.renew(self.scene.owner, self.scene.id, lease, _TTL)

    def release(self, lease: Lease) -> None:
        self.store.release(self.scene.owner, self.scene.id, lease)


@contextmanager
def _door(store: Store) -> Generator[_Door]:
    yield _Door(store)


def a_free_branch_can_be_leased(store: Store) -> None:
    with _door(store) as door:
        lease = door.acquire("ada")
        same((lease.branch, lease.holder), (door.main.id, "ada"), "Branch and holder")
        assert lease.expires > 0, f"A lease that is held expires some day, got {lease}"


def a_held_branch_is_refused_to_others(store: Store) -> None:
    with _door(store) as door:
        door.acquire("ada")
        raises(ConflictError, lambda: door.acquire("bob"), "Acquiring a held branch")


def the_refusal_names_the_holder(store: Store) -> None:
    with _door(store) as door:
        door.acquire("worker-7@host")
        error = raises(ConflictError, lambda: door.acquire("bob"), "Acquiring a held branch")
        assert "worker-7@host" in str(error), f"It does not say who holds the branch: {error}"


def an_expired_lease_can_be_taken_over(store: Store) -> None:
    with _door(store) as door:
        first = door.acquire("ada", ttl=0)
        second = door.acquire("bob")
        same(second.holder, "bob", "Who holds the branch")
        assert second.token > first.token, f"Tokens must grow: {first.token}, {second.token}"


def wall_clocks_that_differ_do_not_end_a_lease(store: Store) -> None:
    with _door(store) as door:
        door.acquire("ada")
        for hours in (-6, 6):
            wrong = clock.now_ns() + hours * 3_600_000_000_000
            with clock.wall_clock_from(lambda wrong=wrong: wrong):
                raises(ConflictError, lambda: door.acquire("bob"), "Acquiring a held branch")


def a_holder_whose_wall_clock_is_ahead_holds_no_longer(store: Store) -> None:
    with _door(store) as door:
        ahead = clock.now_ns() + 6 * 3_600_000_000_000
        with clock.wall_clock_from(lambda: ahead):
            door.acquire("ada", ttl=0)
        door.acquire("bob")


def a_branch_is_leased_until_its_lease_ends(store: Store) -> None:
    with _door(store) as door:
        states = [door.is_leased()]
        lease = door.acquire("ada")
        states.append(door.is_leased())
        door.release(lease)
        states.append(door.is_leased())
        door.acquire("ada", ttl=0)
        same([*states, door.is_leased()], [False, True, False, False], "Whether it is leased")


def a_released_lease_can_be_taken_over(store: Store) -> None:
    with _door(store) as door:
        first = door.acquire("ada")
        door.release(first)
        second = door.acquire("bob")
        assert second.token > first.token, f"Tokens must grow: {first.token}, {second.token}"


def the_same_holder_may_acquire_again(store: Store) -> None:
    with _door(store) as door:
        first = door.acquire("ada")
        second = door.acquire("ada")
        assert second.token > first.token, f"Tokens must grow: {first.token}, {second.token}"
        assert second.expires >= first.expires, f"It ends sooner than before: {first}, {second}"


def tokens_grow_over_many_holders(store: Store) -> None:
    with _door(store) as door:
        tokens: list[int] = []
        for n in range(20):
            lease = door.acquire(f"holder {n}", ttl=_TTL if n % 2 else 0)
            tokens.append(lease.token)
            if n % 2:
                door.release(lease)
        same(tokens, sorted(set(tokens)), "Tokens, each larger than those before")


def a_lease_can_be_renewed(store: Store) -> None:
    with _door(store) as door:
        lease = door.acquire("ada", ttl=0)
        renewed = door.renew(lease)
        same(renewed, replace(lease, expires=renewed.expires), "The renewed lease")
        assert renewed.expires > lease.expires, f"It does not last longer: {lease}, {renewed}"


def a_renewed_lease_holds_longer(store: Store) -> None:
    with _door(store) as door:
        door.renew(door.acquire("ada", ttl=0))
        raises(ConflictError, lambda: door.acquire("bob"), "Acquiring a renewed branch")


def a_lease_may_be_renewed_from_any_of_its_copies(store: Store) -> None:
    with _door(store) as door:
        lease = door.acquire("ada")
        door.renew(lease)
        same(door.renew(lease).token, lease.token, "Token after renewing an older copy")


def a_lease_that_was_taken_over_is_not_renewed(store: Store) -> None:
    with _door(store) as door:
        old = door.acquire("ada", ttl=0)
        door.acquire("bob")
        raises(ConflictError, lambda: door.renew(old), "Renewing a lost lease")


def a_lost_lease_is_not_renewed_after_the_next_one_ended(store: Store) -> None:
    with _door(store) as door:
        old = door.acquire("ada", ttl=0)
        door.release(door.acquire("bob"))
        raises(ConflictError, lambda: door.renew(old), "Renewing a lost lease")


def an_older_token_of_the_same_holder_is_not_renewed(store: Store) -> None:
    with _door(store) as door:
        old = door.acquire("ada")
        door.acquire("ada")
        raises(ConflictError, lambda: door.renew(old), "Renewing an older token")


def releasing_a_lost_lease_leaves_the_new_one(store: Store) -> None:
    with _door(store) as door:
        old = door.acquire("ada", ttl=0)
        new = door.acquire("bob")
        door.release(old)
        raises(ConflictError, lambda: door.acquire("eve"), "Acquiring a held branch")
        door.renew(new)


def releasing_twice_is_quiet(store: Store) -> None:
    with _door(store) as door:
        lease = door.acquire("ada")
        door.release(lease)
        door.release(lease)
        door.acquire("bob")


def releasing_what_went_with_its_session_is_quiet(store: Store) -> None:
    with _door(store) as door:
        lease = door.acquire("ada")
        store.delete_session(door.scene.owner, door.scene.id)
        door.release(lease)


def branches_are_leased_apart(store: Store) -> None:
    with _door(store) as door:
        side = door.scene.branch("side")
        door.acquire("ada")
        store.acquire(door.scene.owner, door.scene.id, side.id, "bob", _TTL)


def an_unknown_branch_cannot_be_leased(store: Store) -> None:
    with _door(store) as door:
        owner, uid = door.scene.owner, door.scene.id
        raises(
            NotFoundError,
            lambda: store.acquire(owner, uid, new_id(), "ada", _TTL),
            "Acquiring an unknown branch",
        )
        raises(
            NotFoundError,
            lambda: store.acquire(owner, new_id(), door.main.id, "ada", _TTL),
            "Acquiring a branch of an unknown session",
        )


def a_removed_branch_cannot_be_leased(store: Store) -> None:
    with _door(store) as door:
        door.acquire("ada")
        door.scene.write(RemoveBranch(door.main.id))
        raises(NotFoundError, lambda: door.acquire("ada"), "Acquiring a removed branch")


def a_lease_does_not_stop_appends(store: Store) -> None:
    with _door(store) as door:
        door.acquire("ada")
        door.scene.append(door.main.id, "two")
        same(door.scene.texts(), ["one", "two"], "The branch")


def a_lease_changes_nothing_in_the_branch(store: Store) -> None:
    with _door(store) as door:
        before = door.scene.stored(door.main.id)
        door.release(door.renew(door.acquire("ada")))
        same(door.scene.stored(door.main.id), before, "The branch")


def a_lease_taken_among_changes_is_one_like_any_other(store: Store) -> None:
    with _door(store) as door:
        old = door.acquire("ada")
        door.release(old)
        (head,) = door.scene.write(TakeLease(door.main.id, "bob", _TTL))
        assert head.taken is not None, "Taking a lease tells of it"
        assert head.taken.lease.expires > old.expires, "It expires later than the one before"
        same(head.taken.lease.token > old.token, True, "Its token grows")
        same((head.length, head.taken.seq, head.taken.run), (1, 0, None), "How the branch stands")
        refusal = raises(ConflictError, lambda: door.acquire("ada"), "Acquiring a held branch")
        same(refusal.holder, "bob", "Who holds it")
        door.renew(head.taken.lease)


def a_held_branch_is_refused_among_changes_with_all_of_them(store: Store) -> None:
    with _door(store) as door:
        door.acquire("ada")
        two = message("two")
        changes = (
            AddMessages((two,)),
            Append(door.main.id, (two.id,)),
            TakeLease(door.main.id, "bob", _TTL),
        )
        raises(ConflictError, lambda: door.scene.write(*changes), "Taking a held branch")
        same(door.scene.texts(), ["one"], "The branch")


def a_session_may_be_made_with_its_first_write(store: Store) -> None:
    record, tail = session(metadata={"of": "ada"}), segment()
    write = Write(OWNER, record.id, (AddBranch(branch("main", tail), tail),), record)
    results = store.write_many([write])
    same([isinstance(result, SennitError) for result in results], [False], "Whether it was refused")
    same(store.load(OWNER, record.id).session.metadata, {"of": "ada"}, "The session")
    (again,) = store.write_many([write])
    same(isinstance(again, ExistsError), True, "Making it again is refused")
    same(len(store.load(OWNER, record.id).branches), 1, "Its branches")
