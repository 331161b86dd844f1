"""Durability: acknowledged writes survive reopening the store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddEvents, Append, RemoveBranch
from sennit.testing.conformance.fixtures import (
    OWNER,
    STRANGER,
    TTL,
    LeaseFixture,
    Scenario,
    deltas,
    raises,
    same,
    session,
)

Opening: TypeAlias = Callable[[], Store]


@contextmanager
def _open(opening: Opening) -> Generator[Store]:
    store = opening()
    try:
        yield store
    finally:
        store.close()


def _listed(store: Store) -> list[object]:
    return [*store.list_sessions(OWNER, contains=None, before=None, limit=10)]


def everything_survives_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        store.create_session(OWNER, session(key="chat", metadata={"n": [1, "🦜"]}))
        s = Scenario(store).add(["be brief", "loose"])
        s.branch("main", "abc").fork("main", "fork", 2).append("fork", ["naïve 🦜 parrot"])
        s.change("fork", system=s["be brief"], resources=frozenset({"gpt"}))
        s.beside(STRANGER, s.id).branch("main", "x")
        notes = LeaseFixture(s, "leased")
        first, second = notes.run(), notes.run(state="suspended")
        notes.add(*deltas(first, 1, 2, about=new_id()), *deltas(second, 3))
        before = store.load(OWNER, s.id), _listed(store), notes.runs(), notes.events()
    with _open(open_again) as store:
        notes.store = s.store = store
        after = store.load(OWNER, s.id), _listed(store), notes.runs(), notes.events()
        same(after, before, "The sessions, runs and events")
        same(s.beside(STRANGER, s.id).texts(), ["x"], "The branch of another owner")
        same(notes.last(), (3, second), "The last event and run")
        s.append("leased", ["another parrot"]).finds(
            "parrot", ["naïve 🦜 parrot", "another parrot"]
        )
        notes.add(*deltas(second, 3, 4))
        same(notes.last()[0], 4, "The last event after going on")


def a_branch_goes_on_after_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        s = Scenario(store).branch("main", "0")
    for n in range(1, 5):
        with _open(open_again) as store:
            Scenario(store, uid=s.id).append("main", f"{n}").shows(main="01234"[: n + 1])


def a_write_repeated_after_reopening_is_found_again(open_again: Opening) -> None:
    with _open(open_again) as store:
        s = Scenario(store).branch("main", "ab")
    with _open(open_again) as store:
        s.store = store
        s.again().shows(main="ab")


def a_refused_write_left_nothing_behind(open_again: Opening) -> None:
    with _open(open_again) as store:
        s = Scenario(store).branch()
        bad = s.adding(["lost parrot"]), Append(s.stored().id, s.ids(["lost parrot"]))
        s.refuses(NotFoundError, *bad, RemoveBranch(new_id()))
    with _open(open_again) as store:
        s.store = store
        s.shows(main="").holds("").finds("parrot")


def what_was_deleted_stays_deleted(open_again: Opening) -> None:
    with _open(open_again) as store:
        gone, stays = (Scenario(store).branch("main", ["a parrot"]) for _ in range(2))
        stays.append("main", ["an erased parrot"]).erase(["an erased parrot"])
        store.delete_session(OWNER, gone.id)
    with _open(open_again) as store:
        stays.store = store
        same(store.find_session(OWNER, gone.id), None, "The deleted session")
        stays.finds("parrot", ["a parrot"]).holds(["a parrot"])


def leases_survive_reopening_and_tokens_grow(open_again: Opening) -> None:
    with _open(open_again) as store:
        door = LeaseFixture(Scenario(store))
    with _open(open_again) as store:
        door.store = store
        raises(ConflictError, lambda: door.acquire("bob"), "Acquiring what is held since before")
        same(door.renew(door.lease).token, door.token, "The token")
        door.release(door.lease)
    with _open(open_again) as store:
        door.store = store
        token = door.acquire("bob").token
        assert token > door.token, f"Tokens must grow: {door.token}, {token}"


def a_store_opened_twice_shows_one_truth(open_again: Opening) -> None:
    with _open(open_again) as one, _open(open_again) as other:
        here = Scenario(one).branch("main", "a")
        there = Scenario(other, uid=here.id).append("main", "b")
        here.append("main", "c").shows(main="abc")
        main = there.shows(main="abc").stored()
        records = there.append("main", "d").named["d"]
        same(list(here.changes({main.segment: 3}).messages), [records.id], "What is new")
        mine = here.changing("main", resources=frozenset({"mine"}))
        there.change("main", resources=frozenset({"theirs"}))
        here.refuses(ConflictError, mine)


def a_lease_taken_through_another_opening_stops_the_run(open_again: Opening) -> None:
    with _open(open_again) as one, _open(open_again) as other:
        notes = LeaseFixture(Scenario(one))
        run, key = notes.run(), notes.key
        notes.add(*deltas(run, 1))
        lease = other.acquire(*key, "ada", TTL)
        raises(ConflictError, lambda: notes.add(*deltas(run, 2)), "Adding with an older token")
        other.write(*key[:2], [AddEvents(notes.branch, tuple(deltas(run, 2)), lease.token)])
        same(notes.last()[0], 2, "The last event")
        other.write(*key[:2], [RemoveBranch(notes.branch)])
        raises(ConflictError, lambda: notes.add(*deltas(run, 3)), "Adding on a removed branch")
