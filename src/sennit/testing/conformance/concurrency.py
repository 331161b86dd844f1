"""Concurrency: threads on one store lose, duplicate, tear and reorder nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TypeVar
from uuid import UUID

from sennit.errors import SennitError, StoreError
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
    TTL,
    Scenario,
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


def _winner(action: Callable[[int], object]) -> int:
    """Run `action` in threads; return the number of the only one that is not refused."""

    def run(number: int) -> bool:
        try:
            action(number)
        except SennitError:
            return False
        return True

    won = [number for number, result in enumerate(_together(run)) if result]
    same(len(won), 1, "Threads that were not refused")
    return won[0]


def _texts(number: int) -> list[str]:
    return [f"{number}:{step}" for step in range(_EACH)]


def _appending(branch: UUID, *records: MessageRecord) -> tuple[AddMessages, Append]:
    return AddMessages(records), Append(branch, ids(records))


def _check_landed(texts: list[str]) -> None:
    same(len(texts), _THREADS * _EACH, "Messages on the branch")
    for number in range(_THREADS):
        own = [text for text in texts if text.startswith(f"{number}:")]
        same(own, _texts(number), f"The messages of thread {number}, in its order")


def appends_of_many_threads_all_land_in_order_where_their_heads_say(s: Scenario) -> None:
    main, sizes = s.branch().stored().id, (1, 2)

    def run(number: int) -> list[tuple[int, UUID]]:
        places: list[tuple[int, UUID]] = []
        records = messages(*_texts(number))
        while records:
            part, records = records[: sizes[number % 2]], records[sizes[number % 2] :]
            (head,) = s.store.write(OWNER, s.id, _appending(main, *part))
            places += [(head.length + n, record.id) for n, record in enumerate(part)]
        return places

    places = sorted(place for part in _together(run) for place in part)
    _check_landed(s.texts())
    same([uid for _, uid in places], s.load().history(main), "The branch, from the heads")
    same([at for at, _ in places], list(range(_THREADS * _EACH)), "Each place once")


def writes_of_many_threads_in_groups_all_land_in_order(s: Scenario) -> None:
    main = s.branch().stored().id

    def run(number: int) -> list[list[BranchHead] | SennitError]:
        writes = [Write(OWNER, s.id, _appending(main, one)) for one in messages(*_texts(number))]
        groups = (writes[at : at + 5] for at in range(0, _EACH, 5))
        return [result for group in groups for result in s.store.write_many(group)]

    results = [result for part in _together(run) for result in part]
    same([one for one in results if isinstance(one, SennitError)], [], "Writes that failed")
    _check_landed(s.texts())


def the_same_write_by_many_threads_is_made_once(s: Scenario) -> None:
    changes = _appending(s.branch("main", "a").stored().id, *messages("b", "c"))
    heads = _together(lambda _: s.store.write(OWNER, s.id, changes))
    same({head.length for (head,) in heads}, {1}, "Where the append stands, for every thread")
    s.shows(main="abc")


def of_many_who_want_one_thing_one_gets_it(s: Scenario) -> None:
    main, store = s.branch().stored(), s.store
    grants = [frozenset({f"{n}"}) for n in range(_THREADS)]
    changes = [ChangeBranch(replace(main, resources=one)) for one in grants]
    won = _winner(lambda n: store.write(OWNER, s.id, [changes[n]]))
    same(s.stored().resources, grants[won], "The grants of the winner")
    parts = [segment() for _ in range(_THREADS)]
    won = _winner(lambda n: store.write(OWNER, s.id, [AddBranch(branch("x", parts[n]), parts[n])]))
    same(s.stored("x").segment, parts[won].id, "The branch of the winner")
    named = [s.branch(f"b{n}").stored(f"b{n}").id for n in range(_THREADS)]
    won = _winner(lambda n: store.write(OWNER, s.id, [RenameBranch(named[n], "wanted")]))
    same(s.stored("wanted").id, named[won], "The branch that was renamed")
    _winner(lambda n: store.acquire(OWNER, s.id, main.id, f"holder {n}", TTL))


def of_many_names_given_to_one_branch_one_stays(s: Scenario) -> None:
    main = s.branch("main", "a").stored()
    _together(lambda n: s.store.write(OWNER, s.id, [RenameBranch(main.id, f"{n}")]))
    (stored,) = s.load().branches.values()
    assert stored.name in map(str, range(_THREADS)), f"A name that nobody gave: {stored.name!r}"
    same(stored, replace(main, name=stored.name), "The branch")


def a_session_created_by_many_threads_is_one(s: Scenario) -> None:
    record = session(key="shared")
    created = _together(lambda n: s.store.create_session(OWNER, replace(record, key=f"by {n}")))
    same(len({record.key for record in created}), 1, "Keys the threads were told")
    listed = s.store.list_sessions(OWNER, contains="by", before=None, limit=100)
    same(listed, created[:1], "The sessions listed")


def readers_never_see_half_a_write(s: Scenario) -> None:
    main, side = s.branch("main").stored().id, s.branch("side").stored("side").id

    def run(number: int) -> None:
        for _ in range(_EACH):
            if number % 2:
                added, appended = _appending(main, *messages("x", "y"))
                s.store.write(OWNER, s.id, [added, appended, Append(side, appended.entries)])
            else:
                view = s.load()
                same(view.texts("main"), view.texts("side"), "Two branches written together")

    _together(run)
    same(len(s.texts()), _THREADS * _EACH, "Messages on the branch")


def threads_on_sessions_of_their_own_do_not_meet(s: Scenario) -> None:
    scenes = [s.beside() for _ in range(_THREADS)]

    def run(number: int) -> None:
        main = scenes[number].branch().stored().id
        for record in messages(*_texts(number)):
            scenes[number].write(*_appending(main, record))

    _together(run)
    for number, scene in enumerate(scenes):
        same(scene.texts(), _texts(number), f"The branch of thread {number}")


def a_search_runs_beside_writes(s: Scenario) -> None:
    main = s.branch().stored().id

    def run(number: int) -> None:
        for record in messages(*(f"parrot {text}" for text in _texts(number)[:10])):
            s.store.write(OWNER, s.id, _appending(main, record))
            assert record.id in s.found("parrot", here=True), "A search missed a written message."

    _together(run)


def a_closed_store_lets_no_thread_hang(s: Scenario) -> None:
    main = s.branch().stored().id

    def run(number: int) -> list[str]:
        for step in range(_EACH):
            if number == 0 and step == 5:
                s.store.close()
            try:
                s.store.write(OWNER, s.id, _appending(main, *messages("x")))
            except StoreError as error:
                return [str(error)]
        return []

    refusals = _together(run)
    same(len(refusals[0]), 1, "Refusals of the thread that closed the store")
    odd = [text for part in refusals for text in part if "closed" not in text]
    same(odd, [], "Refusals that do not say that the store is closed")
