"""Steering: what people say while a run is under way is answered, or at least kept."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import InstructionContent, Message, Tool
from sennit.events import MessageQueued
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.options import SessionOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk, in_short


def ask_first() -> str:
    """Do it."""
    return "done"


async def steered_at(talk: Talk, kind: str, options: SessionOptions | None = None) -> Return:
    """A run that somebody speaks to when the first event of a kind is seen."""
    conversation = talk.conversation()
    said = False
    result: Any = None
    async with conversation.events(options, PLAIN) as events:
        async for event in events:
            result = getattr(event, "result", result)
            if event.kind == kind and not said:
                said = True
                conversation.steer("In feet, please.")
    return result


def test_who_awaits_it_on_the_loop_of_the_run_goes_on_when_it_is_kept() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three feet.", chunk=3)

    async def work() -> None:
        conversation = talk.conversation()
        async with conversation.events(None, PLAIN) as events:
            async for event in events:
                if event.kind == "tool.started":
                    await conversation.asteer("In feet, please.")
                    noted = await conversation.ahistory()
                    assert any(isinstance(one, MessageQueued) for one in noted)

    asyncio.run(work())
    assert talk.said[-2:] == ["user In feet, please.", "says Three feet."]


def test_a_running_loop_takes_it_in_before_it_asks_again() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three feet.", chunk=3)
    assert asyncio.run(steered_at(talk, "tool.started")).success
    assert talk.said == [
        "user Go.", "call add", "result 3", "user In feet, please.", "says Three feet."
    ]  # fmt: skip


def test_what_is_said_while_the_model_answers_is_answered_too() -> None:
    talk = Talk("Ninety centimetres.", "Three feet.", chunk=3)
    assert asyncio.run(steered_at(talk, "text.delta")).success
    assert talk.said[-2:] == ["user In feet, please.", "says Three feet."]


def test_what_comes_too_late_for_the_run_stays_on_the_branch() -> None:
    talk = Talk("Ninety centimetres.", chunk=3)
    asyncio.run(steered_at(talk, "text.delta", SessionOptions(max_turns=1)))
    assert talk.said[-1] == "user In feet, please."
    again = Talk("Ninety centimetres.", chunk=3)
    asyncio.run(steered_at(again, "run.ended"))
    assert again.said == ["user Go.", "says Ninety centimetres.", "user In feet, please."]


def test_who_speaks_to_the_run_alone_is_told_that_it_is_over() -> None:
    talk = Talk("Ninety centimetres.", chunk=3)
    conversation = talk.conversation()

    async def work() -> list[object]:
        async with conversation.events(streaming_options=PLAIN) as events:
            return [
                conversation.steer_run("So?") async for one in events if one.kind == "run.ended"
            ]

    assert asyncio.run(work()) == [None]
    assert talk.said == ["user Go.", "says Ninety centimetres."]


def test_without_a_run_it_is_said_at_once() -> None:
    talk = Talk()
    talk.conversation().steer("Hello.")
    assert talk.said == ["user Go.", "user Hello."]


def test_another_thread_waits_until_it_is_kept(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client, sennit.open(tmp_path / "a.db") as other:
        said: list[str] = []

        def look() -> str:
            conversation.steer("In feet, please.")
            theirs = other.session("a").conversation("main", model=ScriptedModel([]))
            said.extend(one.text for one in theirs.history() if isinstance(one, MessageQueued))
            return "seen"

        session = client.session("a", resources="*")
        other.session("a", resources="*")
        session.add_message("user", "Go.")
        model = ScriptedModel([[ToolCall("look", {})], "Three feet."])
        conversation = session.conversation("main", model=model, tools=[look])
        conversation.run().raise_for_error()
        assert said == ["In feet, please."]
        assert [one.content.words for one in session.default_branch.messages][-2:] == [
            "In feet, please.", "Three feet."
        ]  # fmt: skip


def test_what_is_said_to_a_run_that_waits_for_its_branch_is_kept_at_once(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client, sennit.open(tmp_path / "a.db") as other:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def reply(_: ModelRequest) -> str:
            asked.set()
            await answered.wait()
            return "First."

        session = client.session("a")
        first = session.conversation("main", model=ScriptedModel([reply]))
        second = session.conversation("main", model=ScriptedModel(["Second."]))

        async def work() -> list[str]:
            running = asyncio.create_task(first.asay("One?"))
            await asked.wait()
            waiting = asyncio.create_task(second.asay("Two?", SessionOptions(when_busy="wait")))
            await asyncio.sleep(0)
            await second.asteer("In feet, please.")
            kept = [in_short(one) for one in other.session("a").default_branch.messages]
            answered.set()
            await asyncio.gather(running, waiting)
            return kept

        assert asyncio.run(work()) == ["user One?", "user In feet, please."]
        said = [in_short(one) for one in session.default_branch.messages]
        assert said[2:] == ["says First.", "user Two?", "says Second."]


def test_what_is_said_to_a_run_that_waits_is_taken_in_when_it_goes_on() -> None:
    async def look() -> str:
        """Look around, while somebody speaks."""
        conversation.steer("In feet, please.")
        return "seen"

    asked = [ToolCall("look", {}), ToolCall("ask_first", {}, "c2")]
    talk = Talk(asked, "Done.", tools=[look, Tool(ask_first, needs_approval=True)])
    conversation = talk.conversation()

    async def work() -> Return | None:
        result = await conversation.run_to_stable_result()
        assert result.stop_reason == "suspended"
        assert talk.said[-1] == "result seen"
        return await conversation.aapprove("c2")

    result = asyncio.run(work())
    assert result is not None
    assert result.success
    assert talk.said[-3:] == ["result done", "user In feet, please.", "says Done."]


def test_a_cancel_that_came_to_nothing_does_not_reach_the_next_run() -> None:
    talk = Talk("Hello.", say=None)
    conversation = talk.conversation()

    async def work() -> Return:
        async with conversation.events(None, PLAIN) as events:
            conversation.cancel()
            async for _ in events:
                pass
        talk.say("Go.")
        return await conversation.run_to_stable_result()

    assert asyncio.run(work()).success


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "stored"])
def test_a_run_that_goes_on_takes_in_all_of_a_message_that_was_said_to_it(
    tmp_path: Path, stored: bool
) -> None:
    picture = "https://example.com/knot.png"
    content = InstructionContent(instruction="See.", context=["A bowline."], images=[picture])
    said = Message(content, sender="ben", metadata={"from": "a phone"})

    async def look() -> str:
        """Look around, while somebody speaks and the program ends."""
        conversation.steer_run(said)
        conversation.suspend()
        await asyncio.sleep(10)
        return "seen"

    with sennit.open(tmp_path / "a.db" if stored else ":memory:") as client:
        session = client.session("a") if stored else None
        talk = Talk([ToolCall("look", {})], "A fine knot.", tools=[look], session=session)
        conversation = talk.conversation()
        assert conversation.run().stop_reason == "suspended"
        assert asyncio.run(conversation.aresume()).success
        taken = talk.branch.messages[-2]
        assert (taken.id, taken.content, taken.sender) == (said.id, said.content, said.sender)
        assert taken.metadata == {"from": "a phone"}
        assert picture in str(talk.model.requests[-1].messages[-1])
