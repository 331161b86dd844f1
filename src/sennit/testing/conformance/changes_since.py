"""Incremental loads: exactly the rows beyond the known segment lengths."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddBranch, Append, ChangeBranch, RemoveBranch
from sennit.testing.conformance.fixtures import (
    StoreFixture,
    View,
    branch,
    empty,
    ids,
    same,
    segment,
)


def _known(view: View) -> dict[UUID, int]:
    """Return the length of each segment of a view."""
    return {uid: len(part.entries) for uid, part in view.segments.items()}


def to_someone_who_knows_nothing_all_that_branches_show_is_new(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.append(scene.fork(main.id, "fork", at=2).id, "x")
    full, new = scene.load(), scene.changes({})
    same(new.segments, full.segments, "The segments")
    same(new.branches, full.branches, "The branches")
    same(new.messages, full.messages, "The messages")
    same(new.session, full.session, "The session")


def to_someone_who_knows_all_nothing_is_new(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.fork(main.id, "fork")
    new = scene.changes(_known(scene.load()))
    empty("News for someone who knows all", new.messages, new.segments)
    same(new.branches, scene.load().branches, "The branches, which are always given")


def of_a_segment_that_has_grown_only_the_new_entries_are_given(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    before = _known(scene.load())
    records = scene.append(main.id, "d", "e")
    new = scene.changes(before)
    expected = replace(scene.load().segments[main.segment], entries=ids(records))
    same(new.segments, {main.segment: expected}, "The segment, from where it was known")
    same(new.messages, {record.id: record for record in records}, "The messages of those entries")


def of_a_fork_that_has_grown_only_its_own_entries_are_given(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    fork = scene.fork(main.id, "fork", at=2)
    before = _known(scene.load())
    records = scene.append(fork.id, "x")
    new = scene.changes(before)
    part = new.segments[fork.segment]
    same((part.base, part.offset), (main.segment, 2), "Base and offset of the fork's segment")
    same(part.entries, ids(records), "Its new entries")
    same(list(new.segments), [fork.segment], "The segments given")


def known_lengths_are_taken_at_their_word(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    history = scene.load().history(main.id)
    for length in range(5):
        parts = scene.changes({main.segment: length}).segments
        actual = [entry for part in parts.values() for entry in part.entries]
        same(actual, history[length:], f"Entries past the first {length}")


def a_known_length_beyond_the_end_is_no_news(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a")
    same(scene.changes({main.segment: 99}).segments, {}, "The segments")


def unknown_segments_in_what_is_known_do_not_matter(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a")
    new = scene.changes({new_id(): 3, main.segment: 1})
    empty("What is new", new.segments, new.messages)


def an_empty_segment_is_given_once(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    same(list(scene.changes({}).segments), [main.segment], "An unknown segment without entries")
    same(scene.changes({main.segment: 0}).segments, {}, "The same when it is known")


def a_new_fork_is_given_without_its_known_base(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    before = _known(scene.load())
    fork = scene.fork(main.id, "fork")
    new = scene.changes(before)
    same(list(new.segments), [fork.segment], "The segments given")
    same(new.messages, {}, "The messages given")


def a_new_branch_is_given_with_all_it_stands_on(store: Store) -> None:
    scene = StoreFixture(store)
    first = scene.branch("first", "a")
    before = _known(scene.load())
    main = scene.branch("main", *"bc")
    fork = scene.fork(main.id, "fork")
    scene.write(RemoveBranch(main.id), RemoveBranch(first.id))
    new = scene.changes(before)
    same(set(new.segments), {main.segment, fork.segment}, "The segments given")
    same(new.texts("fork"), ["b", "c"], "The fork")


def a_rewritten_history_is_given_whole(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    before = _known(scene.load())
    change = scene.rewrite(main.id, scene.load().history(main.id)[1:])
    assert change.segment is not None
    new = scene.changes(before)
    same(new.segments, {change.segment.id: change.segment}, "The new segment")
    same(new.texts("main"), ["b", "c"], "The branch")


def a_removed_branch_is_missing_from_the_branches(store: Store) -> None:
    scene = StoreFixture(store)
    main, gone = scene.branch("main", "a"), scene.branch("gone", "b")
    before = _known(scene.load())
    scene.write(RemoveBranch(gone.id))
    new = scene.changes(before)
    same(list(new.branches), [main.id], "The branches")
    same(new.segments, {}, "The segments")


def system_messages_are_always_given(store: Store) -> None:
    scene = StoreFixture(store)
    rule, on = scene.say("be brief")[0], segment()
    main = branch("main", on, system=rule.id)
    scene.write(AddBranch(main, on))
    new = scene.changes(_known(scene.load()))
    same(new.messages, {rule.id: rule}, "The messages given")


def a_new_system_message_is_given(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a")
    before = _known(scene.load())
    rule = scene.say("be brief")[0]
    scene.write(ChangeBranch(replace(main, system=rule.id)))
    new = scene.changes(before)
    same(new.branches[main.id].system, rule.id, "The system message of the branch")
    same(new.messages, {rule.id: rule}, "The messages given")


def messages_on_no_branch_are_no_news(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "a")
    before = _known(scene.load())
    scene.say("loose")
    same(scene.changes(before).messages, {}, "The messages given")


def a_message_on_two_grown_branches_is_given_once(store: Store) -> None:
    scene = StoreFixture(store)
    branches = [scene.branch(name) for name in ("one", "two")]
    before = _known(scene.load())
    shared = scene.say("shared")[0]
    scene.write(*(Append(record.id, (shared.id,)) for record in branches))
    same(scene.changes(before).messages, {shared.id: shared}, "The messages given")


def asking_for_changes_changes_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", *"abc")
    before = store.load(scene.owner, scene.id)
    for _ in range(3):
        scene.changes({})
    same(store.load(scene.owner, scene.id), before, "The session")
