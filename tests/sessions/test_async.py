"""The async doors: the same results, many writers at once, nothing lost on cancel."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import sennit
from sennit import (
    ExistsError,
    Message,
    NotFoundError,
    Session,
    StoreError,
    TextPart,
    ValidationError,
)
from sennit.api.client_pool import ClientPool
from sennit.sessions.client import begin_session
from sennit.sessions.plan import AppendPlan
from sennit.sessions.repository import repository_of
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.in_memory.store import MemoryStore
from tests.sessions.test_session import said, system, user

pytest_plugins = ("tests.on_loop",)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


@pytest.mark.parametrize("url", [":memory:", "sennit.db"])
def test_many_tasks_on_one_branch_lose_and_reorder_nothing(tmp_path: Path, url: str) -> None:
    address = url if url == ":memory:" else str(tmp_path / url)

    async def work() -> Session:
        client = await asyncio.to_thread(sennit.open, address)
        session = await client.asession("chat")
        main = await session.acreate_branch("main")

        async def writer(number: int) -> None:
            for count in range(20):
                await session.aadd_message(user(f"{number} {count}"), branches=main)

        await asyncio.gather(*(writer(number) for number in range(16)))
        fresh = sennit.Client(client._store).session("chat")
        assert list(fresh.default_branch) == list(main)
        await client.aclose()
        return session

    words = said(run(work()).default_branch)
    assert len(words) == 320
    for number in range(16):
        assert [w for w in words if w.startswith(f"{number} ")] == [
            f"{number} {count}" for count in range(20)
        ]


def test_async_and_sync_writers_mix(tmp_path: Path) -> None:
    async def work() -> None:
        session = sennit.open(tmp_path / "sennit.db").session("chat")
        tasks = [asyncio.create_task(session.aadd_message("user", f"a{n}")) for n in range(20)]
        for number in range(20):
            session.add_message("user", f"s{number}")
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        words = said(session.default_branch)
        assert sorted(words) == sorted([f"a{n}" for n in range(20)] + [f"s{n}" for n in range(20)])
        assert said(sennit.open(tmp_path / "sennit.db").session("chat").default_branch) == words

    run(work())


def test_the_twins_do_what_the_originals_do(tmp_path: Path) -> None:
    async def work() -> None:
        client = sennit.open(tmp_path / "sennit.db")
        session = await client.asession("chat")
        group = await session.aadd_message("user", [TextPart("find the bowline")])
        fork = await session.afork("main", name="fork")
        await session.aset_branch_system(fork, system("S"))
        await session.arefresh()
        assert said(fork) == ["S", "find the bowline"]
        assert len(await client.asearch_messages("bowline")) == 1
        await session.aremove_message(group.messages[0])
        await session.aremove_branch("fork")
        assert [info.key for info in await client.asessions()] == ["chat"]
        assert await client.adelete_session("chat") is True
        await client.aclose()

    run(work())


def test_an_async_write_that_is_refused_raises_and_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        client = sennit.open(tmp_path / "sennit.db")
        session = client.session("chat")
        with pytest.raises(NotFoundError):
            await session.aadd_message(user("x"), branches="unknown")
        main = session.default_branch
        client.delete_session("chat")
        with pytest.raises(NotFoundError, match="deleted"):
            await session.aadd_message(user("x"), branches=main)
        assert len(session.messages) == 0
        client.close()
        with pytest.raises(StoreError, match="closed"):
            await session.aadd_message(user("x"), branches=main)

    run(work())


def test_a_cancelled_caller_does_not_lose_what_was_submitted(tmp_path: Path) -> None:
    async def work() -> None:
        client = sennit.open(tmp_path / "sennit.db")
        session = client.session("chat")
        main = session.default_branch
        task = asyncio.create_task(session.aadd_message(user("kept"), branches=main))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.aadd_message(user("after"), branches=main)
        assert said(main) == ["kept", "after"]
        client.close()

    run(work())
    assert said(sennit.open(tmp_path / "sennit.db").session("chat").default_branch) == [
        "kept",
        "after",
    ]


def test_a_session_without_a_store_has_the_same_doors() -> None:
    async def work() -> None:
        session = Session()
        group = await session.aadd_message("user", "hi")
        main = session.default_branch
        again = await session.aadd_message(group.messages[0], branches=main)
        assert again is group.messages[0]
        assert isinstance(again, Message)
        assert said(main) == ["hi"]

    run(work())


def test_a_loop_that_ends_before_its_write_is_made_takes_no_other_loop_with_it(
    tmp_path: Path,
) -> None:
    session = sennit.open(tmp_path / "sennit.db").session("chat")
    session.add_message("user", "first")
    store: Any = repository_of(session).stored().store

    async def leave() -> None:
        task = asyncio.create_task(session.aadd_message("user", "left behind"))
        await asyncio.sleep(0)
        task.cancel()

    with store._lock:  # the writer cannot go on before the loop has ended
        run(leave())
    run(session.aadd_message("user", "next"))
    assert said(session.default_branch) == ["first", "left behind", "next"]


def test_a_session_begins_in_one_step_with_many_others(tmp_path: Path) -> None:
    async def work() -> None:
        client = sennit.open(tmp_path / "sennit.db")
        begun = await asyncio.gather(
            *(
                begin_session(client, f"chat {number}", system=system("Be kind."))
                for number in range(20)
            )
        )
        assert all(branch is not None and branch.system is not None for branch in begun)
        assert begun[3] is not None
        assert client.session("chat 3") is begun[3].session
        assert await begin_session(client, "chat 3") is None
        other = sennit.Client(client._store)
        assert await begin_session(other, "chat 4") is None  # there, though not open here
        assert len(other.session("chat 4").default_branch) == 1
        await client.aclose()

    run(work())


def test_forks_at_once_share_a_wait_and_have_names_of_their_own(tmp_path: Path) -> None:
    async def work() -> None:
        client = sennit.open(tmp_path / "sennit.db")
        session = client.session("chat")
        main = session.default_branch
        session.add_message(user("one"), branches=main)
        session.add_message(user("two"), branches=main)
        stranger = sennit.Client(client._store).session("chat")
        stranger.fork("main", name="main_fork_1")  # another process was faster
        forks = await asyncio.gather(
            *(session.afork(main, at=0) for _ in range(8)),
            *(session.arefresh() for _ in range(8)),
        )
        made = [one for one in forks if one is not None]
        assert len({one.name for one in made}) == 8
        assert all(session.get_branch(one) is one for one in made)
        assert all(said(one) == ["one"] for one in made)
        assert len(sennit.Client(client._store).session("chat").branches) == 10
        await client.aclose()

    run(work())


def test_a_loop_that_has_ended_is_not_kept(tmp_path: Path) -> None:
    client = sennit.open(tmp_path / "sennit.db")
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await client.session("chat").aadd_message("user", "hello")

    for _ in range(3):
        run(work())
    client.close()
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_a_store_that_fails_in_a_way_of_its_own_leaves_nobody_waiting() -> None:
    class Odd(MemoryStore):
        broken = True

        def write_many(self, writes: Any) -> Any:
            if self.broken:
                raise ArithmeticError("odd")
            return super().write_many(writes)

    async def work() -> None:
        store = Odd()
        session = sennit.Client(store).session("chat")
        await asyncio.to_thread(session.create_branch, "main")
        with pytest.raises(StoreError, match="odd"):
            await session.aadd_message("user", "lost")
        store.broken = False
        await session.aadd_message("user", "kept")
        assert said(session.default_branch) == ["kept"]

    run(asyncio.wait_for(work(), 60))


def test_the_first_words_of_a_session_do_not_keep_the_loop_waiting(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def work() -> None:
        async with sennit.open(tmp_path / "sennit.db") as client:
            session = await client.asession("chat")
            await session.aadd_message("user", "first")
            assert said(session.default_branch) == ["first"]
        async with sennit.open(tmp_path / "sennit.db") as client:
            assert said((await client.asession("chat")).default_branch) == ["first"]

    run(work())
    assert on_loop == []


def test_first_words_said_at_once_are_all_there_in_their_order(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def work() -> None:
        async with sennit.open(tmp_path / "sennit.db") as client:
            session = await client.asession("chat")
            await asyncio.gather(*(session.aadd_message("user", f"{n}") for n in range(9)))
            assert said(session.default_branch) == [f"{n}" for n in range(9)]
            assert [branch.name for branch in session.branches] == ["main"]

    run(work())
    assert on_loop == []


def test_first_words_go_to_the_branch_that_someone_else_began(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def work() -> None:
        async with (
            sennit.open(tmp_path / "sennit.db") as here,
            sennit.open(tmp_path / "sennit.db") as there,
        ):
            session, same = await here.asession("chat"), await there.asession("chat")
            await same.aadd_message("user", "theirs")
            mine = [session.aadd_message("assistant", f"{n}") for n in range(9)]
            await asyncio.gather(*mine)
            assert said(session.default_branch) == ["theirs", *"012345678"]
            await same.arefresh()
            assert list(same.default_branch) == list(session.default_branch)

    run(work())
    assert on_loop == []


@pytest.mark.parametrize("url", [":memory:", "sennit.db"])
def test_a_client_is_closed_when_its_async_block_is_left(tmp_path: Path, url: str) -> None:
    address = url if url == ":memory:" else str(tmp_path / url)

    async def work(*, fail: bool) -> sennit.Client:
        client = sennit.open(address)
        with suppress(ZeroDivisionError):
            async with client:
                await (await client.asession("chat")).aadd_message("user", "hello")
                assert 1 // (not fail)
        return client

    for fail in (False, True):
        client = run(work(fail=fail))
        with pytest.raises(StoreError, match=r"store.* is closed; open"):
            client.session("chat")


def test_a_session_with_a_store_of_its_own_is_closed_when_its_async_block_is_left(
    tmp_path: Path,
) -> None:
    async def work() -> Session:
        async with Session(store=tmp_path / "sennit.db") as session:
            await session.aadd_message("user", "hello")
        return session

    session = run(work())
    with pytest.raises(StoreError, match="is closed; open it again"):
        session.add_message("user", "too late")


def test_whatever_goes_wrong_after_a_write_reaches_who_waits_and_others_write_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with sennit.open(tmp_path / "sennit.db") as client:
            session = await client.asession("chat")
            await session.aadd_message("user", "first")
            monkeypatch.setattr(AppendPlan, "apply", lambda *_: {}.popitem())
            with pytest.raises(KeyError):
                await session.aadd_message("user", "second")
            monkeypatch.undo()
            await session.aadd_message("user", "third")
            assert said(session.default_branch) == ["first", "second", "third"]

    run(work())


def test_a_branch_is_changed_without_keeping_the_loop_waiting(
    tmp_path: Path, on_loop: list[str]
) -> None:
    async def work() -> dict[str, tuple[list[str], set[str]]]:
        async with sennit.open(tmp_path / "sennit.db") as client:
            session = await client.asession("chat")
            await session.aadd_message("user", "ask")
            await session.aadd_message("assistant", "answer")
            main = session.default_branch
            await main.agrant(resources={"sage", "fool"})
            await main.arevoke(resources={"fool"})
            edited = await main.aedit(0, "ask otherwise", name="edited")
            assert edited.forked_from is not None
            await main.aregenerate(1, name="again")
            fork = await main.afork(name="fork")
            await fork.arename("renamed")
            one, two = [await session.aadd_message(user(word)) for word in ("one", "two")]
            await fork.aextend([one, two])
            await fork.aremove(one)
            await fork.aappend(one)
            with pytest.raises(ValidationError, match="use edit"):
                await main.aregenerate(0)
            assert (await client.asession_info("chat")).key == "chat"
            return {one.name: (said(one), set(one.resources)) for one in session.branches}

    found = run(work())
    assert on_loop == []
    assert found == {
        "main": (["ask", "answer"], {"sage"}),
        "edited": (["ask otherwise"], {"sage"}),
        "again": (["ask"], {"sage"}),
        "renamed": (["ask", "answer", "two", "one"], set()),
    }
    with sennit.open(tmp_path / "sennit.db") as client:
        branches = client.session("chat").branches
        assert {one.name: (said(one), set(one.resources)) for one in branches} == found


def test_a_fork_that_says_something_else_is_made_with_it_or_not_at_all(tmp_path: Path) -> None:
    async def work() -> None:
        async with sennit.open(tmp_path / "sennit.db") as client:
            session = await client.asession("chat")
            await session.aadd_message("user", "ask")
            main = session.default_branch
            forks = await asyncio.gather(*(main.aedit(0, f"{n}") for n in range(8)))
            assert [said(fork) for fork in forks] == [[f"{n}"] for n in range(8)]
            count = len(session.messages)
            with pytest.raises(ExistsError):
                await main.aedit(0, "in vain", name=forks[0].name)
            assert len(session.messages) == count == 9
            fresh = sennit.Client(client._store).session("chat")
            assert len(fresh.messages) == count

    run(work())


def test_what_was_thought_is_told_without_keeping_the_loop_waiting(
    tmp_path: Path, on_loop: list[str]
) -> None:
    def length(example: Any) -> float:
        return len(example.answer[0].content.words)

    async def work() -> None:
        async with sennit.open(tmp_path / "sennit.db") as client:
            session = await client.asession("chat")
            await session.aadd_message("user", "ask")
            await session.aadd_message("assistant", "answer")
            other = await session.default_branch.aregenerate(1)
            await session.aadd_message("assistant", "a longer answer", branches=other)
            for branch, score in ((session.default_branch, 0), (other, 1)):
                await session.alabel(branch[-1], score)
            await session.aunlabel(other[-1], by="nobody")
            assert [one.score for one in await session.alabels()] == [0, 1]
            examples = await session.ato_examples(min_score=0.5)
            assert [one.answer[0].content.words for one in examples] == ["a longer answer"]
            assert len(await session.ato_preferences()) == 1
            assert len(await session.ascore(length)) == 2
            assert [one.score for one in await session.alabels(by="length")] == [6, 15]

    run(work())
    assert on_loop == []


def test_a_subclass_has_its_own_method_run_by_the_twin() -> None:
    class Loud(sennit.Client):
        def sessions(self, **asked: Any) -> Any:
            return ["mine"]

    with Loud(MemoryStore()) as client:
        assert run(client.asessions()) == ["mine"]


def test_a_store_is_closed_when_its_block_is_left() -> None:
    with MemoryStore() as store, ClientPool(store) as clients:
        clients.of(user="ann").session("chat")
    with pytest.raises(StoreError, match="closed"):
        sennit.Client(store).session("chat")


def test_a_large_write_lets_those_of_other_owners_go_first_and_keeps_its_owners_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "knot " * 20_000
    waiting = [("ann", long), ("ann", "after it"), ("bob", "short"), ("cleo", "short")]
    has_begun, all_came_in = Event(), Event()
    came_in, groups = list[Any](), list[list[str]]()
    submit = GroupCommitter.submit

    def counting(group: GroupCommitter, *given: Any) -> None:
        submit(group, *given)
        came_in.append(given)
        if len(came_in) == 1 + len(waiting):
            all_came_in.set()

    class Slow(MemoryStore):
        def write_many(self, writes: Any) -> Any:
            groups.append([write.owner.name for write in writes])
            has_begun.set()
            all_came_in.wait(20)
            return super().write_many(writes)

    async def work(clients: ClientPool) -> list[str]:
        sessions = {name: clients.of(user=name).session("chat") for name in ("ann", "bob", "cleo")}
        for session in sessions.values():
            session.create_branch("main")
        first = asyncio.create_task(sessions["bob"].aadd_message("user", "first"))
        await asyncio.to_thread(has_begun.wait, 20)
        await asyncio.gather(*(sessions[name].aadd_message("user", text) for name, text in waiting))
        await first
        return said(sessions["ann"].branches["main"])

    monkeypatch.setattr(GroupCommitter, "submit", counting)
    with Slow() as store, ClientPool(store) as clients:
        assert run(work(clients)) == [long, "after it"]
    assert groups == [["bob"], ["bob", "cleo"], ["ann", "ann"]]


def test_a_write_does_not_wait_for_the_loop_of_another_thread() -> None:
    async def blocking(ann: Session, bob: Session) -> None:
        first = asyncio.ensure_future(ann.aadd_message("user", "first"))
        await asyncio.sleep(0)  # it is submitted, and this loop has yet to wake the writer
        with ThreadPoolExecutor() as pool:
            pool.submit(run, bob.aadd_message("user", "second")).result(20)
        await first

    with MemoryStore() as store, ClientPool(store) as clients:
        sessions = [clients.of(user=name).session("chat") for name in ("ann", "bob")]
        for session in sessions:
            session.create_branch("main")
        run(blocking(*sessions))
        assert [said(one.branches["main"]) for one in sessions] == [["first"], ["second"]]
