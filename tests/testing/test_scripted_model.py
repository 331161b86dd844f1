"""The scripted model: it says what it was told to, and tells when it was asked otherwise."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import InvalidTypeError, ModelError, ValidationError, clock
from sennit.services.models.protocol import Model, is_model
from sennit.services.models.reply import (
    CallDelta,
    Delta,
    Finished,
    Item,
    Reply,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall, run_instantly
from tests.models import answered, failure, heard, request, streamed

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])


def test_it_is_a_model() -> None:
    assert isinstance(ScriptedModel([]), Model)
    assert is_model(ScriptedModel([]))


@WAYS
def test_replies_come_in_order_and_requests_are_kept(way: str) -> None:
    model = ScriptedModel(["one", "two"])
    asked = [request("first"), request("second")]

    async def work() -> list[str]:
        return [(await answered(model, way, one)).text for one in asked]

    assert asyncio.run(work()) == ["one", "two"]
    assert model.requests == asked
    model.assert_complete()


@WAYS
def test_texts_and_calls_keep_their_order(way: str) -> None:
    call = ToolCall("search", {"q": "rope"}, id="mine")
    model = ScriptedModel([["Let me look.", call, "Meanwhile", ToolCall("raw", "{broken")]])
    reply = asyncio.run(answered(model, way))
    assert reply.items == (
        ReplyText("Let me look."),
        ReplyCall("mine", "search", '{"q":"rope"}'),
        ReplyText("Meanwhile"),
        ReplyCall("call_1_4", "raw", "{broken"),
    )
    assert reply.finish == "tool_calls"
    assert reply.model == "scripted"


def test_ids_differ_between_replies_and_are_the_same_in_every_run() -> None:
    def ids() -> list[str]:
        model = ScriptedModel([[ToolCall("a"), ToolCall("a")], [ToolCall("a")]])
        replies = [asyncio.run(model.aask(request())) for _ in range(2)]
        return [call.id for reply in replies for call in reply.calls]

    assert ids() == ids()
    assert len(set(ids())) == 3


@WAYS
@pytest.mark.parametrize("error", [failure("rate_limit"), RuntimeError("bug"), KeyboardInterrupt()])
def test_an_exception_is_raised_as_it_is(way: str, error: BaseException) -> None:
    model = ScriptedModel([error])
    with pytest.raises(type(error)) as caught:
        asyncio.run(answered(model, way))
    assert caught.value is error


def test_an_exception_inside_a_list_is_raised_after_what_came_before_it() -> None:
    model = ScriptedModel([["Half of", ToolCall("x"), failure("network"), "never"]])
    seen: list[Delta] = []
    with pytest.raises(ModelError, match="network"):
        asyncio.run(heard(model, seen))
    assert seen == [TextDelta("Half of"), CallDelta(0, "call_1_2", "x", "{}")]


@WAYS
def test_a_reply_is_given_with_its_own_finish_and_usage(way: str) -> None:
    reply = Reply((ReplyReasoning("hm"), ReplyText("cut")), "length", Usage(1, 2, cost=0.5), "gpt")
    assert asyncio.run(answered(ScriptedModel([reply]), way)) == reply


@WAYS
def test_a_function_sees_the_request_and_may_be_async(way: str) -> None:
    def said(asked: ModelRequest) -> str:
        return f"You said {asked.messages[-1]['content']}"

    async def later(asked: ModelRequest) -> Any:
        await asyncio.sleep(0)
        return said

    model = ScriptedModel([said, later])
    for _ in range(2):
        assert asyncio.run(answered(model, way, request("hi"))).text == "You said hi"


@WAYS
def test_asking_for_more_than_was_scripted_fails_the_test(way: str) -> None:
    model = ScriptedModel(["only"], name="tiny")
    asyncio.run(answered(model, way))
    with pytest.raises(AssertionError, match="'tiny' has 1 reply, but was asked 2 times"):
        asyncio.run(answered(model, way))
    with pytest.raises(AssertionError, match="asked 2 times"):
        model.assert_complete()


def test_what_nobody_asked_for_is_named() -> None:
    model = ScriptedModel(["one", "two", [ToolCall("three")]])
    asyncio.run(model.aask(request()))
    with pytest.raises(AssertionError) as caught:
        model.assert_complete()
    said = str(caught.value)
    assert "asked 1 of 3 times" in said
    assert "reply 2: 'two'" in said
    assert "reply 3: [ToolCall(name='three'" in said
    assert "'one'" not in said


def test_deltas_have_the_length_that_was_asked_for() -> None:
    seen: list[Delta] = []
    script = ["abcde", ToolCall("f", '{"x":1}', id="i")]
    asyncio.run(heard(ScriptedModel([script], chunk=3), seen))
    assert seen[:-1] == [
        TextDelta("abc"),
        TextDelta("de"),
        CallDelta(0, "i", "f", '{"x'),
        CallDelta(0, arguments='":1'),
        CallDelta(0, arguments="}"),
    ]
    assert isinstance(seen[-1], Finished)


_SAID = st.one_of(
    st.text(),
    st.builds(ReplyReasoning, st.text()),
    st.builds(ToolCall, st.text(min_size=1), st.text() | st.dictionaries(st.text(), st.integers())),
)


@given(st.lists(_SAID, max_size=6), st.integers(1, 7))
def test_chunks_make_the_same_reply(script: list[str | ToolCall | Item], size: int) -> None:
    whole = asyncio.run(ScriptedModel([script]).aask(request()))
    assert asyncio.run(streamed(ScriptedModel([script], chunk=size))) == whole


def test_usage_is_the_same_for_the_same_words() -> None:
    async def usage() -> Usage:
        return (await ScriptedModel(["four letters"]).aask(request("Hello"))).usage

    assert asyncio.run(usage()) == asyncio.run(usage()) == Usage(5, 3)


def test_a_model_that_cannot_stream_says_so_and_keeps_its_reply() -> None:
    model = ScriptedModel(["one"], streams=False)
    with pytest.raises(ModelError, match="does not stream"):
        asyncio.run(streamed(model))
    assert asyncio.run(model.aask(request())).text == "one"


def test_delays_come_before_each_delta() -> None:
    async def work() -> list[float]:
        async with ScriptedModel(["abcd"], chunk=2, delay=5).stream(request()) as deltas:
            return [clock.monotonic() async for _ in deltas]

    assert run_instantly(work()) == [5, 10, 15]


def test_many_threads_and_tasks_get_each_reply_once() -> None:
    model = ScriptedModel([str(number) for number in range(200)])
    got: list[str] = []

    async def one() -> None:
        got.append((await model.aask(request())).text)

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(25)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, got)) == list(range(200))
    model.assert_complete()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="a list"):
        ScriptedModel("text")
    with pytest.raises(ValidationError, match="chunk"):
        ScriptedModel([], chunk=0)
    with pytest.raises(ValidationError, match="delay"):
        ScriptedModel([], delay=-1)
    odd: Any = [5]
    with pytest.raises(InvalidTypeError, match="got 5"):
        asyncio.run(ScriptedModel([odd]).aask(request()))


def test_it_can_be_used_without_optional_packages() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import sennit.testing; "
        "print(sorted(sys.modules.keys() & {'pytest', 'hypothesis', 'pydantic_ai', 'psycopg'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
