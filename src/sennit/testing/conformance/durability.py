"""Durability: acknowledged writes survive reopening the store."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    ChangeBranch,
    RemoveBranch,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    STRANGER,
    LeaseFixture,
    StoreFixture,
    branch,
    deltas,
    empty,
    ids,
    message,
    messages,
    raises,
    same,
    segment,
    session,
)

Opening: TypeAlias = Callable[[], Store]
_TTL = 60_000_000


@contextmanager
def _open(opening: Opening) -> Generator[Store]:
    store = opening()
    try:
        yield store
    finally:
        store.close()


def sessions_survive_reopening(open_again: Opening) -> None:
    records = [session(key=f"chat {n}", metadata={"n": [n, "🦜"]}) for n in range(5)]
    with _open(open_again) as store:
        for record in records:
            store.create_session(OWNER, record)
        listed = store.list_sessions(OWNER, contains=None, before=None, limit=10)
    with _open(open_again) as store:
        same(store.find_session(OWNER, records[2].id), records[2], "A session")
        again = store.list_sessions(OWNER, contains=None, before=None, limit=10)
        same(again, listed, "The list of sessions")


def everything_in_a_session_survives_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        scene = StoreFixture(store)
        rule = scene.say("be brief", "loose")[0]
        main = scene.branch("main", *"abc")
        fork = scene.fork(main.id, "fork", at=2)
        scene.append(fork.id, "naïve 🦜")
        wanted = replace(fork, system=rule.id, resources=frozenset({"gpt"}))
        scene.write(ChangeBranch(wanted))
        before = store.load(OWNER, scene.id)
    with _open(open_again) as store:
        same(store.load(OWNER, scene.id), before, "The session")


def a_branch_goes_on_after_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        scene = StoreFixture(store)
        main = scene.branch("main", "0")
    for n in range(1, 5):
        with _open(open_again) as store:
            again = StoreFixture(store, uid=scene.id)
            again.append(main.id, f"{n}")
            same(again.texts(), [f"{one}" for one in range(n + 1)], f"The branch, opened {n} times")


def a_write_repeated_after_reopening_is_found_again(open_again: Opening) -> None:
    records, on = messages("one", "two"), segment()
    main = branch("main", on)
    changes = AddMessages(tuple(records)), AddBranch(main, on), Append(main.id, ids(records))
    with _open(open_again) as store:
        scene = StoreFixture(store)
        first = scene.write(*changes)
    with _open(open_again) as store:
        again = StoreFixture(store, uid=scene.id)
        same(again.write(*changes), first, "Heads of the repetition")
        same(again.texts(), ["one", "two"], "The branch")


def a_refused_write_left_nothing_behind(open_again: Opening) -> None:
    with _open(open_again) as store:
        scene = StoreFixture(store)
        main, one = scene.branch("main"), message("lost parrot")
        bad = AddMessages((one,)), Append(main.id, (one.id,)), RemoveBranch(new_id())
        raises(NotFoundError, lambda: scene.write(*bad), "A write with an unknown branch")
    with _open(open_again) as store:
        again = StoreFixture(store, uid=scene.id)
        empty("Branch and messages", again.texts(), again.load().messages)
        same(store.search(OWNER, "parrot", session=None, limit=5), [], "Messages found")


def what_was_deleted_stays_deleted(open_again: Opening) -> None:
    with _open(open_again) as store:
        gone, stays = StoreFixture(store), StoreFixture(store)
        gone.branch("main", "gone parrot")
        erased = stays.say("erased parrot")[0]
        stays.branch("main", "parrot that stays")
        stays.forget(erased)
        store.delete_session(OWNER, gone.id)
    with _open(open_again) as store:
        same(store.find_session(OWNER, gone.id), None, "The deleted session")
        hits = store.search(OWNER, "parrot", session=None, limit=5)
        same([hit.session for hit in hits], [stays.id], "Messages found")
        remaining = {record.id for record in store.load(OWNER, stays.id).messages}
        assert erased.id not in remaining, "An erased message came back."


def messages_are_searchable_after_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        scene = StoreFixture(store)
        main = scene.branch()
        record = scene.append(main.id, "the parrot sleeps")[0]
    with _open(open_again) as store:
        two = StoreFixture(store, uid=scene.id).append(main.id, "another parrot")[0]
        hits = store.search(OWNER, "parrot", session=None, limit=5)
        same({hit.message for hit in hits}, {record.id, two.id}, "Messages found")


def owners_stay_apart_after_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        mine = StoreFixture(store)
        StoreFixture(store, STRANGER, mine.id).branch("main", "theirs")
        mine.branch("main", "mine")
    with _open(open_again) as store:
        same(StoreFixture(store, uid=mine.id).texts(), ["mine"], "My branch")
        same(StoreFixture(store, STRANGER, mine.id).texts(), ["theirs"], "Their branch")


def a_lease_survives_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        scene = StoreFixture(store)
        main = scene.branch("main")
        lease = store.acquire(OWNER, scene.id, main.id, "ada", _TTL)
    with _open(open_again) as store:
        raises(
            ConflictError,
            lambda: store.acquire(OWNER, scene.id, main.id, "bob", _TTL),
            "Acquiring a branch that is held since before",
        )
        same(store.renew(OWNER, scene.id, lease, _TTL).token, lease.token, "The token")


def tokens_grow_across_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        scene = StoreFixture(store)
        main = scene.branch("main")
        first = store.acquire(OWNER, scene.id, main.id, "ada", _TTL)
        store.release(OWNER, scene.id, first)
    with _open(open_again) as store:
        second = store.acquire(OWNER, scene.id, main.id, "bob", _TTL)
        assert second.token > first.token, f"Tokens must grow: {first.token}, {second.token}"


def a_store_opened_twice_shows_one_truth(open_again: Opening) -> None:
    with _open(open_again) as one, _open(open_again) as other:
        here = StoreFixture(one)
        there = StoreFixture(other, uid=here.id)
        main = here.branch("main", "a")
        there.append(main.id, "b")
        here.append(main.id, "c")
        same((here.texts(), there.texts()), ([*"abc"], [*"abc"]), "The branch, from both sides")


def changes_are_seen_through_another_opening(open_again: Opening) -> None:
    with _open(open_again) as one, _open(open_again) as other:
        here = StoreFixture(one)
        main = here.branch("main", "a")
        there = StoreFixture(other, uid=here.id)
        records = there.append(main.id, "b")
        new = here.changes({main.segment: 1})
        same(list(new.messages), list(ids(records)), "What is new")
        mine = replace(main, resources=frozenset({"mine"}))
        there.write(ChangeBranch(replace(main, resources=frozenset({"theirs"}))))
        raises(ConflictError, lambda: here.write(ChangeBranch(mine)), "An old version")


def runs_and_events_survive_reopening(open_again: Opening) -> None:
    with _open(open_again) as store:
        notes = LeaseFixture(StoreFixture(store))
        first, second = notes.run(), notes.run(state="suspended")
        notes.add(*deltas(first, 1, 2, about=new_id()), *deltas(second, 3))
        before = notes.runs(), notes.events()
    with _open(open_again) as store:
        notes.store = notes.scene.store = store
        same((notes.runs(), notes.events()), before, "Runs and events")
        same((notes.last(), notes.last_run()), (3, second), "The last event and run")
        notes.add(*deltas(second, 3, 4))
        same(notes.last(), 4, "The last event after going on")


def a_lease_taken_through_another_opening_stops_the_notes(open_again: Opening) -> None:
    with _open(open_again) as one, _open(open_again) as other:
        notes = LeaseFixture(StoreFixture(one))
        run = notes.run()
        notes.add(*deltas(run, 1))
        lease = other.acquire(OWNER, notes.scene.id, notes.branch, "ada", _TTL)
        raises(ConflictError, lambda: notes.add(*deltas(run, 2)), "Noting with an older token")
        change = AddEvents(notes.branch, tuple(deltas(run, 2)), lease.token)
        other.write(OWNER, notes.scene.id, [change])
        same(notes.last(), 2, "The last event")
        other.write(OWNER, notes.scene.id, [RemoveBranch(notes.branch)])
        raises(ConflictError, lambda: notes.add(*deltas(run, 3)), "Noting on a removed branch")
