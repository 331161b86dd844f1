"""What makes no sense is refused, by an exception or an invalid return, and nothing is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    AccessError,
    ConversationObserver,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    Session,
    Tool,
    ValidationError,
)
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.options import Budget, SessionOptions, StreamingOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk, add, fail, rest_of
from tests.torture.fork_server import ForkServer

pytest_plugins = ("tests.durable",)


def refused(talk: Talk, result: Return, code: str) -> None:
    """Nothing was run, and nothing is noted."""
    assert (result.stop_reason, [notice.code for notice in result.notices]) == ("invalid", [code])
    assert talk.model.requests == []
    assert talk.conversation().history() == []


def test_an_empty_branch_is_not_run() -> None:
    talk = Talk("Never said.", say=None)
    for result in (talk.run(), talk.stream()[-1], talk.events()[-1].result):  # type: ignore[union-attr]
        refused(talk, result, "empty")
    assert talk.said == []


@pytest.mark.parametrize("model", ["gpt-nowhere", ""])
def test_an_unknown_model_is_not_found(model: str) -> None:
    talk = Talk("Never said.")
    with pytest.raises(NotFoundError, match="scripted"):
        talk.session.conversation(talk.branch, model=model)
    assert talk.said == ["user Go."]


def test_a_model_that_is_none_is_named() -> None:
    talk = Talk("Never said.")
    wrong: Any = 7
    with pytest.raises(InvalidTypeError, match="7"):
        talk.session.conversation(talk.branch, model=wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SessionOptions(max_turns=0),
        lambda: SessionOptions(max_turns=-1),
        lambda: SessionOptions(max_tool_passes=-1),
        lambda: SessionOptions(repeat_limit=0),
        lambda: Budget(tokens=-1),
        lambda: Budget(cost=-0.5),
        lambda: Budget(cost=float("nan")),
        lambda: Budget(seconds=-1),
        lambda: Budget(tool_calls=-1),
        lambda: StreamingOptions(coalesce_delay_ms=-1),
        lambda: StreamingOptions(preferred_chunk_size=0),
    ],
)
def test_a_limit_below_what_makes_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValidationError, match="must be at least"):
        make()


def test_a_tool_that_the_branch_may_not_use_is_refused_before_anything_runs() -> None:
    talk = Talk("Never said.", tools=[add])
    fenced = talk.session.create_branch("fenced", resources={"scripted"})
    with pytest.raises(AccessError, match="add"):
        talk.session.conversation(fenced, model="scripted", tools=["add"])
    with pytest.raises(AccessError, match="scripted"):
        talk.session.conversation(talk.session.create_branch("bare"), model="scripted")


def test_two_tools_of_one_name_are_refused() -> None:
    talk = Talk("Never said.", tools=[add])
    with pytest.raises(ExistsError, match="named 'add'"):
        talk.session.conversation(
            talk.branch, model="scripted", tools=["add", Tool(fail, name="add")]
        )


def test_a_run_cannot_be_cancelled_in_a_way_that_is_none() -> None:
    with pytest.raises(ValidationError, match="'later'"):
        Talk("Hello.").conversation().cancel("later")  # pyright: ignore[reportArgumentType]


def test_a_grant_that_was_taken_back_meanwhile_stops_the_next_run() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], tools=[add])
    branch = talk.session.create_branch("lent", resources={"scripted", "add"})
    talk.session.add_message("user", "Go.", branches=branch)
    conversation = talk.session.conversation(branch, model="scripted", tools=["add"])
    branch.revoke(resources={"add"})
    refused(talk, asyncio.run(conversation.run_to_stable_result()), "access")
    assert len(branch.messages) == 1


def test_a_second_run_on_a_busy_branch_is_refused_in_every_view() -> None:
    answer = "A long answer." * 20  # takes longer than the refused runs
    talk = Talk(answer, chunk=3)
    first, other = talk.conversation(), talk.conversation()

    async def work() -> list[Return]:
        async with first.events(None, PLAIN) as events:
            await anext(events)
            second: list[Return] = [await first.run_to_stable_result()]
            second.append(await other.run_to_stable_result())
            async with other.stream() as pieces:
                second += [piece async for piece in pieces]
            async for _ in events:
                pass
        return second

    results = asyncio.run(work())
    assert [(one.stop_reason, one.notices[0].code) for one in results] == [("invalid", "busy")] * 3
    assert talk.said == ["user Go.", f"says {answer}"]


def test_a_branch_that_another_process_runs_on_is_busy(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    path = tmp_path / "sennit.db"

    async def work(session: Session) -> None:
        asked = asyncio.Event()

        async def wait(_: ModelRequest) -> str:
            await asked.wait()
            return "Hello."

        session.services.register(ScriptedModel([wait]))
        conversation = session.conversation("main", model="scripted")
        async with conversation.events(None, PLAIN) as events:
            await anext(events)
            job = {"do": "torture.turns.try_to_run", "address": str(path), "key": "chat"}
            told = await asyncio.to_thread(fork_server.run, job)
            asked.set()
            assert told == (0, ["invalid busy"])
            assert (await rest_of(events)).success

    with sennit.open(path) as client:
        session = client.session("chat", resources="*")
        session.add_message("user", "Go.")
        asyncio.run(work(session))
        assert len(session.default_branch.messages) == 2


@pytest.mark.parametrize("decide", ["approve", "deny"])
def test_deciding_about_a_call_that_does_not_wait_is_refused(decide: str) -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2}, "c1")], "Three.")
    conversation = talk.conversation()
    for _ in range(2):
        before = talk.said, len(conversation.history())
        for unknown in ("c1", "c2", ""):
            with pytest.raises(NotFoundError, match="waits"):
                getattr(conversation, decide)(unknown)
        assert (talk.said, len(conversation.history())) == before
        talk.run()


@pytest.mark.parametrize("after", [-1, 1.5, "3", True])
def test_a_number_that_no_event_has_is_refused(after: Any) -> None:
    with pytest.raises(ValidationError, match="after must be the number of an event"):
        Talk().conversation().events(after=after)


@pytest.mark.parametrize("said", [5, b"Go.", {"text": "Go."}, [None]])
def test_what_nobody_can_say_is_refused_by_name(said: Any) -> None:
    talk = Talk("Never said.")
    conversation = talk.conversation()
    with pytest.raises(InvalidTypeError, match="is neither a text nor a part"):
        asyncio.run(conversation.asay(said))
    with pytest.raises(InvalidTypeError, match="is neither a text nor a part"):
        conversation.stream(said)
    assert (talk.said, conversation.history()) == (["user Go."], [])


@pytest.mark.parametrize("options", [5, {"max_turns": 3}, StreamingOptions(), Budget(tokens=1)])
def test_options_of_another_kind_are_refused_by_name(options: Any) -> None:
    talk = Talk("Never said.")
    with pytest.raises(InvalidTypeError, match=r"options must be SessionOptions, got"):
        talk.run(options)
    with pytest.raises(InvalidTypeError, match="is neither a text nor a part"):
        talk.stream(options)
    with pytest.raises((InvalidTypeError, ValidationError), match=r"SessionOptions"):
        talk.conversation().stream("Go.", options, StreamingOptions())
    assert talk.conversation().history() == []


def test_joining_takes_no_options() -> None:
    conversation: Any = Talk().conversation()
    with pytest.raises(ValidationError, match="starts no run"):
        conversation.events(SessionOptions(), after=3)


def test_a_model_that_cannot_stream_is_not_streamed() -> None:
    talk = Talk("Hello.", streams=False)
    refused(talk, talk.stream()[-1], "no_streaming")
    assert talk.run().success


def test_a_closed_store_is_an_error_with_one_end(tmp_path: Path) -> None:
    ends: list[Return] = []

    class Watcher(ConversationObserver):
        def on_final(self, result: Return) -> None:
            ends.append(result)

    with sennit.open(tmp_path / "sennit.db") as client:
        session = client.session("chat", resources="*")
        session.add_message("user", "Go.")
        session.services.register(ScriptedModel(["Never said."]))
        conversation = session.conversation("main", model="scripted", observers=[Watcher()])
    result = asyncio.run(conversation.run_to_stable_result())
    assert (result.stop_reason, result.notices[0].code) == ("error", "StoreError")
    assert ends == [result]
