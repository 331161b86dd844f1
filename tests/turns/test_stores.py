"""Turns on every store: the same ends, decisions and streams, also from another client or program.

The flow is a table of its own (`test_loop`); here some of it is run on a SQLite file and on
PostgreSQL, where events are durable before anybody sees them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import sennit
from sennit import Client, MessageRole, Session, Tool
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.services.models.request import ModelRequest
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import Lease
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns import branch_lease
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent
from sennit.turns.options import SessionOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk, ending, in_short, kinds, rest_of
from tests.torture.fork_server import ForkServer
from tests.torture.ground import opened
from tests.torture.turns import SCENARIOS, World
from tests.turns.test_loop import CASES, Case
from tests.turns.test_observers import Recorder

pytest_plugins = ("tests.durable",)
SCRIPT: list[Any] = [["Hm. ", ToolCall("add", {"a": 1, "b": 2})], "Three."]


@pytest.fixture
def client(address: str) -> Generator[Client]:
    with opened(address) as client:
        yield client


def talk(client: Client, *replies: Any, **more: Any) -> Talk:
    return Talk(*replies, session=client.session(str(uuid4())), **more)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_run_comes_to_the_same_on_every_store(client: Client, case: Case) -> None:
    views: list[tuple[Talk, Return]] = []
    for view in ("run", "stream", "events"):
        one = talk(client, *case.replies, say=case.say, chunk=3)
        if view == "run":
            views.append((one, one.run(case.options, generate_greeting=case.greets)))
        elif view == "stream":
            views.append((one, one.stream(case.options, generate_greeting=case.greets)[-1]))
        else:
            shown = one.events(case.options, generate_greeting=case.greets)
            views.append((one, ending(shown)))
            if case.reason != "invalid":
                assert one.conversation().history() == shown
    for one, result in views:
        assert one.said == case.said
        assert result.stop_reason == case.reason
        assert [notice.code for notice in result.notices] == case.codes
        said = [message for message in one.branch.messages if message.role is not MessageRole.USER]
        assert list(result.body.interactions) == said


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 11])
def test_a_run_cancelled_at_any_event_can_go_on(client: Client, number: int) -> None:
    one = talk(client, *SCRIPT, "Going on.", "More.", chunk=4)
    conversation = one.conversation()

    async def work() -> Return:
        seen: list[AnyEvent] = []
        async with conversation.events(None, PLAIN) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == number:
                    conversation.cancel()
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
        return ending(seen)

    assert asyncio.run(work()).stop_reason in ("cancelled", "stable")
    assert to_model_messages(one.session.messages, one.branch)
    one.say("And now?")
    assert one.run().stop_reason == "stable"


def test_a_run_cancelled_before_it_began_leaves_the_branch_free(client: Client) -> None:
    one = talk(client, "Hello.")
    watcher = Recorder()
    conversation = one.conversation(observers=[watcher])

    async def work() -> None:
        for _ in range(3):
            running = asyncio.create_task(conversation.run_to_stable_result())
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        async with conversation.stream() as pieces:
            conversation.cancel()
            assert [piece async for piece in pieces][-1].stop_reason == "cancelled"

    asyncio.run(work())
    assert watcher.calls.count("final") == 4
    assert one.run().success
    assert one.said == ["user Go.", "says Hello."]


def test_a_run_cancelled_twice_from_outside_is_safe_all_the_same(client: Client) -> None:
    one = talk(client, "A long answer.", "On.", chunk=3)

    async def watch() -> None:
        async with one.conversation().events(None, PLAIN) as events:
            async for event in events:
                if event.kind == "text.delta":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    asyncio.get_running_loop().call_soon(task.cancel)

    async def work() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(watch())

    asyncio.run(work())
    assert one.said[1].startswith("says A l")
    assert kinds(one.conversation().history())[-1] == "run.ended"
    assert one.run().success


def asking(client: Client, key: str, done: list[str]) -> tuple[Session, ConversationSession]:
    def delete(name: str) -> str:
        """Delete a file."""
        done.append(name)
        return "deleted"

    def reply(request: ModelRequest) -> Any:
        answered = any(one["role"] == "tool" for one in request.messages)
        return "Done." if answered else [ToolCall("delete", {"name": "a"}, "c1")]

    session = client.session(key, resources="*")
    model, tool = ScriptedModel([reply] * 3), Tool(delete, needs_approval=True)
    return session, session.conversation(session.default_branch, model=model, tools=[tool])


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_what_waits_is_decided_by_another_client(address: str, decision: str) -> None:
    done: list[str] = []
    key = str(uuid4())
    with opened(address) as first, opened(address) as second:
        session, conversation = asking(first, key, [])
        session.add_message("user", "Go.")
        waiting = asyncio.run(conversation.run_to_stable_result())
        assert waiting.stop_reason == "suspended"
        there, deciding = asking(second, key, done)
        result = getattr(deciding, decision)("c1")
        assert (result.stop_reason, result.run_id) == ("stable", waiting.run_id)
        assert done == (["a"] if decision == "approve" else [])
        session.refresh()
        said = [in_short(one) for one in session.default_branch.messages]
        assert said == [in_short(one) for one in there.default_branch.messages]
        assert said[-1] == "says Done."
        assert len(said) == 4


def test_a_stream_is_joined_from_another_client_while_it_runs(address: str) -> None:
    key = str(uuid4())
    with opened(address) as first, opened(address) as second:
        one = Talk(*SCRIPT, session=first.session(key), chunk=3, delay=0.01)
        there = second.session(key)
        there.services.register(ScriptedModel([]))
        other = there.conversation("talk", model="scripted")

        async def work() -> tuple[list[AnyEvent], list[AnyEvent]]:
            async with one.conversation().events(None, PLAIN) as events:
                shown = [await anext(events)]
                joining = asyncio.create_task(joined(other, 1))
                shown += [event async for event in events]
            return shown, [shown[0], *await joining]

        shown, followed = asyncio.run(work())
        assert followed == shown
        assert asyncio.run(joined(other, 5)) == shown[5:]
        assert asyncio.run(joined(other, len(shown))) == []


async def joined(conversation: ConversationSession, after: int) -> list[AnyEvent]:
    async with conversation.events(after=after) as events:
        return [event async for event in events]


def test_what_waits_is_allowed_by_another_process(
    address: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    key, scenario, effects = str(uuid4()), "a call that waits for a person", tmp_path / "did.txt"
    with opened(address) as client:
        world = World(client, key, SCENARIOS[scenario], effects)
        world.session.add_message("user", "Go.")
        assert asyncio.run(world.conversation.run_to_stable_result()).stop_reason == "suspended"
        job = {"do": "torture.turns.allow", "address": address, "key": key, "scenario": scenario}
        assert fork_server.run({**job, "effects": str(effects)}) == (0, ["stable"])
        world.session.refresh()
        said = [in_short(message) for message in world.branch.messages]
        assert said == ["user Go.", "says May I?", "call erase", "result paid", "says Erased."]
        assert len(world.done) == 1
        left = asyncio.run(world.conversation.aresume())
        assert left.notices[0].code == "nothing_to_resume"


def test_a_run_of_another_process_is_joined_while_it_streams(
    address: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    key, scenario = str(uuid4()), "a tool that must run once"
    job = {"do": "torture.turns.stream", "address": address, "key": key, "scenario": scenario}
    with opened(address) as client:
        world = World(client, key, SCENARIOS[scenario], tmp_path / "did.txt")
        world.session.add_message("user", "Go.")

        async def work() -> list[AnyEvent]:
            effects = {"effects": str(world.effects)}
            running = asyncio.create_task(asyncio.to_thread(fork_server.run, {**job, **effects}))
            seen: list[AnyEvent] = []
            while not seen:  # until the run is there, there is nothing to join
                seen = await joined(world.conversation, 0)
            assert await running == (0, ["stable"])
            return seen

        seen = asyncio.run(work())
        assert seen == world.conversation.history()
        assert ending(seen).text == "I look.I book.Booked."


def test_a_stream_is_joined_in_the_same_program_without_looking_at_the_store(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sennit.turns import subscription as joining

    one = talk(client, *SCRIPT, chunk=3, delay=0.01)
    conversation = one.conversation()
    looks = 0
    shown_after = joining.shown_after

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return shown_after(*given)

    monkeypatch.setattr(joining, "shown_after", counted)

    async def work() -> tuple[list[AnyEvent], list[AnyEvent]]:
        async with conversation.events(None, PLAIN) as events:
            shown = [await anext(events)]
            joining = asyncio.create_task(joined(conversation, 1))
            shown += [event async for event in events]
        return shown, [shown[0], *await joining]

    shown, followed = asyncio.run(work())
    assert followed == shown
    assert looks <= 3  # to begin with, and if something came between


def test_a_stream_is_joined_through_another_store_on_the_same_file_without_looking_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sennit.turns import subscription as joining

    looks = 0
    shown_after = joining.shown_after

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return shown_after(*given)

    monkeypatch.setattr(joining, "shown_after", counted)
    monkeypatch.setattr(joining, "_POLL_SECONDS", 0.001)
    path = tmp_path / "sennit.db"
    with sennit.open(path) as first, sennit.open(path) as second:
        one = Talk(*SCRIPT, session=first.session("talk"), chunk=3, delay=0.01)
        there = second.session("talk")
        there.services.register(ScriptedModel([]))
        other = there.conversation("talk", model="scripted")

        async def work() -> tuple[list[AnyEvent], list[AnyEvent]]:
            async with one.conversation().events(None, PLAIN) as events:
                shown = [await anext(events)]
                joining = asyncio.create_task(joined(other, 1))
                shown += [event async for event in events]
            return shown, [shown[0], *await joining]

        shown, followed = asyncio.run(work())
    assert followed == shown
    assert looks <= 3  # to begin with, and if something came between


def test_leaving_a_joined_stream_early_stops_nothing(client: Client) -> None:
    one = talk(client, *SCRIPT, chunk=3, delay=0.005)
    conversation = one.conversation()

    async def work() -> Return:
        async with conversation.events(None, PLAIN) as events:
            await anext(events)
            async with conversation.events(after=0) as again:
                assert (await anext(again)).kind == "run.started"
            async for _ in conversation.events(after=0):
                break
            return await rest_of(events)

    assert asyncio.run(work()).success
    assert one.said[-1] == "says Three."


def test_a_long_run_gives_signs_of_life(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_lease, "_HEARTBEAT_SECONDS", 0.001)
    signs: list[Lease] = []
    renew = RunRepository.renew

    def noted(runs: RunRepository, lease: Lease, ttl: int) -> Lease:
        signs.append(renew(runs, lease, ttl))
        return signs[-1]

    async def after_two(_: ModelRequest) -> str:
        while len(signs) < 2:
            await asyncio.sleep(0)
        return "Hello."

    monkeypatch.setattr(RunRepository, "renew", noted)
    assert talk(client, after_two).run().success
    assert signs[0].token == signs[1].token
    assert signs[0].expires < signs[1].expires


def test_many_turns_stream_at_once(client: Client) -> None:
    def reply(request: ModelRequest) -> Any:
        return SCRIPT[request.messages[-1]["role"] == "tool"]

    talks = [talk(client, *[reply] * 60, chunk=3) for _ in range(20)]  # they share their services

    async def watch(one: Talk) -> Return:
        async with one.conversation().stream(SessionOptions(), PLAIN) as pieces:
            return [piece async for piece in pieces][-1]

    async def work() -> list[Return]:
        return await asyncio.gather(*map(watch, talks))

    assert all(result.success for result in asyncio.run(work()))
    whole = ["user Go.", "says Hm.", "call add", "result 3", "says Three."]
    assert all(one.said == whole for one in talks)
