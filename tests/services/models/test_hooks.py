"""Hooks: they see every call once, may change the request, and their errors are their own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sennit import InvalidTypeError, ModelError, iModel
from sennit.services.models.reply import Delta, Finished, Reply, TextDelta
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, run_instantly
from tests.models import Patient, answered, failure, heard, only, request

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])


@WAYS
def test_before_may_give_another_request_or_leave_it(way: str) -> None:
    def louder(asked: ModelRequest) -> ModelRequest:
        said = [{**message, "content": message["content"] + "!"} for message in asked.messages]
        return replace(asked, messages=said)

    async def look(asked: ModelRequest) -> None:
        await asyncio.sleep(0)
        seen.append(asked.messages[0]["content"])

    seen: list[str] = []
    inside = ScriptedModel(["yes"])
    model = only(inside, before=[look, louder, look])
    asyncio.run(answered(model, way, request("Hey")))
    assert seen == ["Hey", "Hey!"]
    assert inside.requests[0].messages[0]["content"] == "Hey!"


@WAYS
def test_after_sees_the_request_that_was_sent_and_the_whole_reply(way: str) -> None:
    seen: list[tuple[ModelRequest, Reply]] = []
    changed = request("changed")
    model = only(
        ScriptedModel(["all of it"], chunk=2),
        before=lambda _: changed,
        after=lambda asked, reply: seen.append((asked, reply)),
    )
    reply = asyncio.run(answered(model, way))
    assert seen == [(changed, reply)]


def test_after_has_run_when_the_end_of_a_stream_is_handed_on() -> None:
    order: list[Any] = []
    seen: list[Delta] = []

    async def after(_: ModelRequest, reply: Reply) -> None:
        await asyncio.sleep(1)
        order.append([*seen])

    run_instantly(heard(only(ScriptedModel(["a"]), after=after), seen))
    assert order == [[TextDelta("a")]]
    assert isinstance(seen[-1], Finished)


@WAYS
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_hook_raises_goes_to_the_caller_as_it_is(way: str, when: str) -> None:
    wrong = KeyError("mine")

    def guard(*_: object) -> None:
        raise wrong

    hooks: dict[str, Any] = {when: guard}
    model = iModel(ScriptedModel(["said", "not said"]), name="gpt", **hooks)
    with pytest.raises(KeyError) as caught:
        run_instantly(answered(model, way))
    assert caught.value is wrong
    assert "guard" in caught.value.__notes__[0]
    assert f"{when} hook" in caught.value.__notes__[0]
    assert "'gpt'" in caught.value.__notes__[0]


@WAYS
def test_a_model_error_of_a_hook_is_not_tried_again(way: str) -> None:
    def over_budget(_: ModelRequest) -> None:
        calls.append(1)
        raise failure("rate_limit")

    calls: list[int] = []
    with pytest.raises(ModelError):
        run_instantly(answered(iModel(ScriptedModel([]), before=over_budget), way))
    assert len(calls) == 1


@WAYS
def test_hooks_run_once_however_often_a_call_is_tried(way: str) -> None:
    calls: list[str] = []
    model = iModel(
        ScriptedModel([failure(), failure(), "there"]),
        before=lambda _: calls.append("before"),
        after=lambda *_: calls.append("after"),
    )
    run_instantly(answered(model, way))
    assert calls == ["before", "after"]


def test_after_is_not_called_for_a_stream_that_failed_or_was_left() -> None:
    calls: list[Reply] = []
    after = lambda _, reply: calls.append(reply)  # noqa: E731

    async def left() -> None:
        inside = Patient()
        async with only(inside, after=after).stream(request()) as deltas:
            await anext(deltas)
        assert inside.open == 0

    run_instantly(left())
    with pytest.raises(ModelError):
        run_instantly(heard(only(ScriptedModel([["x", failure()]]), after=after), []))
    assert calls == []


def test_what_is_no_hook_is_refused() -> None:
    odd: Any = [None]
    with pytest.raises(InvalidTypeError, match="after= was given None"):
        only(ScriptedModel([]), after=odd)
    wrong: Any = lambda _: "text"  # noqa: E731
    with pytest.raises(InvalidTypeError, match="returned 'text'"):
        asyncio.run(only(ScriptedModel(["x"]), before=wrong).aask(request()))
