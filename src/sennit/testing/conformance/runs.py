"""Runs and events: stored in order, once, and only for the holder of the lease."""

from __future__ import annotations

from msgspec.structs import replace

from sennit.errors import ConflictError, NotFoundError, SennitError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddMessages,
    Append,
    EventRecord,
    PutRun,
    RemoveBranch,
    RemoveMessages,
    RunRecord,
    Write,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    LeaseFixture,
    StoreFixture,
    deltas,
    empty,
    ids,
    message,
    messages,
    raises,
    same,
)

_TTL = 60_000_000


def a_branch_without_runs_has_no_runs_and_no_events(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    empty("Runs and events", notes.runs(), notes.events())
    same((notes.last(), notes.last_run()), (0, None), "The last event and run")


def an_unknown_branch_has_no_runs_and_no_events(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    notes.add(*deltas(notes.run(), 1))
    notes.branch = new_id()
    empty("Runs and events", notes.runs(), notes.events())
    same((notes.last(), notes.last_run()), (0, None), "The last event and run")


def runs_of_an_unknown_session_are_not_found(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    notes.scene.id = new_id()
    for asking in (notes.runs, notes.events, notes.last, notes.last_run, notes.last_runs):
        raises(NotFoundError, asking, "Asking in an unknown session")


def a_run_is_kept_as_it_was_given(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run(state="suspended", updated=NOON + 7, body=dumps({"said": "naïve 🦜\x00"}))
    same(notes.runs(), [run], "Runs")
    same(notes.last_run(), run, "The last run")


def runs_are_listed_with_the_newest_first(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    runs = [notes.run(created=NOON - n) for n in range(12)]
    same(notes.runs(), runs[::-1], "Runs")
    same(notes.last_run(), runs[-1], "The last run")


def the_last_runs_of_all_branches_are_found_at_once(store: Store) -> None:
    scene = StoreFixture(store)
    main, other, _ = LeaseFixture(scene), LeaseFixture(scene, "other"), LeaseFixture(scene, "quiet")
    same(main.last_runs(), {}, "Last runs where nothing ran")
    last = [main.run(), main.run(state="ended")][-1]
    only = other.run()
    LeaseFixture(StoreFixture(store)).run()
    same(main.last_runs(), {main.branch: last, other.branch: only}, "Last runs")


def a_run_may_give_its_lease_back_with_its_last_words(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    ended = replace(run, state="ended")
    last = PutRun(ended, notes.token, release=True), notes.adding(*deltas(run, 1))
    for _ in range(2):
        notes.scene.write(*last)
        same((notes.runs(), notes.last()), ([ended], 1), "The run and its last event")
    scene = notes.scene
    lease = store.acquire(scene.owner, scene.id, notes.branch, "somebody else", _TTL)
    same(lease.token, notes.token + 1, "The token of whoever comes next")
    raises(ConflictError, lambda: scene.write(*last), "Saying it again after that")


def a_run_put_again_changes_and_keeps_its_place(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    first, second = notes.run(), notes.run()
    ended = replace(first, state="ended", updated=NOON + 5, body=b"{}")
    for _ in range(2):
        notes.scene.write(PutRun(ended, notes.token))
        same(notes.runs(), [second, ended], "Runs")


def runs_of_two_branches_are_kept_apart(store: Store) -> None:
    scene = StoreFixture(store)
    main, side = LeaseFixture(scene), LeaseFixture(scene, "side")
    here, there = main.run(), side.run()
    main.add(*deltas(here, 1, 2))
    side.add(*deltas(there, 1))
    same((main.runs(), side.runs()), ([here], [there]), "Runs")
    same((main.last(), side.last()), (2, 1), "The last events")
    same(side.events(), deltas(there, 1), "Events of the other branch")


def one_run_id_may_stand_on_two_branches(store: Store) -> None:
    scene = StoreFixture(store)
    main, side = LeaseFixture(scene), LeaseFixture(scene, "side")
    here = main.run()
    there = side.run(id=here.id, state="ended")
    same((main.runs(), side.runs()), ([here], [there]), "Runs")


def events_are_kept_as_they_were_given(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    events = [
        EventRecord(1, run.id, None, b"[]"),
        EventRecord(2, run.id, new_id(), dumps(["text", "naïve 🦜\x00"])),
        EventRecord(3, run.id, None, dumps(["text", "x" * 100_000])),
    ]
    notes.add(*events)
    same(notes.events(), events, "Events")


def events_come_in_the_order_of_their_numbers(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    for first in (1, 5, 9, 13):
        notes.add(*deltas(run, *range(first, first + 4)))
    same(notes.events(), deltas(run, *range(1, 17)), "Events")
    same(notes.last(), 16, "The last event")


def numbers_go_on_over_runs(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    first = notes.run()
    notes.add(*deltas(first, 1, 2))
    second = notes.run()
    notes.add(*deltas(second, 3), *deltas(first, 4), *deltas(second, 5))
    expected = [*deltas(first, 1, 2), *deltas(second, 3), *deltas(first, 4), *deltas(second, 5)]
    same(notes.events(), expected, "Events")


def events_are_given_in_pages(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    notes.add(*deltas(run, *range(1, 31)))
    same(notes.events(0, 10), deltas(run, *range(1, 11)), "The first page")
    same(notes.events(10, 10), deltas(run, *range(11, 21)), "The second page")
    same(notes.events(25, 10), deltas(run, *range(26, 31)), "The last page")
    empty("Pages past the end, and of no size", notes.events(30, 10), notes.events(0, 0))


def events_repeated_change_nothing(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    for _ in range(3):
        notes.add(*deltas(run, 1, 2, 3))
    same(notes.events(), deltas(run, 1, 2, 3), "Events")


def events_that_are_partly_there_are_completed(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    notes.add(*deltas(run, 1, 2))
    notes.add(*deltas(run, 2, 3, 4))
    same(notes.events(), deltas(run, 1, 2, 3, 4), "Events")


def no_events_are_nothing(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    notes.add()
    same(notes.last(), 0, "The last event")


def another_event_under_the_same_number_is_refused(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run, other = notes.run(), notes.run()
    notes.add(*deltas(run, 1, 2, 3))
    there = deltas(run, 2)[0]
    for wrong in (
        replace(there, body=b'["text","other"]'),
        replace(there, message=new_id()),
        replace(there, run=other.id),
    ):
        refused = wrong, *deltas(run, 4)
        raises(ConflictError, lambda refused=refused: notes.add(*refused), f"{wrong!r:.100}")
        same(notes.events(), deltas(run, 1, 2, 3), "Events")


def one_number_twice_in_a_change_is_refused(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    one = deltas(run, 1)[0]
    twice = one, replace(one, body=b"[]")
    raises(ConflictError, lambda: notes.add(*twice), "Two events with one number")
    empty("Events", notes.events())


def an_event_of_an_unknown_run_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    notes, side = LeaseFixture(scene), LeaseFixture(scene, "side")
    run = notes.run()
    strange = EventRecord(2, new_id(), None, b"[]")
    raises(NotFoundError, lambda: notes.add(*deltas(run, 1), strange), "An unknown run")
    raises(NotFoundError, lambda: notes.add(*deltas(side.run(), 1)), "A run of another branch")
    empty("Events", notes.events())


def an_event_may_come_with_its_run(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = RunRecord(new_id(), notes.branch, "running", NOON, NOON, b"{}")
    for _ in range(2):
        notes.scene.write(PutRun(run, notes.token), notes.adding(*deltas(run, 1)))
    same((notes.runs(), notes.events()), ([run], deltas(run, 1)), "Run and events")


def who_lost_the_lease_writes_nothing(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    store.release(OWNER, notes.scene.id, notes.lease)
    store.acquire(OWNER, notes.scene.id, notes.branch, "bob", _TTL)
    new = message("of one who lost")
    for late in (notes.adding(*deltas(run, 1)), PutRun(replace(run, state="ended"), notes.token)):
        for changes in (
            (AddMessages((new,)), Append(notes.branch, (new.id,)), late),
            (late, AddMessages((new,)), Append(notes.branch, (new.id,))),
        ):
            write = Write(OWNER, notes.scene.id, changes)
            raises(ConflictError, lambda w=write: notes.scene.write(*w.changes), "A lost lease")
            (refused,) = store.write_many([write])
            assert isinstance(refused, ConflictError), f"A lost lease, in a group: {refused!r}"
    same((notes.scene.texts(), len(notes.scene.load().messages)), (["one"], 1), "The branch")
    same(notes.runs(), [run], "Runs")
    empty("Events", notes.events())


def a_token_that_was_never_given_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    notes = LeaseFixture(scene)
    run = notes.run()
    for token in (0, -1, notes.token + 1):
        raises(ConflictError, lambda t=token: notes.add(*deltas(run, 1), token=t), f"Token {token}")
    free = scene.branch("free").id
    mine = replace(run, branch=free)
    for token in (0, 1):
        raises(ConflictError, lambda t=token: scene.write(PutRun(mine, t)), "A free branch")
    empty("Events", notes.events())


def a_lease_that_ran_out_still_writes_until_it_is_taken(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    store.release(OWNER, notes.scene.id, notes.lease)
    notes.add(*deltas(run, 1))
    same(notes.last(), 1, "The last event")


def a_renewed_lease_writes_on(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    notes.add(*deltas(run, 1))
    store.renew(OWNER, notes.scene.id, notes.lease, _TTL)
    notes.add(*deltas(run, 2))
    same(notes.last(), 2, "The last event")


def messages_and_events_of_one_write_come_together(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    records = messages("two", "three")
    changes = (
        AddMessages(tuple(records)),
        Append(notes.branch, ids(records)),
        PutRun(replace(run, state="ended"), notes.token),
        notes.adding(*deltas(run, 1, about=records[0].id), *deltas(run, 2, about=records[1].id)),
    )
    first = notes.scene.write(*changes)
    same(notes.scene.write(*changes), first, "Heads of the repetition")
    same(notes.scene.texts(), ["one", "two", "three"], "The branch")
    same([event.message for event in notes.events()], list(ids(records)), "What events speak of")
    same([run.state for run in notes.runs()], ["ended"], "States of runs")


def a_change_that_fails_takes_runs_and_events_back(store: Store) -> None:
    scene = StoreFixture(store)
    notes, spare = LeaseFixture(scene), LeaseFixture(scene, "spare")
    run, about = notes.run(), scene.say("about")[0]
    spared = spare.run()
    spare.add(*deltas(spared, 1))
    notes.add(*deltas(run, 1, about=about.id))
    good = (
        PutRun(replace(run, state="ended"), notes.token),
        notes.adding(*deltas(run, 2, 3)),
        PutRun(replace(run, id=new_id()), notes.token),
        RemoveMessages((about.id,)),
        RemoveBranch(spare.branch),
    )
    bad = RemoveBranch(new_id())
    for at in range(len(good) + 1):
        changes = *good[:at], bad, *good[at:]
        raises(NotFoundError, lambda changes=changes: scene.write(*changes), "A bad change")
        same(notes.runs(), [run], f"Runs after a write that failed at its change {at}")
        same(
            notes.events(), deltas(run, 1, about=about.id), f"Events after one that failed at {at}"
        )
        same((spare.runs(), spare.last()), ([spared], 1), "What another branch has")
        spare.add(*deltas(spared, 1))  # its lease is still there
    scene.write(*good)
    same([event.seq for event in notes.events()], [2, 3], "Events after the good ones")


def writes_of_a_group_note_or_are_refused_alone(store: Store) -> None:
    notes, other = LeaseFixture(StoreFixture(store)), LeaseFixture(StoreFixture(store))
    run, another = notes.run(), other.run()
    writes = [
        Write(OWNER, notes.scene.id, (notes.adding(*deltas(run, 1)),)),
        Write(OWNER, notes.scene.id, (notes.adding(*deltas(run, 2), token=99),)),
        Write(OWNER, other.scene.id, (other.adding(*deltas(another, 1)),)),
        Write(OWNER, notes.scene.id, (notes.adding(*deltas(run, 2, 3)),)),
    ]
    results = store.write_many(writes)
    same([isinstance(one, SennitError) for one in results], [False, True, False, False], "Refused")
    same((notes.last(), other.last()), (3, 1), "The last events")


def events_are_erased_with_their_message(store: Store) -> None:
    scene = StoreFixture(store)
    notes, side = LeaseFixture(scene), LeaseFixture(scene, "side")
    gone, stays = scene.append(notes.branch, "gone", "stays")
    run, beside = notes.run(), side.run()
    notes.add(
        *deltas(run, 1),
        *deltas(run, 2, 3, about=gone.id),
        *deltas(run, 4, about=stays.id),
        *deltas(run, 5),
    )
    side.add(*deltas(beside, 1, about=gone.id), *deltas(beside, 2))
    scene.forget(gone)
    expected = [*deltas(run, 1), *deltas(run, 4, about=stays.id), *deltas(run, 5)]
    same(notes.events(), expected, "Events, with the numbers they had")
    same(notes.events(1, 1), deltas(run, 4, about=stays.id), "A page past the erased ones")
    same(side.events(), deltas(beside, 2), "Events of another branch")
    same((notes.last(), notes.runs()), (5, [run]), "The last event and the runs")


def erased_events_do_not_come_back_by_repeating(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    gone = notes.scene.append(notes.branch, "gone")[0]
    run = notes.run()
    events = *deltas(run, 1, about=gone.id), *deltas(run, 2)
    notes.add(*events)
    notes.scene.forget(gone)
    notes.add(*events)
    same(notes.events(), deltas(run, 2), "Events")


def events_of_a_draft_are_erased_with_the_message_it_became(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run, draft = notes.run(), message("draft")
    notes.add(*deltas(run, 1, about=draft.id))
    write = AddMessages((draft,)), Append(notes.branch, (draft.id,)), notes.adding(*deltas(run, 2))
    notes.scene.write(*write)
    notes.scene.forget(draft)
    same(notes.events(), deltas(run, 2), "Events")


def a_branch_is_removed_with_its_runs_and_events(store: Store) -> None:
    scene = StoreFixture(store)
    notes, side = LeaseFixture(scene), LeaseFixture(scene, "side")
    run, beside = notes.run(), side.run()
    notes.add(*deltas(run, 1))
    side.add(*deltas(beside, 1))
    scene.write(RemoveBranch(notes.branch))
    empty("Runs and events", notes.runs(), notes.events())
    raises(ConflictError, lambda: notes.add(*deltas(run, 2)), "Noting on a removed branch")
    same((side.runs(), side.events()), ([beside], deltas(beside, 1)), "Those of another branch")


def a_session_is_deleted_with_its_runs_and_events(store: Store) -> None:
    notes, other = LeaseFixture(StoreFixture(store)), LeaseFixture(StoreFixture(store))
    run, another = notes.run(), other.run()
    notes.add(*deltas(run, 1))
    other.add(*deltas(another, 1))
    store.delete_session(OWNER, notes.scene.id)
    raises(NotFoundError, notes.events, "Events of a deleted session")
    store.create_session(OWNER, store.load(OWNER, other.scene.id).session)
    StoreFixture(store, uid=notes.scene.id)
    empty("Runs and events of a new one with its id", notes.runs(), notes.events())
    same((other.runs(), other.last()), ([another], 1), "Those of another session")


def runs_of_another_owner_are_not_seen(store: Store) -> None:
    mine = LeaseFixture(StoreFixture(store))
    mine.add(*deltas(mine.run(), 1))
    scene = mine.scene
    for asking in (store.runs, store.last_run, store.last_event):
        raises(NotFoundError, lambda a=asking: a(STRANGER, scene.id, mine.branch), "A stranger")
    raises(NotFoundError, lambda: store.events(STRANGER, scene.id, mine.branch, 0, 9), "A stranger")
    raises(NotFoundError, lambda: store.last_runs(STRANGER, scene.id), "A stranger")
    StoreFixture(store, STRANGER, scene.id)
    same(store.runs(STRANGER, scene.id, mine.branch), [], "Runs in a session of the same id")
    same(store.events(STRANGER, scene.id, mine.branch, 0, 9), [], "Events in it")


def another_owner_notes_nothing(store: Store) -> None:
    mine = LeaseFixture(StoreFixture(store))
    run = mine.run()
    StoreFixture(store, STRANGER, mine.scene.id)
    for change in (mine.adding(*deltas(run, 1)), PutRun(replace(run, state="ended"), mine.token)):
        raises(
            ConflictError,
            lambda change=change: store.write(STRANGER, mine.scene.id, [change]),
            "Noting on another owner's branch",
        )
    same(mine.runs(), [run], "Runs")
    empty("Events", mine.events())


def noting_leaves_branches_and_messages_alone(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    before = notes.scene.load()
    run = notes.run()
    notes.add(*deltas(run, 1, 2))
    after = notes.scene.load()
    same((after.branches, after.messages), (before.branches, before.messages), "The session")


def a_branch_grows_between_events(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    for n in range(1, 6):
        notes.add(*deltas(run, n))
        notes.scene.append(notes.branch, f"{n}")
    same(notes.scene.texts(), ["one", *"12345"], "The branch")
    same(notes.events(), deltas(run, 1, 2, 3, 4, 5), "Events")


def many_events_are_read_page_by_page(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    run = notes.run()
    for first in range(1, 5001, 500):
        notes.add(*deltas(run, *range(first, first + 500)))
    events: list[EventRecord] = []
    while page := notes.events(events[-1].seq if events else 0, 700):
        events += page
    same(events, deltas(run, *range(1, 5001)), "Events")
