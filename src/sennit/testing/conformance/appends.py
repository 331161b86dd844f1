"""Appends: always at the end, idempotent, with the new head in the result."""

from __future__ import annotations

from dataclasses import replace

from sennit.errors import ExistsError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.sessions import AddMessages, Append, BranchHead, ChangeBranch
from sennit.testing.conformance.fixtures import StoreFixture, ids, message, messages, raises, same


def an_append_goes_to_the_end(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    scene.append(main.id, "two", "three")
    scene.append(main.id, "four")
    same(scene.texts(), ["one", "two", "three", "four"], "The branch")


def an_append_gives_the_head_before_it(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    more = scene.say("two", "three")
    heads = scene.write(Append(main.id, ids(more)))
    same(heads, [BranchHead(main.id, main.segment, 1, 0)], "The head before the append")


def each_append_of_a_write_gives_its_own_head(store: Store) -> None:
    scene = StoreFixture(store)
    main, side = scene.branch("main"), scene.branch("side", "x")
    a, b, c = scene.say("a", "b", "c")
    heads = scene.write(
        Append(main.id, (a.id, b.id)), Append(side.id, (a.id,)), Append(main.id, (c.id,))
    )
    actual = [(head.branch, head.length) for head in heads]
    same(actual, [(main.id, 0), (side.id, 1), (main.id, 2)], "Heads, in the order of appends")


def only_appends_give_heads(store: Store) -> None:
    scene = StoreFixture(store)
    main, one = scene.branch("main"), message("one")
    heads = scene.write(AddMessages((one,)), Append(main.id, (one.id,)), AddMessages((one,)))
    same(len(heads), 1, "Heads of a write with one append")


def the_length_of_a_branch_counts_its_entries(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    scene.append(main.id, "two")
    same(scene.stored(main.id).length, 2, "Length of the branch")
    same(scene.stored(main.id).version, 0, "Version of a branch that was only appended to")


def an_append_of_nothing_is_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    heads = scene.write(Append(main.id, ()))
    same(heads, [BranchHead(main.id, main.segment, 1, 0)], "The head of an empty append")
    same(scene.texts(), ["one"], "The branch")


def an_append_to_an_unknown_branch_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    one = scene.say("one")
    raises(NotFoundError, lambda: scene.write(Append(new_id(), ids(one))), "An unknown branch")
    raises(NotFoundError, lambda: scene.write(Append(new_id(), ())), "An unknown branch")


def an_append_to_a_branch_of_another_session_is_refused(store: Store) -> None:
    here, there = StoreFixture(store), StoreFixture(store)
    main, one = there.branch("main"), here.say("one")
    raises(NotFoundError, lambda: here.write(Append(main.id, ids(one))), "A foreign branch")
    same(there.texts(), [], "The branch of the other session")


def an_append_of_an_unknown_message_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    raises(NotFoundError, lambda: scene.write(Append(main.id, (new_id(),))), "An unknown message")
    same(scene.texts(), ["one"], "The branch")


def an_append_of_a_message_of_another_session_is_refused(store: Store) -> None:
    here, there = StoreFixture(store), StoreFixture(store)
    main, theirs = here.branch("main"), there.say("theirs")
    raises(NotFoundError, lambda: here.write(Append(main.id, ids(theirs))), "A foreign message")


def an_append_repeated_after_a_lost_acknowledgement_is_found_again(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    records = messages("two", "three")
    changes = AddMessages(tuple(records)), Append(main.id, ids(records))
    first, again = scene.write(*changes), scene.write(*changes)
    same(again, first, "Heads of the append and of its repetition")
    same(scene.texts(), ["one", "two", "three"], "The branch")


def a_repeated_append_is_found_behind_later_ones(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    mine = scene.append(main.id, "mine")
    scene.append(main.id, "theirs")
    heads = scene.write(Append(main.id, ids(mine)))
    same(heads[0].length, 1, "Where the repeated append stands")
    same(scene.texts(), ["one", "mine", "theirs"], "The branch")


def a_repeated_write_of_several_appends_is_found_again(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    a, b, c = messages("a", "b", "c")
    changes = (
        AddMessages((a, b, c)),
        Append(main.id, (a.id,)),
        Append(main.id, (b.id, c.id)),
    )
    first, again = scene.write(*changes), scene.write(*changes)
    same([head.length for head in first], [1, 2], "Heads of the appends")
    same(again, first, "Heads of the repetition")


def an_append_of_what_a_fork_shares_already_adds_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    fork = scene.fork(main.id, "fork")
    scene.append(fork.id, "three")
    shared = tuple(scene.load().history(main.id))
    heads = scene.write(Append(fork.id, shared))
    length = heads[0].length
    assert length < 0, f"They begin below the fork's own segment, but the head says {length}."
    same(scene.texts("fork"), ["one", "two", "three"], "The fork")


def a_new_message_appended_twice_in_one_write_stands_once(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    new = message("two")
    scene.write(AddMessages((new,)), Append(main.id, (new.id,)), Append(main.id, (new.id,)))
    same(scene.texts(), ["one", "two"], "The branch")


def one_append_that_names_a_message_twice_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    [two] = scene.say("two")
    twice = Append(main.id, (two.id, two.id))
    raises(ExistsError, lambda: scene.write(twice), "An append that names a message twice")
    same(scene.texts(), ["one"], "The branch")


def a_repeated_append_need_not_stand_together(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    _, b, _, d = scene.load().history(main.id)
    heads = scene.write(Append(main.id, (b, d)))
    same(heads[0].length, 1, "Where the first of them stands")
    same(scene.texts(), [*"abcd"], "The branch")


def an_append_of_which_a_part_is_there_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    old, new = scene.load().history(main.id)[0], scene.say("two")[0].id
    for entries in ((old, new), (new, old)):
        change = Append(main.id, entries)
        raises(ExistsError, lambda change=change: scene.write(change), "A half-known append")
    same(scene.texts(), ["one"], "The branch")


def a_fork_may_append_what_its_source_holds_behind_the_cut(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    fork = scene.fork(main.id, "fork", at=2)
    last = scene.load().history(main.id)[3]
    heads = scene.write(Append(fork.id, (last,)))
    same(heads[0].length, 0, "The head before the append")
    same(scene.texts("fork"), ["a", "b", "d"], "The fork")


def one_message_may_stand_on_many_branches(store: Store) -> None:
    scene = StoreFixture(store)
    branches = [scene.branch(f"b{n}") for n in range(5)]
    one = scene.say("one")
    scene.write(*(Append(record.id, ids(one)) for record in branches))
    same({tuple(scene.texts(record.name)) for record in branches}, {("one",)}, "The branches")


def an_append_lands_although_the_branch_was_changed_meanwhile(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    scene.write(ChangeBranch(replace(main, resources=frozenset({"gpt"}))))
    two = scene.say("two")
    heads = scene.write(Append(main.id, ids(two)))
    same(heads, [BranchHead(main.id, main.segment, 1, 1)], "The head, with the new version")
    same(scene.texts(), ["one", "two"], "The branch")


def an_append_after_a_rewrite_goes_to_the_new_history(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    two = scene.load().history(main.id)[1]
    change = scene.rewrite(main.id, (two,))
    assert change.segment is not None
    three = scene.say("three")
    heads = scene.write(Append(main.id, ids(three)))
    same(heads, [BranchHead(main.id, change.segment.id, 1, 1)], "The head, in the new segment")
    same(scene.texts(), ["two", "three"], "The branch")


def a_message_rewritten_away_can_be_appended_again(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    one, two = scene.load().history(main.id)
    scene.rewrite(main.id, (two,))
    scene.write(Append(main.id, (one,)))
    same(scene.texts(), ["two", "one"], "The branch")
