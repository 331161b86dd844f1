"""Steering: what people say while a run is under way is answered, or at least kept."""

from __future__ import annotations

import asyncio
from typing import Any

from sennit.testing import ToolCall
from sennit.turns.options import SessionOptions
from sennit.turns.returns import Return
from tests.talking import PLAIN, Talk


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


def test_a_running_loop_takes_it_in_before_it_asks_again() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three feet.", chunk=3)
    assert asyncio.run(steered_at(talk, "run")).success
    assert talk.said == [
        "user Go.", "call add", "result 3", "user In feet, please.", "says Three feet."
    ]  # fmt: skip


def test_what_is_said_while_the_model_answers_is_answered_too() -> None:
    talk = Talk("Ninety centimetres.", "Three feet.", chunk=3)
    assert asyncio.run(steered_at(talk, "text")).success
    assert talk.said[-2:] == ["user In feet, please.", "says Three feet."]


def test_what_comes_too_late_for_the_run_stays_on_the_branch() -> None:
    talk = Talk("Ninety centimetres.", chunk=3)
    asyncio.run(steered_at(talk, "text", SessionOptions(max_turns=1)))
    assert talk.said[-1] == "user In feet, please."
    again = Talk("Ninety centimetres.", chunk=3)
    asyncio.run(steered_at(again, "end"))
    assert again.said == ["user Go.", "says Ninety centimetres.", "user In feet, please."]


def test_without_a_run_it_is_said_at_once() -> None:
    talk = Talk()
    talk.conversation().steer("Hello.")
    assert talk.said == ["user Go.", "user Hello."]


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
