"""Concurrency: threads on one store lose, duplicate, tear and reorder nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TypeVar
from uuid import UUID

from sennit.errors import ConflictError, ExistsError, SennitError, StoreError
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    BranchHead,
    ChangeBranch,
    MessageRecord,
    RenameBranch,
    Write,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    StoreFixture,
    branch,
    ids,
    messages,
    same,
    segment,
    session,
)

_T = TypeVar("_T")
_THREADS = 8
_EACH = 25


def _together(action: Callable[[int], _T], count: int = _THREADS) -> list[_T]:
    """Run `action` with each thread's number, all started at once, and return the results."""
    start = Barrier(count)

    def run(number: int) -> _T:
        start.wait(30)
        return action(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def _texts(number: int) -> list[str]:
    return [f"{number}:{step}" for step in range(_EACH)]


def _check_landed(texts: list[str]) -> None:
    same(len(texts), _THREADS * _EACH, "Messages on the branch")
    for number in range(_THREADS):
        own = [text for text in texts if text.startswith(f"{number}:")]
        same(own, _texts(number), f"The messages of thread {number}, in its order")


def appends_of_many_threads_all_land_in_order(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def run(number: int) -> list[BranchHead]:
        records = messages(*_texts(number))
        return [
            scene.write(AddMessages((record,)), Append(main.id, (record.id,)))[0]
            for record in records
        ]

    heads = [head for part in _together(run) for head in part]
    _check_landed(scene.texts())
    lengths = sorted(head.length for head in heads)
    same(lengths, list(range(_THREADS * _EACH)), "The heads, each a place of its own")


def heads_say_where_each_append_stands(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def run(number: int) -> list[tuple[int, UUID]]:
        places: list[tuple[int, UUID]] = []
        for text in _texts(number)[::5]:
            pair = messages(text, text)
            head = scene.write(AddMessages(tuple(pair)), Append(main.id, ids(pair)))[0]
            places += [(head.length + n, record.id) for n, record in enumerate(pair)]
        return places

    places = [place for part in _together(run) for place in part]
    history = scene.load().history(main.id)
    same([uid for _, uid in sorted(places)], history, "The branch, put together from heads")


def writes_of_many_threads_in_groups_all_land_in_order(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def write(record: MessageRecord) -> Write:
        return Write(OWNER, scene.id, (AddMessages((record,)), Append(main.id, (record.id,))))

    def run(number: int) -> list[list[BranchHead] | SennitError]:
        records = messages(*_texts(number))
        return [
            result
            for at in range(0, _EACH, 5)
            for result in store.write_many([write(record) for record in records[at : at + 5]])
        ]

    results = [result for part in _together(run) for result in part]
    failed = [result for result in results if isinstance(result, SennitError)]
    same(failed, [], "Writes that failed")
    _check_landed(scene.texts())


def the_same_write_by_many_threads_is_made_once(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "before")
    records = messages("one", "two")
    changes = AddMessages(tuple(records)), Append(main.id, ids(records))
    heads = _together(lambda _: scene.write(*changes))
    same({head.length for (head,) in heads}, {1}, "Where the append stands, for every thread")
    same(scene.texts(), ["before", "one", "two"], "The branch")


def of_many_changes_from_one_version_one_wins(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def run(number: int) -> bool:
        wanted = replace(main, resources=frozenset({f"{number}"}))
        try:
            scene.write(ChangeBranch(wanted))
        except ConflictError:
            return False
        return True

    won = [number for number, result in enumerate(_together(run)) if result]
    same(len(won), 1, "Threads that changed the branch")
    same(scene.stored(main.id).resources, frozenset({f"{won[0]}"}), "The grants of the winner")


def of_many_branches_with_one_name_one_is_made(store: Store) -> None:
    scene = StoreFixture(store)

    def run(_: int) -> bool:
        on = segment()
        try:
            scene.write(AddBranch(branch("main", on), on))
        except ValueError:  # ExistsError
            return False
        return True

    same(_together(run).count(True), 1, "Threads that made the branch")
    same(len(scene.load().branches), 1, "Branches")


def of_many_branches_renamed_alike_one_is(store: Store) -> None:
    scene = StoreFixture(store)
    branches = [scene.branch(f"b{n}") for n in range(_THREADS)]

    def run(number: int) -> bool:
        try:
            scene.write(RenameBranch(branches[number].id, "wanted"))
        except ExistsError:
            return False
        return True

    won = [number for number, result in enumerate(_together(run)) if result]
    same(len(won), 1, "Threads that renamed theirs")
    same(scene.stored(branches[won[0]].id).name, "wanted", "The winner's branch")


def of_many_names_given_to_one_branch_one_stays(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one")
    _together(lambda number: scene.write(RenameBranch(main.id, f"{number}")))
    stored = scene.stored(main.id)
    assert stored.name in map(str, range(_THREADS)), f"A name that nobody gave: {stored.name!r}"
    same(stored, replace(main, name=stored.name), "The branch")


def of_many_who_want_a_lease_one_gets_it(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def run(number: int) -> bool:
        try:
            store.acquire(OWNER, scene.id, main.id, f"holder {number}", 60_000_000)
        except ConflictError:
            return False
        return True

    same(_together(run).count(True), 1, "Threads that got the lease")


def a_session_created_by_many_threads_is_one(store: Store) -> None:
    record = session(key="shared")
    created = _together(lambda n: store.create_session(OWNER, replace(record, key=f"by {n}")))
    same(len({record.key for record in created}), 1, "Keys the threads were told")
    listed = store.list_sessions(OWNER, contains=None, before=None, limit=100)
    same(listed, created[:1], "The sessions listed")


def readers_never_see_half_a_write(store: Store) -> None:
    scene = StoreFixture(store)
    main, side = scene.branch("main"), scene.branch("side")

    def run(number: int) -> None:
        for _ in range(_EACH):
            if number % 2:
                pair_ids = ids(pair := messages("x", "y"))
                both = Append(main.id, pair_ids), Append(side.id, pair_ids)
                scene.write(AddMessages(tuple(pair)), *both)
            else:
                view = scene.load()
                same(view.texts("main"), view.texts("side"), "Two branches written together")

    _together(run)
    same(len(scene.texts()), _THREADS * _EACH, "Messages on the branch")


def threads_on_sessions_of_their_own_do_not_meet(store: Store) -> None:
    scenes = [StoreFixture(store) for _ in range(_THREADS)]

    def run(number: int) -> None:
        main = scenes[number].branch("main")
        for text in _texts(number):
            scenes[number].append(main.id, text)

    _together(run)
    for number, scene in enumerate(scenes):
        same(scene.texts(), _texts(number), f"The branch of thread {number}")


def a_search_runs_beside_writes(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def run(number: int) -> None:
        for text in _texts(number)[:10]:
            appended = scene.append(main.id, f"parrot {text}")[0]
            hits = store.search(OWNER, "parrot", session=scene.id, limit=1000)
            assert appended.id in {hit.message for hit in hits}, (
                "A search missed a written message."
            )

    _together(run)


def a_closed_store_lets_no_thread_hang(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")

    def run(number: int) -> list[str]:
        for step in range(_EACH):
            if number == 0 and step == 5:
                store.close()
            try:
                scene.append(main.id, "x")
            except StoreError as error:
                return [str(error)]
        return []

    refusals = _together(run)
    same(len(refusals[0]), 1, "Refusals of the thread that closed the store")
    odd = [text for part in refusals for text in part if "closed" not in text]
    same(odd, [], "Refusals that do not say that the store is closed")
