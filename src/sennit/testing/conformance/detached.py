"""Removed messages: kept but not searchable, restorable, purged after their retention."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from sennit import clock
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.commits import AddCommit, CommitRecord
from sennit.stores.records.search import TextQuery
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    ChangeBranch,
    MessageRecord,
    RemoveBranch,
)
from sennit.testing.conformance.fixtures import (
    NOON,
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
    same,
    segment,
)

_LATE = 2**62
_NOON_NS = NOON * 1000


def _found(scene: StoreFixture, text: str = "parrot") -> set[UUID]:
    return {hit.message for hit in scene.store.search(OWNER, text, session=None, limit=50)}


def _removed(store: Store, before: int = _LATE) -> set[UUID]:
    return {one.message for one in store.removed(OWNER, None, before, 50)}


def _cut(scene: StoreFixture, uid: UUID, length: int) -> None:
    """Truncate a branch as a session does: by a new segment on the remaining entries."""
    view = scene.load()
    base = view.holder(view.branches[uid].segment, length - 1) if length else None
    on = segment((), base, length)
    scene.write(ChangeBranch(replace(scene.stored(uid), segment=on.id), on))


def a_message_taken_off_its_only_branch_is_not_found(store: Store) -> None:
    for indexed in (False, True):
        scene = StoreFixture(store)
        main = scene.branch("main", "a cat")
        gone = scene.append(main.id, "a parrot")[0]
        if indexed:
            same(_found(scene), {gone.id}, "Found while it stands there")
        _cut(scene, main.id, 1)
        empty("Found afterwards", _found(scene))
        same(
            _found(scene, "cat") & {*scene.load().history(main.id)},
            {*scene.load().history(main.id)},
            "What stays",
        )
        assert gone.id in scene.load().messages, "It was erased, not only removed."


def a_message_of_a_removed_branch_is_not_found(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "the parrot sleeps")
    scene.write(RemoveBranch(main.id))
    empty("Found", _found(scene))


def what_another_branch_shows_is_found_on(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    shared, own = scene.append(main.id, "a parrot", "another parrot")
    fork = scene.fork(main.id, "fork", at=1)
    scene.write(RemoveBranch(main.id))
    same(_found(scene), {shared.id}, "Found on the fork alone")
    scene.write(RemoveBranch(fork.id))
    empty("Found on no branch", _found(scene))
    same(_removed(store), {shared.id, own.id}, "What was removed")


def what_stands_on_another_branch_by_itself_is_found_on(store: Store) -> None:
    scene = StoreFixture(store)
    main, other = scene.branch("main"), scene.branch("other", "a cat")
    one = scene.append(main.id, "a parrot")[0]
    scene.write(Append(other.id, (one.id,)))
    _cut(scene, main.id, 0)
    same(_found(scene), {one.id}, "Found on the other branch")
    _cut(scene, other.id, 1)
    empty("Found on no branch", _found(scene))


def a_replaced_system_message_is_not_found(store: Store) -> None:
    scene = StoreFixture(store)
    main, old = scene.branch("main", "a cat"), message("the parrot rules")
    scene.write(AddMessages((old,)), ChangeBranch(replace(scene.stored(main.id), system=old.id)))
    same(_found(scene), {old.id}, "Found while it is the system message")
    fork = scene.fork(main.id, "fork")
    scene.write(ChangeBranch(replace(scene.stored(fork.id), system=old.id)))
    scene.write(ChangeBranch(replace(scene.stored(main.id), system=None)))
    same(_found(scene), {old.id}, "Found as that of a fork")
    scene.write(RemoveBranch(fork.id))
    empty("Found when it is nobody's", _found(scene))


def a_message_on_no_branch_is_kept_and_not_found(store: Store) -> None:
    scene = StoreFixture(store)
    loose = scene.say("a parrot")[0]
    empty("Found", _found(scene))
    empty("Removed, which it was not", _removed(store))
    same(list(scene.load().messages), [loose.id], "What is kept")
    scene.branch("main", "a cat")
    empty("Found after others were written", _found(scene))


def a_message_put_on_a_branch_again_is_found_again(store: Store) -> None:
    for indexed in (False, True):
        scene = StoreFixture(store)
        main, loose = scene.branch("main", "a cat"), scene.say("a parrot")[0]
        if indexed:
            empty("Found while it stands nowhere", _found(scene))
        scene.write(Append(main.id, (loose.id,)))
        same(_found(scene), {loose.id}, "Found on the branch")
        _cut(scene, main.id, 1)
        empty("Found after it was removed", _found(scene))
        scene.append(main.id, "a dog")
        _found(scene)
        scene.write(Append(main.id, (loose.id,)))
        same(_found(scene), {loose.id}, "Found on the branch again")
        scene.write(RemoveBranch(main.id))


def a_new_branch_makes_what_it_shows_found_again(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a cat")
    one, rule = scene.append(main.id, "a parrot", "a parrot that rules")
    below = scene.stored(main.id).segment
    keeping = scene.fork(main.id, "keeping", at=1)
    scene.write(RemoveBranch(main.id))
    empty("Found while nobody shows it", _found(scene))
    on = segment((), below, 2)
    restored = branch("again", on, system=rule.id)
    scene.write(AddBranch(restored, on))
    same(_found(scene), {one.id, rule.id}, "Found on the new branch")
    scene.write(RemoveBranch(keeping.id), RemoveBranch(restored.id))
    on = segment((rule.id, one.id))
    scene.write(AddBranch(branch("named", on), on))
    same(_found(scene), {one.id, rule.id}, "Found by being named")


def what_is_in_an_archive_is_found_without_a_branch(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    one, late = scene.append(main.id, "a parrot", "a late parrot")
    commit = CommitRecord(new_id(), 1, main.id, NOON, "open", (one.id,), b"{}")
    scene.write(AddCommit(commit, ()))
    _cut(scene, main.id, 0)
    same(_found(scene), {one.id}, "Found in the archive")
    second = CommitRecord(new_id(), 2, main.id, NOON, "open", (late.id,), b"{}")
    scene.write(AddCommit(second, ()))
    same(_found(scene), {one.id, late.id}, "Found when it is archived later")
    empty("Removed", _removed(store))


def a_removed_message_has_no_place(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    first, second = scene.append(main.id, "a parrot", "a parrot too")
    places = {hit.place for hit in store.hits(OWNER, TextQuery(("parrot",)))}
    _cut(scene, main.id, 1)
    remaining = [stored.message.id for stored in store.at_places(OWNER, list(places))]
    same(remaining, [first.id], f"What stands at places, without {second.id}")


def removed_messages_are_erased_when_their_time_is_over(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    early, late, stays = scene.append(main.id, "a parrot", "a late parrot", "a cat")
    with clock.wall_clock_from(lambda: _NOON_NS):
        scene.rewrite(main.id, (late.id, stays.id))
    with clock.wall_clock_from(lambda: _NOON_NS + 5_000_000):
        scene.rewrite(main.id, (stays.id,))
    entries = store.removed(OWNER, scene.id, _LATE, 50)
    removed = [(entry.owner, entry.session, entry.message, entry.since) for entry in entries]
    expected = [(early.id, NOON), (late.id, NOON + 5_000)]
    same(removed, [(OWNER, scene.id, *one) for one in expected], "When they were removed")
    same(_removed(store, NOON), set[UUID](), "Removed before that time")
    before = store.find_session(OWNER, scene.id)
    same(store.erase_removed(OWNER, scene.id, NOON + 1), [early.id], "What was erased")
    same(set(scene.load().messages), {late.id, stays.id}, "What is left")
    same(store.find_session(OWNER, scene.id), before, "The session, whose age stays the same")
    same(store.erase_removed(OWNER, scene.id, _LATE), [late.id], "What was erased then")
    same(scene.load().history(main.id), [stays.id], "The branch")
    empty("Nothing more", _removed(store), store.erase_removed(OWNER, scene.id, _LATE))
    empty("Of a session that is not there", store.erase_removed(OWNER, new_id(), _LATE))


def a_message_that_stands_on_a_branch_again_is_not_erased(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a cat")
    one = scene.append(main.id, "a parrot")[0]
    _cut(scene, main.id, 1)
    scene.write(Append(main.id, (one.id,)))
    empty("What was erased", store.erase_removed(OWNER, scene.id, _LATE))
    loose = scene.say("a loose parrot")[0]
    empty("What was erased", store.erase_removed(OWNER, scene.id, _LATE))
    assert loose.id in scene.load().messages, "One that was never removed is gone."


def erasing_a_removed_message_erases_what_is_noted_of_it(store: Store) -> None:
    notes = LeaseFixture(StoreFixture(store))
    scene, run = notes.scene, notes.run()
    gone = scene.append(notes.branch, "a parrot")[0]
    notes.add(*deltas(run, 1), *deltas(run, 2, 3, about=gone.id), *deltas(run, 4))
    _cut(scene, notes.branch, 1)
    same([one.seq for one in notes.events()], [1, 2, 3, 4], "Events while it is kept")
    scene.store.erase_removed(OWNER, scene.id, _LATE)
    same([one.seq for one in notes.events()], [1, 4], "Events afterwards")


def nobody_else_sees_or_erases_what_was_removed(store: Store) -> None:
    mine, theirs = StoreFixture(store), StoreFixture(store, STRANGER)
    gone: list[MessageRecord] = []
    for scene in (mine, theirs):
        records = messages("a parrot")
        on = segment(ids(records))
        record = branch("main", on)
        scene.write(AddMessages(tuple(records)), AddBranch(record, on))
        scene.write(RemoveBranch(record.id))
        gone += records
    same(_removed(store), {gone[0].id}, "One's own")
    empty("Of a stranger's session", store.removed(OWNER, theirs.id, _LATE, 50))
    empty("Erased there", store.erase_removed(OWNER, theirs.id, _LATE))
    everyone = {one.message for one in store.removed(None, None, _LATE, 50)}
    same(everyone, {one.id for one in gone}, "Of all owners")
    same(len(store.removed(None, None, _LATE, 1)), 1, "No more than asked for")


def the_branch_of_a_message_is_the_main_one_or_else_the_oldest(store: Store) -> None:
    scene = StoreFixture(store)
    old = scene.branch("old", "a cat")
    main = scene.fork(old.id, "main")
    shared = scene.load().history(old.id)[0]
    own = scene.append(old.id, "a dog")[0]
    system, nowhere = message("a rule"), scene.say("a parrot")[0]
    scene.write(
        AddMessages((system,)), ChangeBranch(replace(scene.stored(old.id), system=system.id))
    )
    asked = [shared, own.id, system.id, nowhere.id, new_id()]
    wanted = {shared: "main", own.id: "old", system.id: "old"}
    same(store.branches_holding(OWNER, scene.id, asked), wanted, "Branches")
    empty("Of a stranger", store.branches_holding(STRANGER, scene.id, asked))
    assert main.id in scene.load().branches, "The main branch is there."
