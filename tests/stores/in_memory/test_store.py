"""The memory store keeps every promise of a store, and the kit notices one that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.records.sessions import BranchHead, Change, Lease, Owner, SessionRecord, Snapshot
from sennit.testing.conformance import (
    CHECKS,
    DURABLE_CHECKS,
    ConformanceCheck,
    DurableCheck,
    checks,
    run_all,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_memory_store_keeps_the_promise(check: ConformanceCheck) -> None:
    check(MemoryStore())


class Undying(MemoryStore):
    """A memory store that ignores being closed, as if it were opened again on the same data."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("check", DURABLE_CHECKS, ids=lambda check: check.__name__)
def test_what_is_durable_can_be_checked(check: DurableCheck) -> None:
    store = Undying()
    check(lambda: store)


def test_there_are_enough_checks_and_each_has_a_name_of_its_own() -> None:
    names = [check.__name__ for check in (*CHECKS, *DURABLE_CHECKS)]
    assert len(CHECKS) >= 100
    assert len(set(names)) == len(names)
    assert list(checks()) == list(CHECKS)


class Careless(MemoryStore):
    """Tells every owner of every session."""

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        return super().find_session(Owner("acme", "user", "ada"), session)


class Torn(MemoryStore):
    """Keeps the changes before the one that fails."""

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        return [head for one in changes for head in super(Torn, self).write(owner, session, [one])]


class Forgetful(MemoryStore):
    """Loses the last message."""

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        snapshot = super().load(owner, session)
        return replace(snapshot, messages=snapshot.messages[:-1])


class Talkative(MemoryStore):
    """Gives everything as new."""

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        return super().changes(owner, session, {})


class Generous(MemoryStore):
    """Leases a branch to everyone."""

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        return super().acquire(owner, session, branch, "anyone", ttl)


@pytest.mark.parametrize("store", [Careless, Torn, Forgetful, Talkative, Generous])
def test_a_store_that_breaks_a_promise_is_noticed(store: type[Store]) -> None:
    with pytest.raises(AssertionError):
        run_all(store)
