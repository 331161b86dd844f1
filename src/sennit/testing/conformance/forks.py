"""Forks: history is shared, never copied, and isolated from later writes."""

from __future__ import annotations

from uuid import UUID

from sennit.errors import ConflictError, NotFoundError, ValidationError
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddBranch, RemoveBranch, RemoveMessages
from sennit.testing.conformance.fixtures import StoreFixture, branch, raises, same, segment


def a_fork_shows_the_history_of_its_source(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.fork(main.id, "fork")
    same(scene.texts("fork"), [*"abc"], "The fork")


def a_fork_copies_no_entries(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    fork = scene.fork(main.id, "fork")
    same(scene.load().segments[fork.segment].entries, (), "Entries of the fork's own")
    same(scene.stored(fork.id).length, 0, "Length of the fork's own segment")


def a_fork_and_its_source_grow_apart(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a")
    fork = scene.fork(main.id, "fork")
    scene.append(main.id, "mine")
    scene.append(fork.id, "yours")
    same((scene.texts(), scene.texts("fork")), (["a", "mine"], ["a", "yours"]), "The branches")


def a_fork_may_begin_anywhere(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    for at in range(5):
        scene.fork(main.id, f"at {at}", at=at)
        same(scene.texts(f"at {at}"), [*"abcd"][:at], f"The fork at {at}")


def a_fork_of_a_fork_may_begin_in_what_they_share(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    fork = scene.fork(main.id, "fork", at=3)
    scene.append(fork.id, "x", "y")
    scene.fork(fork.id, "inside", at=2)
    scene.fork(fork.id, "across", at=4)
    same(scene.texts("inside"), ["a", "b"], "A fork within the shared part")
    same(scene.texts("across"), ["a", "b", "c", "x"], "A fork beyond the shared part")


def a_segment_stands_on_the_one_that_holds_the_entry_below_it(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    fork = scene.fork(main.id, "fork", at=3)
    scene.append(fork.id, "x")
    on = segment((), fork.segment, 2)
    change = AddBranch(branch("low", on), on)
    raises(ValidationError, lambda: scene.write(change), "A segment that begins below its base")
    same(len(scene.load().branches), 2, "Branches")


def a_fork_may_bring_messages_of_its_own(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"ab")
    extra = scene.say("x")[0]
    on = segment((extra.id,), main.segment, 1)
    scene.write(AddBranch(branch("fork", on), on))
    same(scene.texts("fork"), ["a", "x"], "The fork")


def _fork_as_seen(scene: StoreFixture, source: UUID, version: int, name: str) -> AddBranch:
    """Return a fork after the first message of a branch, based on one of its versions."""
    on = segment((), scene.stored(source).segment, 1)
    return AddBranch(
        branch(name, on, metadata={"forked_from": {"branch_id": str(source)}}), on, version
    )


def a_fork_of_a_branch_that_others_added_to_is_made(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"ab")
    change = _fork_as_seen(scene, main.id, scene.stored(main.id).version, "fork")
    scene.append(main.id, "c")
    scene.write(change)
    same(scene.texts("fork"), ["a"], "The fork")


def a_fork_of_a_branch_that_others_changed_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    version = scene.stored(main.id).version
    made = _fork_as_seen(scene, main.id, version, "made before")
    scene.write(made)
    late = _fork_as_seen(scene, main.id, version, "fork")
    scene.write(RemoveMessages((scene.load().history(main.id)[0],)))
    raises(ConflictError, lambda: scene.write(late), "a fork of what was removed")
    scene.write(made)  # once more, as its acknowledgement was lost
    names = {one.name for one in scene.load().branches.values()}
    same(names, {"main", "made before"}, "The branches")


def a_fork_of_a_branch_that_others_removed_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.fork(main.id, "other")  # which keeps the segment
    late = _fork_as_seen(scene, main.id, scene.stored(main.id).version, "fork")
    scene.write(RemoveBranch(main.id))
    raises(NotFoundError, lambda: scene.write(late), "a fork of a branch that is gone")


def rewriting_the_source_leaves_the_fork(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.fork(main.id, "fork", at=2)
    scene.rewrite(main.id, scene.load().history(main.id)[2:])
    same((scene.texts(), scene.texts("fork")), (["c"], ["a", "b"]), "The branches")


def rewriting_the_fork_leaves_the_source(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    fork = scene.fork(main.id, "fork")
    scene.rewrite(fork.id, scene.load().history(fork.id)[::-1])
    same((scene.texts(), scene.texts("fork")), ([*"abc"], [*"cba"]), "The branches")


def removing_the_source_leaves_the_fork(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    fork = scene.fork(main.id, "fork", at=2)
    scene.write(RemoveBranch(main.id))
    scene.append(fork.id, "x")
    same(scene.texts("fork"), ["a", "b", "x"], "The fork")


def removing_the_last_branch_forgets_its_segments(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    fork = scene.fork(main.id, "fork")
    scene.write(RemoveBranch(main.id))
    same(len(scene.load().segments), 2, "Segments the fork still needs")
    scene.write(RemoveBranch(fork.id))
    same(len(scene.load().segments), 0, "Segments that nobody needs")


def a_rewritten_segment_nobody_needs_is_not_given(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.rewrite(main.id, scene.load().history(main.id))
    assert main.segment not in scene.load().segments, "A segment nobody needs was given."


def many_forks_of_one_source_are_kept_apart(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "a")
    for n in range(100):
        fork = scene.fork(main.id, f"fork {n}")
        scene.append(fork.id, f"only {n}")
    view = scene.load()
    actual = [view.texts(f"fork {n}") for n in range(100)]
    same(actual, [["a", f"only {n}"] for n in range(100)], "A hundred forks")
