"""Approval: a call that needs a person suspends the run, and a decision lets it go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    ConflictError,
    InstructionContent,
    InvalidTypeError,
    Message,
    NotFoundError,
    Return,
    Tool,
    ValidationError,
)
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from sennit.turns.options import SessionOptions
from tests.conversation_fixtures import Talk, add, in_short


def careful(**options: Any) -> tuple[Tool, list[str]]:
    done: list[str] = []

    def delete(name: str) -> str:
        """Delete a file."""
        done.append(name)
        return f"deleted {name}"

    return Tool(delete, needs_approval=True, **options), done


ASK = ToolCall("delete", {"name": "a.txt"}, "c1")


def test_a_call_that_needs_approval_suspends_the_run() -> None:
    tool, done = careful()
    talk = Talk([ASK], "Done.", tools=[tool])
    result = talk.run()
    assert (result.stop_reason, result.success, done) == ("suspended", False, [])
    assert talk.said == ["user Go.", "call delete"]
    result.raise_for_error()  # waiting is no error


def test_a_decision_takes_the_message_of_a_waiting_call() -> None:
    tool, done = careful()
    talk = Talk([ASK, ToolCall("delete", {"name": "b.txt"})], "Done.", tools=[tool])
    talk.run()
    chat = talk.conversation()
    first, second = chat.pending_approvals()
    assert chat.deny(first, "Keep it.") is None
    result = chat.approve(second)
    assert result is not None
    assert (result.stop_reason, done) == ("stable", ["b.txt"])
    for wrong in (Message(InstructionContent("Go.")), 7):
        with pytest.raises(InvalidTypeError, match=r"A tool call is one of pending_approvals\(\)"):
            chat.approve(wrong)  # pyright: ignore[reportArgumentType]


def test_an_approved_call_is_run_and_the_run_goes_on() -> None:
    tool, done = careful()
    talk = Talk([ASK], "Done.", tools=[tool])
    first = talk.run()
    result = asyncio.run(talk.conversation().aapprove("c1"))
    assert result is not None
    assert (result.stop_reason, result.run_id) == ("stable", first.run_id)
    assert done == ["a.txt"]
    said = ["call delete", "result deleted a.txt", "says Done."]
    assert talk.said == ["user Go.", *said]
    assert [in_short(message) for message in result.body.interactions] == said


def test_a_denied_call_is_not_run_and_the_model_is_told_why() -> None:
    tool, done = careful()
    talk = Talk([ASK], "As you wish.", tools=[tool])
    talk.run()
    result = asyncio.run(talk.conversation().adeny("c1", "Not that one."))
    assert result is not None
    assert result.success
    assert done == []
    assert talk.said[2] == "error Not run: denied. Not that one."


def test_calls_beside_one_that_waits_are_run() -> None:
    tool, _ = careful()
    talk = Talk([ToolCall("add", {"a": 1, "b": 2}), ASK], "Done.", tools=[tool, add])
    assert talk.run().stop_reason == "suspended"
    assert talk.said == ["user Go.", "call add", "call delete", "result 3"]


def test_the_run_goes_on_when_nothing_waits_any_more() -> None:
    tool, done = careful()
    other = ToolCall("delete", {"name": "b.txt"}, "c2")
    talk = Talk([ASK, other], "Done.", tools=[tool])
    talk.run()
    conversation = talk.conversation()
    assert asyncio.run(conversation.aapprove("c1")) is None
    result = asyncio.run(conversation.adeny("c2"))
    assert result is not None
    assert result.success
    assert done == ["a.txt"]


def test_a_call_that_nobody_was_asked_about_is_not_waited_for() -> None:
    tool, done = careful()
    running: list[ConversationSession] = []

    async def measure() -> str:
        """Measure the rope."""
        if not done:  # the first time, the program is told to end meanwhile
            running[0].suspend()
            await asyncio.Event().wait()
        return "40 cm"

    tools = [tool, Tool(measure, replay="safe")]
    talk = Talk([ASK, ToolCall("measure", {}, "c2")], "Done.", tools=tools)
    running.append(talk.conversation())

    async def work() -> list[Return | None]:
        return [await running[0].run_to_stable_result(), await running[0].aapprove("c1")]

    first, then = asyncio.run(work())
    assert first is not None
    assert first.stop_reason == "suspended"
    assert then is not None
    assert then.answer == "Done."
    assert talk.said[3:] == ["result deleted a.txt", "result 40 cm", "says Done."]


@pytest.mark.parametrize("wrong", ["c2", ""])
def test_approving_an_unknown_call_changes_nothing(wrong: str) -> None:
    tool, _ = careful()
    talk = Talk([ASK], tools=[tool])
    talk.run()
    before = talk.said
    with pytest.raises(NotFoundError, match="c1"):
        asyncio.run(talk.conversation().aapprove(wrong))
    assert talk.said == before


def test_a_call_is_decided_once() -> None:
    tool, done = careful()
    talk = Talk([ASK], "Done.", tools=[tool])
    talk.run()
    asyncio.run(talk.conversation().aapprove("c1"))
    with pytest.raises(NotFoundError):
        asyncio.run(talk.conversation().adeny("c1"))
    assert done == ["a.txt"]


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", 5, None])
def test_a_reason_that_no_message_can_hold_decides_nothing(reason: Any) -> None:
    tool, done = careful()
    talk = Talk([ASK], "Done.", tools=[tool])
    talk.run()
    with pytest.raises((ValidationError, InvalidTypeError), match="The reason"):
        asyncio.run(talk.conversation().adeny("c1", reason))
    assert asyncio.run(talk.conversation().aapprove("c1")) is not None
    assert done == ["a.txt"]


@pytest.mark.parametrize("durable", [False, True])
def test_decisions_made_at_once_all_count_and_the_run_goes_on(
    tmp_path: Path, durable: bool
) -> None:
    tool, done = careful()
    calls = [ToolCall("delete", {"name": name}, name) for name in "abc"]
    with sennit.open(tmp_path / "s.db" if durable else ":memory:") as client:
        model = ScriptedModel([calls, "Done."])
        conversation = client.session("one").conversation(model=model, tools=[tool])

        async def decide_all() -> list[Any]:
            await conversation.asay("Go.")
            twice = [conversation.aapprove(call_id) for call_id in "abc" * 2]
            return await asyncio.gather(*twice, return_exceptions=True)

        told = asyncio.run(decide_all())
        late = (NotFoundError, ConflictError)  # decided before, or the run goes on already
        assert sum(isinstance(one, late) for one in told) == 3
        assert [one.success for one in told if isinstance(one, Return)] == [True]
        assert sorted(done) == ["a", "b", "c"]


def test_resuming_without_a_decision_waits_on() -> None:
    tool, done = careful()
    talk = Talk([ASK], tools=[tool])
    talk.run()
    assert asyncio.run(talk.conversation().aresume()).stop_reason == "suspended"
    assert done == []


def test_there_may_be_nothing_to_resume() -> None:
    talk = Talk("Hello.")
    assert talk.run().success
    result = asyncio.run(talk.conversation().aresume())
    assert (result.stop_reason, result.notices[0].code) == ("invalid", "nothing_to_resume")
    assert result.text == result.error_text == ""
    assert "".join(map(str, talk.conversation().stream(resume=True))) == ""


def test_a_resumed_run_keeps_the_limits_it_was_started_with() -> None:
    tool, _ = careful()
    talk = Talk([ASK], [ToolCall("delete", {"name": "b"}, "c2")], tools=[tool])
    talk.run(SessionOptions(max_turns=2))
    result = asyncio.run(talk.conversation().aapprove("c1"))
    assert result is not None
    assert result.stop_reason == "max_turns"


def test_what_waits_can_be_looked_at_from_anywhere(tmp_path: Path) -> None:
    tool, _ = careful()
    with sennit.open(tmp_path / "chat.db") as client:
        calls = [ASK, ToolCall("add", {"a": 1, "b": 2})]
        talk = Talk(calls, session=client.session("chat"), tools=[tool, add])
        assert talk.conversation().pending_approvals() == []
        talk.run()
    with sennit.open(tmp_path / "chat.db") as client:
        session = client.session("chat")
        session.services.register(ScriptedModel([]))
        conversation = session.conversation("talk", model="scripted")
        assert [in_short(message) for message in conversation.pending_approvals()] == [
            "call delete"
        ]
        assert asyncio.run(conversation.apending_approvals()) == conversation.pending_approvals()
        asyncio.run(conversation.adeny("c1", resume=False))
        assert conversation.pending_approvals() == []


def test_a_run_that_goes_on_can_be_watched() -> None:
    async def watched() -> tuple[list[str], str]:
        tool, _ = careful()
        talk = Talk([ASK], "Done.", tools=[tool])
        conversation = talk.conversation()
        await conversation.run_to_stable_result()
        await conversation.aapprove("c1", resume=False)
        async with conversation.events(resume=True) as events:
            seen = [event.kind async for event in events]
        async with conversation.stream(resume=True) as pieces:
            [only] = [piece async for piece in pieces]
        return seen, only.notices[0].code

    seen, code = asyncio.run(watched())
    assert seen == [
        "run.started",
        "tool.started",
        "tool.completed",
        "turn.started",
        "text.delta",
        "message.completed",
        "run.ended",
    ]
    assert code == "nothing_to_resume"


def test_what_goes_on_can_be_cancelled_before_it_does(tmp_path: Path) -> None:
    tool, done = careful()
    with sennit.open(tmp_path / "talk.db") as client:
        talk = Talk([ASK], "Done.", tools=[tool], session=client.session("talk"))
        talk.run()
        conversation = talk.conversation()

        async def work() -> Return:
            await conversation.aapprove("c1", resume=False)
            going_on = asyncio.create_task(conversation.aresume())
            await asyncio.sleep(0)  # it looks at the store
            conversation.cancel()
            return await going_on

        assert asyncio.run(work()).stop_reason == "cancelled"
        assert done == []
        assert asyncio.run(conversation.aresume()).answer == "Done."
