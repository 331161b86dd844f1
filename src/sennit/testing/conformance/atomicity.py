"""Atomicity: one failing change rolls back the whole write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
    AddBranch,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    ChangeBranch,
    MessageRecord,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    Write,
)
from sennit.testing.conformance.fixtures import (
    STRANGER,
    StoreFixture,
    branch,
    ids,
    message,
    messages,
    raises,
    same,
    segment,
)


@dataclass(frozen=True)
class _Sample:
    """A session with one of each kind of record."""

    scene: StoreFixture
    main: BranchRecord
    side: BranchRecord
    spare: BranchRecord
    calm: BranchRecord
    """A branch that no valid change touches."""
    shown: MessageRecord
    second: MessageRecord
    loose: tuple[MessageRecord, ...]


def _sample(store: Store) -> _Sample:
    scene = StoreFixture(store)
    main, side = scene.branch("main", *"abc"), scene.branch("side", "x")
    fork = scene.fork(main.id, "fork", at=2)
    scene.append(fork.id, "y")
    spare = scene.fork(main.id, "spare")
    calm = scene.branch("calm", "z")
    loose = scene.say("loose 1", "loose 2", "loose 3")
    shown, second, *_ = scene.load().messages.values()
    return _Sample(scene, main, side, spare, calm, shown, second, tuple(loose))


def _valid_changes(sample: _Sample) -> list[Change]:
    """Return a valid change of each kind."""
    records, on, new = messages("new 1", "new 2"), segment(), segment()
    return [
        RemoveMessages((sample.second.id,)),
        AddMessages(tuple(records)),
        Append(sample.main.id, ids(records)),
        AddBranch(branch("new", on), on),
        Append(sample.side.id, (sample.loose[0].id,)),
        ChangeBranch(replace(sample.side, resources=frozenset({"gpt"}))),
        ChangeBranch(replace(sample.side, segment=new.id, length=2, version=1), new),
        RenameBranch(sample.side.id, "spare too"),
        RemoveBranch(sample.spare.id),
        RenameBranch(sample.side.id, "spare"),
        RemoveMessages((sample.loose[1].id, sample.loose[0].id)),
    ]


def _check_rejected(
    store: Store, kind: type[SennitError], failing: Callable[[_Sample], Change]
) -> None:
    sample = _sample(store)
    scene = sample.scene
    before, good = store.load(scene.owner, scene.id), _valid_changes(sample)
    bad = failing(sample)
    for at in range(len(good) + 1):
        changes = [*good[:at], bad, *good[at:]]
        raises(kind, lambda changes=changes: scene.write(*changes), f"{bad!r:.120} at {at}")
        after = store.load(scene.owner, scene.id)
        same(after, before, f"The session after a write that failed at its change {at}")
    scene.write(*good)
    scene.load()


def a_taken_message_id_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(
        store, ExistsError, lambda sample: AddMessages((message("other", sample.shown.id),))
    )


def a_message_added_before_a_taken_one_is_not_kept(store: Store) -> None:
    _check_rejected(
        store,
        ExistsError,
        lambda sample: AddMessages((message("fine"), message("other", sample.shown.id))),
    )


def an_unknown_message_in_an_append_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(
        store, NotFoundError, lambda sample: Append(sample.main.id, (sample.loose[2].id, new_id()))
    )


def an_unknown_branch_in_an_append_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(store, NotFoundError, lambda sample: Append(new_id(), (sample.loose[2].id,)))


def a_half_known_append_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(
        store,
        ExistsError,
        lambda sample: Append(sample.main.id, (sample.shown.id, sample.loose[2].id)),
    )


def a_taken_branch_name_undoes_the_whole_write(store: Store) -> None:
    on = segment()
    _check_rejected(store, ExistsError, lambda _: AddBranch(branch("main", on), on))


def an_unknown_base_undoes_the_whole_write(store: Store) -> None:
    on = segment((), new_id(), 0)
    _check_rejected(store, NotFoundError, lambda _: AddBranch(branch("other", on), on))


def an_unknown_entry_of_a_branch_undoes_the_whole_write(store: Store) -> None:
    def failing(sample: _Sample) -> Change:
        on = segment((sample.loose[2].id, new_id()))
        return AddBranch(branch("other", on), on)

    _check_rejected(store, NotFoundError, failing)


def a_branch_that_contradicts_itself_undoes_the_whole_write(store: Store) -> None:
    on = segment()
    _check_rejected(store, ValidationError, lambda _: AddBranch(branch("other", on, length=7), on))


def a_stale_change_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(
        store, ConflictError, lambda sample: ChangeBranch(replace(sample.calm, version=9))
    )


def a_stale_rewrite_undoes_the_whole_write(store: Store) -> None:
    def failing(sample: _Sample) -> Change:
        on = segment()
        return ChangeBranch(replace(sample.calm, length=99, segment=on.id), on)

    _check_rejected(store, ConflictError, failing)


def an_unknown_system_message_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(
        store, NotFoundError, lambda sample: ChangeBranch(replace(sample.calm, system=new_id()))
    )


def removing_an_unknown_branch_undoes_the_whole_write(store: Store) -> None:
    _check_rejected(store, NotFoundError, lambda _: RemoveBranch(new_id()))


def a_refused_write_can_be_made_right_and_repeated(store: Store) -> None:
    scene = StoreFixture(store)
    main, one = scene.branch("main"), message("one")
    bad = (AddMessages((one,)), Append(main.id, (one.id,)), RemoveBranch(new_id()))
    raises(NotFoundError, lambda: scene.write(*bad), "A write with an unknown branch")
    heads = scene.write(*bad[:2])
    same(heads[0].length, 0, "The head, as if the refused write had never been")
    same(scene.texts(), ["one"], "The branch")


def a_branch_rewritten_within_a_refused_write_grows_as_before(store: Store) -> None:
    scene = StoreFixture(store)
    main, on = scene.branch("main", *"ab"), segment()
    change = ChangeBranch(replace(main, segment=on.id), on)
    raises(NotFoundError, lambda: scene.write(change, RemoveBranch(new_id())), "A refused write")
    scene.append(main.id, "c")
    same(scene.texts(), [*"abc"], "The branch")
    scene.write(ChangeBranch(replace(main, segment=on.id, length=3), on))
    same(scene.texts(), [], "The branch, rewritten after all with the same segment")


def several_writes_give_their_results_in_order(store: Store) -> None:
    scenes = [StoreFixture(store) for _ in range(3)]
    mains = [scene.branch("main", *"x" * n) for n, scene in enumerate(scenes)]
    records = [scene.say("new")[0] for scene in scenes]
    results = store.write_many(
        [
            Write(scene.owner, scene.id, (Append(main.id, (record.id,)),))
            for scene, main, record in zip(scenes, mains, records, strict=True)
        ]
    )
    heads = [result[0] for result in results if not isinstance(result, SennitError)]
    same([head.branch for head in heads], [main.id for main in mains], "Branches of the heads")
    same([head.length for head in heads], [0, 1, 2], "Lengths of the heads")


def of_several_writes_each_fails_alone(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    a, b = messages("a", "b")
    good = [(AddMessages((record,)), Append(main.id, (record.id,))) for record in (a, b)]
    bad = AddMessages((message("lost"),)), RemoveBranch(new_id())
    writes = [
        Write(scene.owner, scene.id, changes) for changes in (bad, good[0], bad, good[1], bad)
    ]
    results = store.write_many(writes)
    failed = [isinstance(result, NotFoundError) for result in results]
    same(failed, [True, False, True, False, True], "Which writes failed with NotFoundError")
    same(scene.texts(), ["a", "b"], "The branch")
    same(len(scene.load().messages), 2, "Messages kept")


def of_several_writes_one_that_fails_at_its_end_leaves_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    one, lost = messages("one", "lost")
    good = AddMessages((one,)), Append(main.id, (one.id,))
    bad = AddMessages((lost,)), Append(main.id, (lost.id,)), Append(new_id(), (lost.id,))
    results = store.write_many([Write(scene.owner, scene.id, changes) for changes in (bad, good)])
    failed = [isinstance(result, NotFoundError) for result in results]
    same(failed, [True, False], "Which writes failed with NotFoundError")
    same(scene.texts(), ["one"], "The branch")
    same(len(scene.load().messages), 1, "Messages kept")


def of_several_writes_the_later_see_the_earlier(store: Store) -> None:
    scene = StoreFixture(store)
    one, on = message("one"), segment()
    main = branch("main", on)
    changes = (AddMessages((one,)), AddBranch(main, on), Append(main.id, (one.id,)))
    results = store.write_many([Write(scene.owner, scene.id, (change,)) for change in changes])
    failed = [result for result in results if isinstance(result, SennitError)]
    same(failed, [], "Writes that failed")
    same(scene.texts(), ["one"], "The branch")


def several_writes_may_be_of_several_owners(store: Store) -> None:
    mine = StoreFixture(store)
    theirs = StoreFixture(store, STRANGER, mine.id)
    one = AddMessages((message("one"),))
    foreign = StoreFixture(store, STRANGER)
    results = store.write_many(
        [
            Write(mine.owner, mine.id, (one,)),
            Write(mine.owner, foreign.id, (one,)),
            Write(theirs.owner, theirs.id, (one,)),
        ]
    )
    failed = [isinstance(result, NotFoundError) for result in results]
    same(failed, [False, True, False], "Which writes failed with NotFoundError")


def no_writes_give_no_results(store: Store) -> None:
    same(store.write_many([]), [], "Results of no writes")
