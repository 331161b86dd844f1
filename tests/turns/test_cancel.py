"""Cancelling: this run only, from any thread, and the history can go on afterwards."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.testing import ToolCall
from sennit.turns.options import SessionOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk, ending


async def cancelled_at(talk: Talk, number: int, **options: Any) -> list[Any]:
    """The events of a run that is cancelled when its n-th event is seen."""
    conversation = talk.conversation()
    seen: list[Any] = []
    async with conversation.events(SessionOptions(**options), PLAIN) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == number:
                conversation.cancel()
    return seen


@pytest.mark.parametrize("number", range(1, 14))
def test_a_run_cancelled_at_any_event_ends_once_and_can_go_on(number: int) -> None:
    script = [["Let me see.", ToolCall("add", {"a": 1, "b": 2})], "Three.", "Going on."]
    talk = Talk(*script, "More.", chunk=4)
    seen = asyncio.run(cancelled_at(talk, number))
    result = ending(seen)
    assert result.stop_reason in ("cancelled", "stable")
    shown = "".join(event.text for event in seen if event.kind == "text.delta")
    kept = "".join(message.text for message in [result])
    assert kept == shown
    chat = to_model_messages(talk.session.messages, talk.branch)
    assert chat[0]["role"] == "user"
    talk.say("And now?")
    assert talk.run().stop_reason == "stable"


def test_what_was_said_may_be_dropped_instead() -> None:
    talk = Talk("A long answer.", chunk=3)
    seen = asyncio.run(cancelled_at(talk, 4, on_cancel="discard_partial"))
    assert ending(seen).stop_reason == "cancelled"
    assert talk.said == ["user Go."]
    assert "draft.dropped" in [event.kind for event in seen]


def test_cancel_after_the_turn_lets_the_model_finish() -> None:
    talk = Talk([ToolCall("add", {"a": 1, "b": 2}), "Hm."], "Never said.", chunk=3)

    async def work() -> Return:
        conversation = talk.conversation()
        async with conversation.stream(None, PLAIN) as pieces:
            seen: list[Return] = []
            async for piece in pieces:
                seen.append(piece)
                conversation.cancel("after_turn")
            return seen[-1]

    assert asyncio.run(work()).stop_reason == "cancelled"
    assert talk.said == ["user Go.", "call add", "says Hm."]


def test_a_run_can_be_cancelled_from_another_thread() -> None:
    held = threading.Event()
    release = threading.Event()

    def wait() -> str:
        """Wait."""
        held.set()
        release.wait(30)
        return "done"

    talk = Talk([ToolCall("wait", {})], tools=[wait])
    conversation = talk.conversation()

    def cancel() -> None:
        held.wait(30)
        conversation.cancel()

    other = threading.Thread(target=cancel)
    other.start()
    result = asyncio.run(conversation.run_to_stable_result())
    release.set()
    other.join()
    assert result.stop_reason == "cancelled"
    assert talk.said[:2] == ["user Go.", "call wait"]


def test_being_cancelled_from_outside_is_passed_on_once_all_is_safe() -> None:
    talk = Talk("A long answer.", chunk=3)

    async def work() -> None:
        conversation = talk.conversation()
        pieces = 0

        async def watch() -> None:
            nonlocal pieces
            async with conversation.stream(None, PLAIN) as stream:
                async for _ in stream:
                    pieces += 1
                    if pieces == 2:
                        asyncio.current_task().cancel()  # type: ignore[union-attr]

        task = asyncio.create_task(watch())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert talk.said[0] == "user Go."
    assert talk.said[1].startswith("says A l")
    ends = [event for event in talk.conversation().history() if event.kind == "run.ended"]
    assert len(ends) == 1


def test_leaving_a_stream_early_cancels_the_run() -> None:
    talk = Talk("A long answer.", chunk=3)

    async def work() -> None:
        async with talk.conversation().stream(None, PLAIN) as pieces:
            async for _ in pieces:
                break

    asyncio.run(work())
    assert talk.said[0] == "user Go."
    assert "A long answer.".startswith(talk.said[1].removeprefix("says "))
    assert talk.said[1] != "says A long answer."


def test_cancelling_when_nothing_runs_does_nothing() -> None:
    talk = Talk("Hello.")
    talk.conversation().cancel()
    assert talk.run().success


def test_a_run_can_be_cancelled_before_it_has_begun() -> None:
    talk = Talk("Never said.")

    async def work() -> Return:
        conversation = talk.conversation()
        async with conversation.stream(None, PLAIN) as pieces:
            conversation.cancel()
            return [piece async for piece in pieces][-1]

    assert asyncio.run(work()).stop_reason == "cancelled"
    assert talk.said == ["user Go."]


def test_leaving_at_once_does_not_wait_for_the_run() -> None:
    talk = Talk("Never said.")

    async def work() -> None:
        async with talk.conversation().stream():
            pass

    asyncio.run(work())
    assert talk.said == ["user Go."]


def test_whoever_was_refused_does_not_end_what_was_in_the_way() -> None:
    talk = Talk("A long answer.", chunk=3)

    async def work() -> Return:
        conversation = talk.conversation()
        async with conversation.stream(None, PLAIN) as pieces:
            await anext(pieces)
            async with conversation.stream():  # busy, and left before it is told so
                pass
            return [piece async for piece in pieces][-1]

    assert asyncio.run(work()).success
    assert talk.said == ["user Go.", "says A long answer."]


def test_cancelling_twice_is_cancelling_once() -> None:
    talk = Talk("A long answer.", chunk=3)

    async def work() -> Return:
        conversation = talk.conversation()
        async with conversation.stream(None, PLAIN) as pieces:
            seen: list[Return] = []
            async for piece in pieces:
                seen.append(piece)
                conversation.cancel()
                conversation.cancel()
            return seen[-1]

    assert asyncio.run(work()).stop_reason == "cancelled"


@pytest.mark.parametrize("streaming", [True, False])
def test_a_model_that_is_cancelled_by_its_own_code_has_failed(streaming: bool) -> None:
    talk = Talk(["Well, ", asyncio.CancelledError()], "Better.")
    result = talk.stream()[-1] if streaming else talk.run()
    assert (result.stop_reason, result.notices[0].code) == ("error", "failed")
    assert "nobody has cancelled the run" in result.notices[0].text
    assert talk.run().answer == "Better."
