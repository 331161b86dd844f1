"""Saying several things as a run begins, and only where one thinks the branch stands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Message, ModelError, SessionOptions
from sennit.errors import InvalidTypeError, RunError
from sennit.events import ToolCompleted
from sennit.messages.content import ActionResponseContent, InstructionContent
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.result import Return
from sennit.turns.stream import RunStream

ONE_TURN = SessionOptions(process_tools=False)


def length(knot: str) -> int:
    """How much rope a knot takes."""
    raise AssertionError("whoever asked calls it")


def talk(tmp_path: Path, *replies: Any) -> Any:
    client = sennit.open(tmp_path / "s.db")
    client.services.register(ScriptedModel(list(replies), name="sage"))
    client.services.register(length)
    session = client.session("chat", resources="*")
    return session.conversation("main", model="sage", tools=["length"])


def result(call: str, value: Any) -> Message:
    return Message(ActionResponseContent(request_id=call, result=value))


def asked(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def test_the_results_of_calls_that_others_made_are_said_in_one_step(tmp_path: Path) -> None:
    calls = [ToolCall("length", {"knot": knot}, knot) for knot in ("bowline", "hitch")]
    conversation = talk(tmp_path, calls, "40 and 50.")

    async def work() -> list[Any]:
        await conversation.asay("How long?", ONE_TURN)
        results = [result("bowline", 40), result("hitch", 50)]
        async with conversation.events(results, ONE_TURN) as events:
            return [event async for event in events]

    events = asyncio.run(work())
    assert events[-1].result.answer == "40 and 50."
    assert sum(isinstance(event, ToolCompleted) for event in events) == 2
    told = conversation.request.model.requests[1].messages
    assert [one["role"] for one in told] == ["user", "assistant", "tool", "tool"]


def test_a_call_that_got_no_result_is_still_worked_off(tmp_path: Path) -> None:
    calls = [ToolCall("length", {"knot": knot}, knot) for knot in ("bowline", "hitch")]
    conversation = talk(tmp_path, calls, "Only one.")

    async def work() -> Any:
        await conversation.asay("How long?", ONE_TURN)
        return await conversation.asay([result("bowline", 40)])

    ended = asyncio.run(work())
    assert ended.metrics.tool_calls == 1  # the other one, which fails
    assert ended.answer == "Only one."


def test_nothing_is_said_where_somebody_else_was_faster(tmp_path: Path) -> None:
    conversation = talk(tmp_path, "One.", "Two.")
    branch = conversation.request.branch

    async def work() -> Any:
        first = await conversation.asay("1?", at=0)
        other = sennit.open(tmp_path / "s.db").session("chat")
        other.add_message("user", "I was faster.")
        return first, await conversation.asay("2?", at=2), await conversation.asay("3?", at=3)

    first, refused, ended = asyncio.run(work())
    assert (first.stop_reason, ended.stop_reason) == ("stable", "stable")
    assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "moved")
    assert [one.content.words for one in branch.messages] == [
        "1?",
        "One.",
        "I was faster.",
        "3?",
        "Two.",
    ]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"at": "x"}, "at is the number of messages expected, got 'x'"),
        ({"at": True}, "at is the number of messages expected, got True"),
        ({"last": "x"}, "last is the id of the last message expected, a UUID, got 'x'"),
    ],
)
def test_what_a_branch_is_expected_to_have_is_a_number_and_an_id(
    expected: Any, message: str
) -> None:
    conversation = sennit.conversation(model=ScriptedModel([]))
    with pytest.raises(InvalidTypeError, match=message):
        conversation.say("Hi", **expected)


def test_what_is_gone_on_with_says_nothing_new(tmp_path: Path) -> None:
    conversation = talk(tmp_path, "One.")
    with pytest.raises(sennit.ValidationError, match="steer"):
        conversation.events([asked("1?")], resume=True)


def test_the_text_of_a_request_that_failed_raises_and_the_question_can_be_asked_again() -> None:
    model = ScriptedModel([ModelError("the provider is down", kind="network"), "A bowline."])
    chat = sennit.conversation(model=model)
    failed = chat.say("Which knot?")
    assert (failed.answer, str(failed)) == ("", "the provider is down")
    with pytest.raises(
        RunError, match=r"the provider is down; the message is kept, run\(\) asks again"
    ):
        _ = failed.text
    assert chat.run().text == "A bowline."
    assert [message.role.value for message in chat.request.branch.messages] == ["user", "assistant"]


def test_the_text_of_a_request_that_failed_after_some_words_is_these() -> None:
    model = ScriptedModel([["A bow", ModelError("gone", kind="network")]])
    stream = sennit.conversation(model=model).stream("Which knot?")
    assert "".join(str(piece) for piece in stream) == "A bow" == stream.result.text
    with pytest.raises(RunError, match="gone"):
        stream.result.raise_for_error()


def show(stream: RunStream[Return[Any], Any]) -> None:
    for piece in stream:
        print(piece, end="")


async def show_async(stream: RunStream[Return[Any], Any]) -> None:
    async for piece in stream:
        print(piece, end="")


def test_a_loop_that_prints_a_stream_raises_the_error_of_a_failed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = ModelError("The provider is down.", kind="overloaded")
    conversation = talk(tmp_path, "Fine.", failure, failure, failure)
    show(conversation.stream("How long?"))
    assert capsys.readouterr().out == "Fine."
    with pytest.raises(RunError, match="is down; the message is kept"):
        show(conversation.stream("And now?"))
    with pytest.raises(RunError, match="is down"):
        asyncio.run(show_async(conversation.stream()))
    stream = conversation.stream()
    final = list(stream)[-1]  # a program that looks at the result decides itself
    assert (final.is_final, final.stop_reason) == (True, "error")
    assert stream.result.error_text == final.error_text


def test_a_loop_that_prints_a_stream_raises_on_a_busy_branch_and_a_closed_client() -> None:
    client = sennit.open(":memory:")

    async def answer(request: ModelRequest) -> str:
        second = client.session("chat").conversation(model=model)
        with pytest.raises(RunError, match="is busy"):
            await show_async(second.stream("Me too."))
        return "Fine."

    model = ScriptedModel([answer])
    conversation = client.session("chat").conversation(model=model)
    assert conversation.say("Hi.").text == "Fine."
    client.close()
    with pytest.raises(RunError, match="closed"):
        show(conversation.stream("Hi."))
