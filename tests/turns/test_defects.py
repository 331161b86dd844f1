"""What other turn loops get wrong, each as a test of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sennit import ModelError
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.services.models.reply import CallDelta, Finished, Reply, ReplyCall, ReplyText, TextDelta
from sennit.testing import ToolCall
from sennit.turns.options import SessionOptions
from tests.conversation_fixtures import PLAIN, Talk, ending
from tests.turns.playing import Played, Script, tools

ADD = ToolCall("add", {"a": 1, "b": 2}, "x")


@pytest.mark.parametrize(
    "summary",
    [
        ModelError("the provider is down", kind="overloaded"),
        ModelError("the context is too long", kind="context"),
        Reply((ReplyText(" "),)),
        Reply((ReplyText("Once upon"),), "length"),
        Reply((ReplyText("Once upon"),), "error"),
    ],
)
def test_a_summary_that_fails_never_wipes_the_history(summary: Any) -> None:
    talk = Talk("One.", summary, "Two.", window=100)
    talk.run()
    talk.say("More, please. " * 40)
    before = talk.said
    result = talk.run()
    assert [notice.code for notice in result.notices] == ["summary"]
    assert talk.said == [*before, "says Two."]
    assert len(talk.model.requests) == 3
    assert [branch.name for branch in talk.session.branches] == ["talk"]


def test_a_model_that_fails_never_wipes_the_history() -> None:
    talk = Talk("One.", ModelError("the context is too long", kind="context"))
    talk.run()
    talk.say("More.")
    before = talk.said
    assert talk.run().stop_reason == "error"
    assert talk.said == before


def test_an_answer_cut_off_by_its_length_summarises_nothing() -> None:
    talk = Talk(Reply((ReplyText("Once upon"),), "length"))
    assert talk.run().stop_reason == "length"
    assert talk.said == ["user Go.", "says Once upon"]
    assert len(talk.model.requests) == 1


def test_a_call_with_the_id_of_an_earlier_one_is_run() -> None:
    talk = Talk([ADD], [ToolCall("add", {"a": 3, "b": 4}, "x")], "Done.")
    assert talk.run().metrics.tool_calls == 2
    assert talk.said[2::2] == ["result 3", "result 7"]


def test_two_calls_of_one_reply_with_one_id_are_both_run() -> None:
    talk = Talk([ADD, ToolCall("add", {"a": 3, "b": 4}, "x")], "Done.")
    assert talk.run().metrics.tool_calls == 2
    assert talk.said[3:5] == ["result 3", "result 7"]


def test_every_call_is_stored_with_an_id_of_its_own() -> None:
    blank = ToolCall("add", {"a": 5, "b": 5}, "")
    odd = ToolCall("add", {"a": 6, "b": 6}, "an id with blanks")
    talk = Talk([ADD, ADD, blank, odd], [ADD], "Done.")
    talk.run()
    contents: list[Any] = [message.content for message in talk.branch.messages]
    ids = [one.call_id for one in contents if hasattr(one, "call_id")]
    assert len(set(ids)) == 5
    assert all(id.replace("_", "").isalnum() for id in ids)
    sent = to_model_messages(talk.session.messages, talk.branch)
    assert [one["id"] for message in sent for one in message.get("tool_calls", ())] == ids


@pytest.mark.parametrize("raw", ['{"a": 1,', "[1]", "null", '"a"', "{'a': 1}", '{"a": NaN}'])
def test_arguments_that_cannot_be_read_never_become_no_arguments(raw: str) -> None:
    ran: list[str] = []

    def erase() -> None:
        """Erase everything."""
        ran.append("erased")

    talk = Talk([ToolCall("erase", raw)], "Sorry.", tools=[erase])
    assert talk.run().success
    assert ran == []
    assert talk.said[2].startswith("error Not run: the arguments ")


def test_cancelling_ends_the_run_alone_and_loses_no_text() -> None:
    talk = Talk("A long answer.", "Another.", chunk=3)
    conversation = talk.conversation()

    async def work() -> None:
        async with conversation.stream(None, PLAIN) as pieces:
            async for _ in pieces:
                conversation.cancel()
        talk.say("Again?")
        assert (await conversation.run_to_stable_result()).success

    asyncio.run(work())
    assert talk.said[1].startswith("says A l")
    assert talk.said[-1] == "says Another."


def test_text_is_shown_while_the_model_speaks() -> None:
    talk = Talk("A long answer.", chunk=3)

    async def work() -> list[int]:
        async with talk.conversation().events(None, PLAIN) as events:
            return [
                len(talk.branch.messages) async for event in events if event.kind == "text.delta"
            ]

    assert asyncio.run(work()) == [1] * 5  # the answer is not on the branch before it has ended


def test_text_said_before_a_call_stands_before_it() -> None:
    talk = Talk(["First.", ADD, "Then.", ToolCall("add", {"a": 3, "b": 4})], "Done.", chunk=3)
    talk.events()
    assert talk.said[1:5] == ["says First.", "call add", "says Then.", "call add"]


def test_pieces_that_look_cumulative_are_increments_all_the_same() -> None:
    pieces = ["na", "nana", "nana", "", "nananana", "na"]
    said = [*map(TextDelta, pieces), Finished("stop")]
    talk = Played(Script([said])).talk
    assert talk.said == ["user Go.", f"says {''.join(pieces)}"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ([TextDelta("Hi."), Finished("stop")], "stable"),
        ([TextDelta("Hi.")], "error"),
        ([Finished("stop")], "stable"),
        ([TextDelta("Hi."), Finished("error")], "error"),
        ([TextDelta("Hi."), ModelError("gone", kind="network")], "error"),
        ([TextDelta("Hi."), ValueError("odd")], "error"),
        ([CallDelta(0, "c", "leave", ""), Finished("tool_calls")], "stable"),
        ([CallDelta(0, "c", "hang", ""), Finished("tool_calls")], "stable"),
        ([CallDelta(0, "c", "odd", ""), Finished("stop")], "stable"),
    ],
)
def test_there_is_one_end_never_two_or_none(reply: Any, reason: str) -> None:
    played = Played(Script([reply]))
    assert ending(played.seen).stop_reason == reason
    assert played.watcher.ends.count("final") == 1
    assert played.watcher.ends[-1] == "final"
    if any(getattr(one, "text", "") for one in reply):
        assert "says Hi." in played.talk.said


def test_a_tool_that_was_stopped_half_way_is_not_called_again() -> None:
    ran: list[str] = []

    async def book() -> str:
        """Book a table."""
        ran.append("booked")
        await asyncio.Event().wait()
        return "never"

    talk = Talk([ToolCall("book", {}), ADD], "I see.", tools=[book, *tools()])
    conversation = talk.conversation()

    async def work() -> None:
        async with conversation.events(None, PLAIN) as events:
            async for event in events:
                if event.kind == "tool.started":
                    while not ran:
                        await asyncio.sleep(0)
                    conversation.cancel()

    asyncio.run(work())
    told = "error Cancelled: this was stopped while it ran; whether it took effect is unknown."
    assert talk.said[3:] == [told]
    assert talk.run().success
    assert ran == ["booked"]
    assert talk.said[3:] == [told, "result 3", "says I see."]


def test_of_calls_at_once_those_that_finished_keep_their_results_when_cancelled() -> None:
    ran: list[str] = []

    async def quick() -> str:
        """Is quick."""
        ran.append("quick")
        return "done"

    async def slow() -> None:
        """Never comes back."""
        await asyncio.Event().wait()

    calls = [ToolCall("slow", {}), ToolCall("quick", {})]
    talk = Talk(calls, "I see.", tools=[quick, slow])
    conversation = talk.conversation()

    async def work() -> None:
        running = asyncio.create_task(
            conversation.run_to_stable_result(SessionOptions(allow_parallel_tools=True))
        )
        while not ran:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        conversation.cancel()
        assert (await running).stop_reason == "cancelled"

    asyncio.run(work())
    assert [one.split(":")[0] for one in talk.said[3:]] == ["error Cancelled", "result done"]
    assert talk.run().success
    assert ran == ["quick"]


def test_a_call_that_no_store_could_hold_is_told_to_the_model() -> None:
    call = ReplyCall("c", "add", '{"a": 123456789012345678901234567890}')
    talk = Talk(Reply((call,), "tool_calls"), "Sorry.")
    assert talk.run().success
    assert "beyond 64 bits" in talk.said[2]


def test_half_a_character_does_not_cost_the_answer() -> None:
    talk = Talk("half \ud83d and \0.", chunk=1)
    assert ending(talk.events()).success
    assert talk.said[1] == "says half � and �."
