"""Executing exactly one pending tool call, and saying something as a run begins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import AccessError, NotFoundError, Return, SessionOptions, Tool
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from tests.conversation_fixtures import Talk, add, fail, in_short, kinds

ONE = ToolCall("add", {"a": 1, "b": 2}, "c1")
TWO = ToolCall("add", {"a": 3, "b": 4}, "c2")
BY_HAND = SessionOptions(process_tools=False)


def execute(conversation: ConversationSession, call_id: str) -> Return:
    return asyncio.run(conversation.aexecute_tool_call(call_id))


def waiting(*calls: ToolCall, tools: Any = (add, fail), **more: Any) -> Talk:
    """A talk whose model has asked for calls that nobody has made."""
    talk = Talk([*calls], "Done.", tools=tools, **more)
    talk.run(BY_HAND)
    return talk


def test_exactly_one_call_is_made_and_no_model_is_asked() -> None:
    talk = waiting(ONE, TWO)
    result = execute(talk.conversation(), "c2")
    assert [in_short(message) for message in result.body.interactions] == ["result 7"]
    assert (result.stop_reason, result.notices[0].code) == ("stable", "pending_tools")
    assert talk.said == ["user Go.", "call add", "call add", "result 7"]
    assert len(talk.model.requests) == 1


def test_when_all_calls_are_made_by_hand_a_run_goes_on_with_the_model() -> None:
    talk = waiting(ONE, TWO)
    for call_id in ("c1", "c2"):
        last = execute(talk.conversation(), call_id)
    assert (last.success, last.notices, last.metrics.tool_calls) == (True, (), 1)
    assert talk.run(BY_HAND).answer == "Done."


def test_the_call_is_journalled_as_any_other() -> None:
    talk = waiting(ONE)
    before = len(talk.conversation().history())
    result = execute(talk.conversation(), "c1")
    told = talk.conversation().history(before)
    assert kinds(told) == ["run.started", "tool.started", "tool.completed", "run.ended"]
    assert result.run_id is not None
    assert talk.conversation().replay(result.run_id) == told


def test_a_call_of_a_run_that_has_called_tools_before_is_made() -> None:
    careful = Tool(add, "careful", needs_approval=True)
    talk = Talk([ONE], [ToolCall("careful", {"a": 3, "b": 4}, "c2")], "Done.", tools=[add, careful])
    conversation = talk.conversation()
    assert talk.run().stop_reason == "suspended"
    asyncio.run(conversation.aapprove("c2", resume=False))
    assert execute(conversation, "c2").notices[0].code == "one_call"
    assert talk.said[-2:] == ["call careful", "result 7"]
    assert asyncio.run(conversation.aresume()).answer == "Done."


def test_a_tool_that_fails_has_its_error_stored() -> None:
    talk = waiting(ToolCall("fail", {"reason": "wet"}, "c1"))
    assert execute(talk.conversation(), "c1").success
    assert talk.said[-1] == "error RuntimeError: wet"


@pytest.mark.parametrize("wrong", ["c2", "", "call"])
def test_an_unknown_call_is_refused(wrong: str) -> None:
    talk = waiting(ONE)
    before = talk.conversation().history()
    with pytest.raises(NotFoundError, match=r"pending are: 'c1'"):
        execute(talk.conversation(), wrong)
    assert talk.conversation().history() == before


def test_a_call_is_executed_once() -> None:
    talk = waiting(ONE)
    execute(talk.conversation(), "c1")
    with pytest.raises(NotFoundError, match="already have its result"):
        execute(talk.conversation(), "c1")
    assert talk.said.count("result 3") == 1


def test_a_call_that_something_was_said_after_is_passed_over() -> None:
    talk = waiting(ONE)
    talk.say("Never mind.")
    with pytest.raises(NotFoundError):
        execute(talk.conversation(), "c1")


def test_a_tool_that_is_not_granted_any_more_is_refused() -> None:
    talk = waiting(ONE)
    conversation = talk.conversation()
    talk.branch.revoke(resources="*")
    result = execute(conversation, "c1")
    assert (result.stop_reason, result.notices[0].code) == ("invalid", "access")
    assert talk.said[-1] == "call add"
    with pytest.raises(AccessError):
        talk.conversation()


def test_a_busy_branch_is_refused() -> None:
    async def both() -> Return:
        begun, over = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            """Wait."""
            begun.set()
            await over.wait()
            return "waited"

        talk = Talk([ToolCall("slow", {}, "c1")], "Done.", tools=[slow])
        running = asyncio.create_task(talk.conversation().run_to_stable_result())
        await begun.wait()
        refused = await talk.conversation().aexecute_tool_call("c1")
        over.set()
        assert (await running).success
        assert talk.said.count("result waited") == 1
        return refused

    refused = asyncio.run(both())
    assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "busy")


def test_a_call_that_needs_approval_waits_for_it() -> None:
    tool = Tool(add, needs_approval=True)
    talk = waiting(ONE, tools=[tool])
    conversation = talk.conversation()
    assert execute(conversation, "c1").stop_reason == "suspended"
    assert talk.said[-1] == "call add"
    asyncio.run(conversation.aapprove("c1", resume=False))
    result = execute(conversation, "c1")
    assert (result.stop_reason, talk.said[-1]) == ("suspended", "result 3")
    assert asyncio.run(conversation.aresume()).answer == "Done."


def test_a_suspended_run_is_gone_on_with_after_one_of_its_calls_was_made() -> None:
    tool = Tool(add, needs_approval=True)
    talk = Talk([ONE, TWO], "Done.", tools=[tool])
    first = talk.run()
    conversation = talk.conversation()
    asyncio.run(conversation.aapprove("c2", resume=False))
    one = execute(conversation, "c2")
    assert (one.run_id, one.stop_reason) == (first.run_id, "suspended")
    assert in_short(one.body.interactions[-1]) == "result 7"
    result = asyncio.run(conversation.aapprove("c1"))
    assert result is not None
    assert (result.run_id, result.answer) == (first.run_id, "Done.")
    assert talk.said == ["user Go.", "call add", "call add", "result 7", "result 3", "says Done."]


def test_a_run_keeps_its_limits_when_one_of_its_calls_is_made_by_hand() -> None:
    talk = Talk([ONE], [TWO], "Never said.", tools=[Tool(add, needs_approval=True)])
    talk.run(SessionOptions(max_turns=2))
    conversation = talk.conversation()
    asyncio.run(conversation.aapprove("c1", resume=False))
    execute(conversation, "c1")
    assert asyncio.run(conversation.aresume()).stop_reason == "max_turns"


def test_arguments_that_do_not_fit_are_not_run_with() -> None:
    talk = waiting(ToolCall("add", {"a": "x"}, "c1"))
    execute(talk.conversation(), "c1")
    assert talk.said[-1].startswith("error Tool 'add' was not called.")


def test_with_a_store_another_program_can_make_the_call(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client:
        waiting(ONE, session=client.session("chat"))
    with sennit.open(tmp_path / "chat.db") as client:
        session = client.session("chat")
        session.services.register_all([ScriptedModel(["Later."]), add])
        conversation = session.conversation("talk", model="scripted", tools=["add"])
        assert execute(conversation, "c1").success
        with pytest.raises(NotFoundError):
            execute(conversation, "c1")
        assert conversation.run().answer == "Later."


def test_what_is_said_stands_on_the_branch_when_the_run_begins() -> None:
    talk = Talk("Hello.", say=None)
    result = asyncio.run(talk.conversation().asay("Hi"))
    assert [in_short(message) for message in result.body.interactions] == ["user Hi", "says Hello."]
    assert result.answer == "Hello."
    assert talk.branch.messages[0].sender == "user"


def test_a_run_that_is_refused_leaves_nothing_said() -> None:
    talk = Talk("Hello.", say=None)
    conversation = talk.conversation()
    talk.branch.revoke(resources="*")
    assert asyncio.run(conversation.asay("Hi")).stop_reason == "invalid"
    assert talk.said == []


def test_an_answer_is_looked_at_until_it_may_stand() -> None:
    talk = Talk("one", "two", "three", say=None)
    seen: list[tuple[str, str | None]] = []

    def check(answer: str, finish: str | None) -> str | None:
        seen.append((answer, finish))
        return None if answer == "three" else "Higher."

    result = asyncio.run(talk.conversation().asay("Count", check=check))
    assert (result.answer, result.metrics.turns) == ("three", 3)
    assert seen == [("one", "stop"), ("two", "stop"), ("three", "stop")]
    assert talk.said[2] == "user Higher."


def test_no_answer_is_objected_to_that_cannot_be_mended() -> None:
    talk = Talk("one", say=None)
    options = SessionOptions(max_turns=1)
    result = asyncio.run(talk.conversation().asay("Count", options, check=lambda *_: "No."))
    assert (result.stop_reason, talk.said[-1]) == ("stable", "says one")


def test_a_check_that_raises_ends_the_run_with_its_error() -> None:
    def check(answer: str, finish: str | None) -> str | None:
        raise RuntimeError("confused")

    talk = Talk("one", say=None)
    result = asyncio.run(talk.conversation().asay("Count", check=check))
    assert (result.stop_reason, result.notices[0].text) == ("error", "RuntimeError: confused")


def test_a_greeting_is_no_part_of_the_answer() -> None:
    talk = Talk("Welcome!", "Hi.", say=None)
    result = asyncio.run(talk.conversation(generate_greeting=True).asay("Hello"))
    assert talk.said == ["says Welcome!", "user Hello", "says Hi."]
    assert (result.text, result.answer) == ("Welcome!Hi.", "Hi.")
