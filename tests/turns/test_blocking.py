"""The doors for programs without an event loop."""

from __future__ import annotations

import asyncio

import pytest

from sennit import UsageError
from sennit.testing import ToolCall
from sennit.turns.options import StreamingOptions
from tests.conversation_fixtures import PLAIN, Talk


def test_a_conversation_runs_without_a_loop() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three.")
    assert talk.conversation().run().text == "Three."


def test_a_stream_is_read_without_a_loop() -> None:
    talk = Talk("A long answer.", chunk=3)
    with talk.conversation().stream(None, PLAIN) as pieces:
        seen = list(pieces)
    deltas = [piece.text for piece in seen[:-2]]
    assert "".join(deltas) == "A long answer."
    assert seen[-1].success


def test_leaving_early_cancels_the_run_and_keeps_what_was_said() -> None:
    talk = Talk("A long answer.", chunk=3, delay=0.001)
    with talk.conversation().stream(None, PLAIN) as pieces:
        next(iter(pieces))
    assert talk.said[0] == "user Go."
    assert "A long answer.".startswith(talk.said[1].removeprefix("says "))


def test_leaving_at_once_does_not_wait_for_the_answer() -> None:
    async def never(_: object) -> str:
        return await asyncio.get_running_loop().create_future()

    for _ in range(5):  # whichever comes first, the run or the end of the block
        talk = Talk(never)
        with talk.conversation().stream():
            pass
        assert talk.said == ["user Go."]


def test_the_last_piece_says_how_the_run_ended() -> None:
    talk = Talk("Hello.")
    with talk.conversation().stream(None, StreamingOptions()) as pieces:
        assert [piece.stop_reason for piece in pieces][-1] == "stable"


def test_inside_a_loop_the_async_door_is_named() -> None:
    talk = Talk("Hello.")

    async def work() -> None:
        conversation = talk.conversation()
        with pytest.raises(UsageError, match=r"await arun\(\)"):
            conversation.run()
        with pytest.raises(UsageError, match="async with"), conversation.stream():
            pass

    asyncio.run(work())
