"""Joining a run: late, slowly, or for longer than one run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import sennit
from sennit import Tool
from sennit.ids import new_id
from sennit.messages.codec import dumps, loads
from sennit.services.models.request import ModelRequest
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import EventRecord, PutRun, RunRecord
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.branch_lease import revoke_lease
from sennit.turns.events import AnyEvent, MessageCompleted, RunEnded
from sennit.turns.subscription import Subscription, has_active_run
from tests.conversation_fixtures import PLAIN, Talk, add, in_short, rest_of

pytest_plugins = ("tests.durable",)


def test_whoever_reads_too_slowly_is_not_waited_for_and_misses_nothing() -> None:
    talk = Talk("x" * 2000, chunk=1)

    async def watch() -> list[int]:
        async with Subscription(RunRepository(talk.branch), 0) as joined:
            async with talk.conversation().events(None, PLAIN) as events:
                await anext(events)
                first = [await anext(joined)]
                async for _ in events:
                    pass
            return [one.seq for one in [*first, *[one async for one in joined]]]

    heard = asyncio.run(watch())
    assert len(heard) > 2000
    assert heard == list(range(1, len(heard) + 1))


def test_events_come_in_batches_that_hold_all_of_them() -> None:
    talk = Talk("one two three", chunk=3)
    talk.run()

    async def watch() -> list[int]:
        heard: list[int] = []
        async with Subscription(RunRepository(talk.branch), 0) as joined:
            while batch := await joined.batch():
                heard += [one.seq for one in batch]
        return heard

    heard = asyncio.run(watch())
    assert heard == list(range(1, len(heard) + 1))


def test_every_end_carries_what_its_run_has_said_wherever_one_joins() -> None:
    ask = ToolCall("add", {"a": 1, "b": 2}, "c1")
    talk = Talk("First.", [ask], "Three.", "Last.", tools=[Tool(add, needs_approval=True)])
    shown = [*talk.events(), *_said(talk, "And?")]
    asyncio.run(talk.conversation().aapprove("c1", resume=False))
    shown += talk.conversation().history(after=len(shown))
    shown += [*_gone_on_with(talk), *_said(talk, "Bye.")]
    assert [one.result.text for one in shown if isinstance(one, RunEnded)] == [
        "First.",
        "",
        "Three.",
        "Last.",
    ]
    for after in range(len(shown) + 1):
        assert talk.conversation().history(after=after) == shown[after:]


def _said(talk: Talk, text: str) -> list[AnyEvent]:
    talk.say(text)
    return talk.events()


def _gone_on_with(talk: Talk) -> list[AnyEvent]:
    async def watch() -> list[AnyEvent]:
        async with talk.conversation().events(resume=True) as events:
            return [event async for event in events]

    return asyncio.run(watch())


def test_reading_many_runs_reads_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk(*["Hello."] * 20)
    for _ in range(20):
        _said(talk, "Again.")
    events, seen = RunRepository.events, list[int]()

    def counted(runs: RunRepository, after: int = 0, limit: int = 7) -> list[EventRecord]:
        found = events(runs, after, limit)
        seen.extend(one.seq for one in found)
        return found

    monkeypatch.setattr(RunRepository, "events", counted)
    whole = talk.conversation().history()
    assert seen == [one.seq for one in whole]
    seen.clear()
    run_id = whole[0].run_id
    assert talk.conversation().replay(run_id) == [one for one in whole if one.run_id == run_id]
    assert len(seen) <= 14


def test_a_run_on_the_same_branch_in_another_store_is_not_heard(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as one, sennit.open(tmp_path / "b.db") as other:
        one.session("chat").add_message("user", "Begin.")
        one.export(tmp_path / "chat.jsonl")
        other.import_sessions(tmp_path / "chat.jsonl")

        async def watch() -> list[str]:
            asked, answered = asyncio.Event(), asyncio.Event()

            async def reply(_: ModelRequest) -> str:
                asked.set()
                await answered.wait()
                return "Here."

            here = other.session("chat").conversation("main", model=ScriptedModel([reply]))
            there = one.session("chat").conversation("main", model=ScriptedModel(["There."]))
            running = asyncio.create_task(here.run_to_stable_result())
            await asked.wait()
            async with here.events(after=0) as joined:
                heard = [await anext(joined), await anext(joined)]
                await there.run_to_stable_result()
                answered.set()
                heard += [one async for one in joined]
            await running
            return [in_short(one.message) for one in heard if isinstance(one, MessageCompleted)]

        assert asyncio.run(watch()) == ["says Here."]


def test_following_goes_on_with_the_next_run() -> None:
    talk = Talk("first", "second")

    async def watch() -> list[str]:
        async with Subscription(RunRepository(talk.branch), 0, follow=True) as joined:
            heard: list[str] = []
            for _ in range(2):
                task = asyncio.create_task(talk.conversation().asay("Go on."))
                while (event := await anext(joined)).kind != "run.ended":
                    heard += [event.kind]
                await task
            return heard

    assert asyncio.run(watch()).count("run.started") == 2


def test_following_misses_nothing_after_a_run_that_lost_its_branch(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db") as client:
        lost = asyncio.Event()

        async def reply(_: ModelRequest) -> str:
            await lost.wait()
            return "one two three"

        talk = Talk(reply, "Here.", "There.", session=client.session("chat"), chunk=1)
        runs = RunRepository(talk.branch)

        async def watch() -> list[int]:
            async with Subscription(runs, 0, follow=True) as joined:
                async with talk.conversation().events(None, PLAIN) as events:
                    await anext(events)
                    heard = [(await anext(joined)).seq]
                    await revoke_lease(runs, str(loads(runs.runs()[0].body)["holder"]))
                    lost.set()
                    assert (await rest_of(events)).stop_reason == "error"
                for _ in range(2):
                    await talk.conversation().asay("Go on.")
                    while heard[-1] < runs.last_seq():
                        heard.append((await anext(joined)).seq)
                return heard

        heard = asyncio.run(watch())
        assert heard == list(range(1, len(heard) + 1))


def test_a_run_of_another_machine_is_over_when_its_lease_has_expired(address: str) -> None:
    with sennit.open(address) as client:
        branch = client.session("chat").default_branch
        runs = RunRepository(branch)
        lease = runs.acquire("elsewhere.1.7.7/run", 60_000_000)
        run = RunRecord(new_id(), branch.id, "running", 1, 1, dumps({"holder": lease.holder}))

        async def watch() -> list[AnyEvent]:
            await runs.write((), [PutRun(run, lease.token)])
            assert has_active_run(runs)
            runs.renew(lease, 0)
            assert not has_active_run(runs)
            async with Subscription(runs, 0) as joined:
                return [one async for one in joined]

        assert asyncio.run(watch()) == []


def test_a_suspended_run_is_gone_on_with() -> None:
    gate = asyncio.Event()

    async def wait(_: object) -> str:
        await gate.wait()
        return "never"

    talk = Talk(wait, "Here I am.")

    async def suspend() -> str | None:
        conversation = talk.conversation()
        async with conversation.events(None, PLAIN) as events:
            async for event in events:
                if event.kind == "turn.started":
                    conversation.suspend()
            return (await rest_of(events)).stop_reason

    assert asyncio.run(suspend()) == "suspended"
    result = asyncio.run(talk.conversation().aresume())
    assert (result.stop_reason, result.answer) == ("stable", "Here I am.")
    assert talk.said == ["user Go.", "says Here I am."]


def test_events_are_joined_without_a_loop() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three.")
    talk.run()
    conversation = talk.conversation()
    whole = conversation.history()
    assert list(conversation.events(after=0)) == whole
    with conversation.events(after=2) as events:
        assert [event.seq for event in events] == [event.seq for event in whole[2:]]


def test_a_blocking_reader_that_stops_and_goes_on_misses_nothing() -> None:
    talk = Talk("one two three", chunk=3)
    talk.run()
    joined = talk.conversation().events(after=0)
    heard = [next(iter(joined)).seq]
    heard += [event.seq for event in joined]
    assert len(heard) > 2
    assert heard == list(range(1, len(heard) + 1))
