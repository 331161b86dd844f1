"""Branches: fields, names, and optimistic locking of changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha512

from sennit.errors import (
    ConflictError,
    ExistsError,
    NotFoundError,
    SennitError,
    ValidationError,
)
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    MAX_NAME_BYTES,
    AddBranch,
    Append,
    BranchRecord,
    Change,
    ChangeBranch,
    RemoveBranch,
    RenameBranch,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    StoreFixture,
    branch,
    empty,
    ids,
    raises,
    same,
    segment,
)


def _names(scene: StoreFixture) -> list[str]:
    return [record.name for record in scene.load().branches.values()]


def _refused(scene: StoreFixture, kind: type[SennitError], change: Change, why: str) -> None:
    before = scene.load()
    raises(kind, lambda: scene.write(change), why)
    same(scene.load().branches, before.branches, f"The branches after {why!r} was refused")
    same(scene.load().segments, before.segments, f"The segments after {why!r} was refused")


def a_branch_comes_back_as_it_was(store: Store) -> None:
    scene = StoreFixture(store)
    rule, one = scene.say("be brief", "one")
    on = segment((one.id,))
    main = branch(
        "main",
        on,
        system=rule.id,
        created=NOON + 7,
        resources=frozenset({"gpt", "clau;de"}),
        capabilities=frozenset({"naïve"}),
        metadata={"color": "red", "list": [1, {"a": None}]},
    )
    scene.write(AddBranch(main, on))
    same(scene.stored(main.id), main, "The branch")
    same(scene.load().segments[on.id], on, "Its segment")


def a_branch_without_grants_comes_back_without_any(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.stored(scene.branch("main").id)
    empty("Its metadata", main.metadata)
    none: frozenset[str] = frozenset()
    same((main.resources, main.capabilities), (none, none), "Its grants")
    same(main.system, None, "Its system message")


def grants_that_were_never_given_stay_apart_from_empty_ones(store: Store) -> None:
    scene = StoreFixture(store)
    on = segment()
    main = branch("main", on, resources=None, capabilities=None)
    scene.write(AddBranch(main, on))
    same(scene.stored(main.id), main, "The branch")
    none: frozenset[str] = frozenset()
    empty_grants = replace(main, resources=none, capabilities=none)
    scene.write(ChangeBranch(empty_grants))
    same(scene.stored(main.id), replace(empty_grants, version=1), "The branch with empty grants")


def branches_are_given_by_time_of_creation(store: Store) -> None:
    scene = StoreFixture(store)
    for name, created in (("late", 30), ("early", 10), ("middle", 20)):
        on = segment()
        scene.write(AddBranch(branch(name, on, created=NOON + created), on))
    same(_names(scene), ["early", "middle", "late"], "Order of branches")


def branches_created_at_one_moment_are_given_by_id(store: Store) -> None:
    scene = StoreFixture(store)
    branch_ids = [scene.branch(f"b{n}").id for n in (3, 1, 2)]
    same(list(scene.load().branches), sorted(branch_ids), "Order of branches")


def branch_names_may_hold_anything(store: Store) -> None:
    scene = StoreFixture(store)
    long = "".join(sha512(f"{n}".encode()).hexdigest() for n in range(16))[:MAX_NAME_BYTES]
    names = ["'; DROP TABLE branches; --", "a'b\"c`d", "", " ", "naïve 🦜", long, "%_*?"]
    for name in names:
        scene.branch(name, f"on {name}")
    for name in names:
        same(scene.texts(name), [f"on {name}"], f"The branch {name:.40}")


def a_name_that_is_no_unicode_is_refused_or_kept(store: Store) -> None:
    scene = StoreFixture(store)
    accepted = ["main"]
    scene.branch("main")
    for name in ("lone \ud800 surrogate", "a NUL \x00 inside"):
        try:
            scene.branch(name)
        except SennitError:
            continue
        accepted.append(name)
    same(sorted(_names(scene)), sorted(accepted), "The branches that were accepted")


def names_that_differ_in_case_are_two_names(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("Main")
    scene.branch("main")
    same(sorted(_names(scene)), ["Main", "main"], "The branches")


def sessions_may_have_branches_of_one_name(store: Store) -> None:
    here, there = StoreFixture(store), StoreFixture(store)
    here.branch("main", "here")
    there.branch("main", "there")
    same((here.texts(), there.texts()), (["here"], ["there"]), "The two branches")


def sessions_may_have_branches_of_one_id(store: Store) -> None:
    here, there, on = StoreFixture(store), StoreFixture(store), segment()
    main = branch("main", on)
    for scene in (here, there):
        scene.write(AddBranch(main, on))
    here.append(main.id, "here")
    same(here.texts(), ["here"], "The branch that was appended to")
    same(there.texts(), [], "The other one")


def a_branch_added_twice_is_one(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    main = branch("main", on)
    scene.write(AddBranch(main, on))
    scene.write(AddBranch(main, on))
    same(_names(scene), ["main"], "The branches")


def a_branch_added_again_keeps_what_it_has_since(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    main = branch("main", on)
    scene.write(AddBranch(main, on))
    scene.append(main.id, "one")
    scene.write(ChangeBranch(replace(main, resources=frozenset({"gpt"}))))
    scene.write(AddBranch(main, on))
    same(scene.texts(), ["one"], "The branch")
    same(scene.stored(main.id).resources, frozenset({"gpt"}), "Its grants")


def a_taken_name_is_refused(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    scene.branch("main", "one")
    _refused(scene, ExistsError, AddBranch(branch("main", on), on), "a taken name")


def a_taken_id_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    on = segment()
    other = branch("other", on, id=main.id)
    _refused(scene, ExistsError, AddBranch(other, on), "a taken id with another name")
    again = branch("main", on, id=main.id)
    _refused(scene, ExistsError, AddBranch(again, on), "a taken id with another segment")


def a_taken_id_with_another_name_is_refused_even_on_its_own_segment(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    main = branch("main", on)
    scene.write(AddBranch(main, on))
    other = replace(main, name="other")
    _refused(scene, ExistsError, AddBranch(other, on), "a taken id and segment")


def a_segment_of_another_branch_is_refused(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    scene.write(AddBranch(branch("main", on), on))
    other = branch("other", on)
    _refused(scene, ExistsError, AddBranch(other, on), "a segment of another branch")


def a_branch_on_an_unknown_base_is_refused(store: Store) -> None:
    scene, on = StoreFixture(store), segment((), new_id(), 0)
    _refused(scene, NotFoundError, AddBranch(branch("main", on), on), "an unknown base")


def a_branch_on_a_base_of_another_session_is_refused(store: Store) -> None:
    here, there = StoreFixture(store), StoreFixture(store)
    on = segment((), there.branch("main", "one").segment, 1)
    _refused(here, NotFoundError, AddBranch(branch("main", on), on), "a foreign base")


def a_branch_with_an_unknown_message_is_refused(store: Store) -> None:
    scene, on = StoreFixture(store), segment((new_id(),))
    _refused(scene, NotFoundError, AddBranch(branch("main", on), on), "an unknown message")


def a_branch_with_an_unknown_system_message_is_refused(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    main = branch("main", on, system=new_id())
    _refused(scene, NotFoundError, AddBranch(main, on), "an unknown system message")


def a_branch_that_begins_past_the_end_of_its_base_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    for base, offset in ((main.segment, 3), (main.segment, -1), (None, 1)):
        on = segment((), base, offset)
        _refused(scene, ValidationError, AddBranch(branch("fork", on), on), f"offset {offset}")


def a_branch_that_contradicts_its_segment_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    on = segment(ids(scene.say("one")))
    _refused(scene, ValidationError, AddBranch(branch("main", on, length=2), on), "a wrong length")
    other = branch("main", on, segment=new_id())
    _refused(scene, ValidationError, AddBranch(other, on), "a wrong segment")


def changing_a_branch_record_in_hand_changes_nothing_in_the_store(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    main = branch("main", on, metadata={"list": [1]})
    scene.write(AddBranch(main, on))
    for record in (main, scene.stored(main.id), scene.changes({}).branches[main.id]):
        record.metadata["list"].append(2)
    same(scene.stored(main.id).metadata, {"list": [1]}, "Metadata of the branch")


def a_removed_branch_is_gone(store: Store) -> None:
    scene = StoreFixture(store)
    gone = scene.branch("gone", "one")
    scene.branch("stays", "two")
    scene.write(RemoveBranch(gone.id))
    same(_names(scene), ["stays"], "The branches")
    raises(NotFoundError, lambda: scene.append(gone.id, "more"), "Appending to a removed branch")


def removing_a_branch_keeps_its_messages(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    scene.write(RemoveBranch(main.id))
    same(len(scene.load().messages), 2, "Messages of a removed branch")


def removing_an_unknown_branch_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    raises(NotFoundError, lambda: scene.write(RemoveBranch(new_id())), "An unknown branch")
    scene.write(RemoveBranch(main.id))
    raises(NotFoundError, lambda: scene.write(RemoveBranch(main.id)), "A removed branch")


def the_name_of_a_removed_branch_is_free(store: Store) -> None:
    scene = StoreFixture(store)
    old = scene.branch("main", "old")
    scene.write(RemoveBranch(old.id))
    scene.branch("main", "new")
    same(scene.texts(), ["new"], "The new branch of that name")


def a_branch_can_be_replaced_by_one_of_its_name_in_one_write(store: Store) -> None:
    scene = StoreFixture(store)
    old, on = scene.branch("main", "old"), segment()
    scene.write(RemoveBranch(old.id), AddBranch(branch("main", on), on))
    same(scene.texts(), [], "The new branch of that name")


def a_branch_gets_other_grants(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    wanted = replace(main, resources=frozenset({"gpt"}), capabilities=frozenset({"Answer"}))
    scene.write(ChangeBranch(wanted))
    same(scene.stored(main.id), replace(wanted, version=1), "The branch with its grants")
    scene.write(ChangeBranch(replace(main, version=1)))
    same(scene.stored(main.id), replace(main, version=2), "The branch without them again")


def a_branch_gets_another_system_message(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    rule = scene.say("be brief")[0]
    scene.write(ChangeBranch(replace(main, system=rule.id)))
    same(scene.stored(main.id).system, rule.id, "Its system message")
    scene.write(ChangeBranch(replace(main, system=None, version=1)))
    same(scene.stored(main.id).system, None, "Its system message after it was taken away")


def an_unknown_system_message_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    change = ChangeBranch(replace(main, system=new_id()))
    raises(NotFoundError, lambda: scene.write(change), "An unknown system message")
    same(scene.stored(main.id), main, "The branch")


def a_change_never_touches_name_time_and_metadata(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    main = branch("main", on, metadata={"color": "red"})
    scene.write(AddBranch(main, on))
    odd = replace(main, name="other", created=1, metadata={}, resources=frozenset({"gpt"}))
    scene.write(ChangeBranch(odd))
    expected = replace(main, resources=frozenset({"gpt"}), version=1)
    same(scene.stored(main.id), expected, "The branch")


def a_branch_gets_another_name_and_keeps_all_else(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    for name in ("Bö'b\n", "", "main", "'; DROP TABLE branches; --", "x" * 1000):
        scene.write(RenameBranch(main.id, name))
        same(scene.stored(main.id), replace(main, name=name), "The branch under another name")
        listed = scene.changes({main.segment: 1}).branches
        same(listed[main.id].name, name, "Its name with what is new")
    same(scene.texts("x" * 1000), ["one"], "What it says")


def a_branch_renamed_twice_alike_is_renamed_once(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    for _ in range(2):
        scene.write(RenameBranch(main.id, "other"))
    same(scene.stored(main.id), replace(main, name="other"), "The branch")


def a_name_that_another_branch_has_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "one")
    side = scene.branch("side", "two")
    _refused(scene, ExistsError, RenameBranch(side.id, "main"), "a taken name")


def an_unknown_branch_is_not_renamed(store: Store) -> None:
    here, there = StoreFixture(store), StoreFixture(store)
    here.branch("main")
    foreign = there.branch("side")
    for uid in (new_id(), foreign.id):
        _refused(here, NotFoundError, RenameBranch(uid, "other"), "an unknown branch")
        _refused(here, NotFoundError, RenameBranch(uid, "main"), "an unknown branch, taken name")
    same(_names(there), ["side"], "The branches of the other session")


def a_name_that_was_given_up_is_free(store: Store) -> None:
    scene = StoreFixture(store)
    old = scene.branch("main", "old")
    scene.write(RenameBranch(old.id, "before"))
    scene.branch("main", "new")
    same((scene.texts("before"), scene.texts("main")), (["old"], ["new"]), "The two branches")
    _refused(scene, ExistsError, RenameBranch(old.id, "main"), "its old name, which is taken")


def two_branches_swap_their_names_in_one_write(store: Store) -> None:
    scene = StoreFixture(store)
    one, two = scene.branch("one", "1"), scene.branch("two", "2")
    names = (RenameBranch(one.id, "x"), RenameBranch(two.id, "one"), RenameBranch(one.id, "two"))
    scene.write(*names)
    same((scene.texts("one"), scene.texts("two")), (["2"], ["1"]), "The two branches")


def another_name_stands_in_the_way_of_no_other_change(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    scene.write(RenameBranch(main.id, "other"))
    scene.append(main.id, "two")
    scene.write(ChangeBranch(replace(main, resources=frozenset({"gpt"}))))
    scene.write(RenameBranch(main.id, "third"))
    expected = replace(main, name="third", length=2, resources=frozenset({"gpt"}), version=1)
    same(scene.stored(main.id), expected, "The branch")


def a_change_of_an_unknown_branch_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    unknown = branch("main", segment())
    raises(NotFoundError, lambda: scene.write(ChangeBranch(unknown)), "An unknown branch")


def a_change_from_an_old_version_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    mine, theirs = (replace(main, resources=frozenset({name})) for name in ("mine", "theirs"))
    scene.write(ChangeBranch(theirs))
    raises(ConflictError, lambda: scene.write(ChangeBranch(mine)), "A change from an old version")
    same(scene.stored(main.id), replace(theirs, version=1), "The branch")


def a_change_of_grants_does_not_mind_appends(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    scene.append(main.id, "two")
    scene.write(ChangeBranch(replace(main, resources=frozenset({"gpt"}))))
    same(scene.texts(), ["one", "two"], "The branch")
    same(scene.stored(main.id).length, 2, "Its length")


def a_change_of_grants_repeated_changes_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    change = ChangeBranch(replace(main, resources=frozenset({"gpt"})))
    scene.write(change)
    before = scene.stored(main.id)
    # Both are safe: a writer who is refused refreshes, and finds its change made.
    with suppress(ConflictError):
        scene.write(change)
    same(scene.stored(main.id), before, "The branch")


def a_rewritten_history_takes_the_place_of_the_old(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    a, _, c = scene.load().history(main.id)
    change = scene.rewrite(main.id, (c, a))
    assert change.segment is not None
    same(scene.texts(), ["c", "a"], "The branch")
    expected = replace(main, segment=change.segment.id, length=2, version=1)
    same(scene.stored(main.id), expected, "The branch")


def a_history_can_be_rewritten_on_top_of_the_old_one(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    on = segment((scene.load().history(main.id)[3],), main.segment, 2)
    scene.write(ChangeBranch(replace(main, segment=on.id), on))
    same(scene.texts(), ["a", "b", "d"], "The branch")


def a_history_can_be_rewritten_many_times(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcdefgh")
    for _ in range(20):
        first, *rest = scene.load().history(main.id)
        scene.rewrite(main.id, (*rest, first))
    same(scene.texts(), [*"efghabcd"], "The branch after 20 rotations")
    same(scene.stored(main.id).version, 20, "Its version")
    same(len(scene.load().segments), 1, "Segments that are needed")


def a_rewritten_history_may_be_empty(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    scene.rewrite(main.id, ())
    same(scene.texts(), [], "The branch")
    same(scene.stored(main.id).length, 0, "Its length")


def a_rewrite_that_missed_an_append_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main, on = scene.branch("main", "one"), segment()
    scene.append(main.id, "two")
    change = ChangeBranch(replace(main, segment=on.id), on)
    raises(ConflictError, lambda: scene.write(change), "A rewrite that missed an append")
    same(scene.texts(), ["one", "two"], "The branch")


def a_rewrite_that_missed_a_rewrite_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main, on = scene.branch("main", "one"), segment()
    scene.rewrite(main.id, tuple(scene.load().history(main.id)))
    change = ChangeBranch(replace(main, segment=on.id), on)
    raises(ConflictError, lambda: scene.write(change), "A rewrite that missed another")
    same(scene.texts(), ["one"], "The branch")


def a_rewrite_with_unknown_parts_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    for on in (segment((new_id(),)), segment((), new_id(), 0)):
        change = ChangeBranch(replace(main, segment=on.id), on)
        raises(NotFoundError, lambda change=change: scene.write(change), "Unknown parts")
    same(scene.stored(main.id), main, "The branch")


def a_rewrite_repeated_after_a_lost_acknowledgement_is_found_again(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    change = scene.rewrite(main.id, scene.load().history(main.id)[1:])
    scene.write(change)
    same(scene.texts(), ["two"], "The branch")
    same(scene.stored(main.id).version, 1, "Its version")


def a_repeated_rewrite_keeps_what_was_appended_since(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    change = scene.rewrite(main.id, scene.load().history(main.id)[1:])
    scene.append(main.id, "three")
    scene.write(change)
    same(scene.texts(), ["two", "three"], "The branch")


def a_branch_can_be_added_appended_to_and_changed_in_one_write(store: Store) -> None:
    scene, on = StoreFixture(store), segment()
    one, main = scene.say("one"), branch("main", on)
    granted: BranchRecord = replace(main, resources=frozenset({"gpt"}))
    scene.write(AddBranch(main, on), Append(main.id, ids(one)), ChangeBranch(granted))
    same(scene.stored(main.id), replace(granted, length=1, version=1), "The branch")
