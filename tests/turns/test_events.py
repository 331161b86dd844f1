"""Events: numbered, in order, and the same when they are read again."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import ModelError, NotFoundError
from sennit.services.models.reply import Usage
from sennit.testing import ToolCall
from sennit.turns.events import RunEnded, from_record, to_record
from sennit.turns.result import Metrics, Return
from tests.conversation_fixtures import PLAIN, Talk, ending, kinds

RUN = UUID(int=5)
SCRIPT: list[Any] = [["Hm. ", ToolCall("add", {"a": 1, "b": 2})], "Three."]


def test_events_are_numbered_from_one_without_gaps_over_all_runs() -> None:
    talk = Talk(*SCRIPT, "Hello again.", chunk=3)
    first = talk.events()
    talk.say("Again?")
    second = talk.events()
    numbers = [event.seq for event in [*first, *second]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_order_of_events_is_exact() -> None:
    assert kinds(Talk(*SCRIPT).events()) == [
        "run.started",
        "turn.started",
        "message.completed",
        "tool.called",
        "tool.started",
        "tool.completed",
        "turn.started",
        "message.completed",
        "run.ended",
    ]


@pytest.mark.parametrize("script", [SCRIPT, ["Hi."], [ModelError("down", kind="overloaded")]])
def test_a_replayed_run_gives_the_same_events_without_the_model(script: list[Any]) -> None:
    talk = Talk(*script, chunk=3)
    shown = talk.events()
    asked = len(talk.model.requests)
    run_id = ending(shown).run_id
    assert run_id is not None
    again = talk.conversation().replay(run_id)
    assert again == shown
    assert len(talk.model.requests) == asked


def test_only_the_run_that_was_asked_for_is_replayed() -> None:
    talk = Talk("One.", "Two.")
    first = talk.run()
    talk.say("And?")
    talk.run()
    assert first.run_id is not None
    assert {event.run_id for event in talk.conversation().replay(first.run_id)} == {first.run_id}


def test_a_run_that_never_was_cannot_be_replayed() -> None:
    with pytest.raises(NotFoundError, match="no run"):
        Talk("Hello.").conversation().replay(uuid4())


def test_a_stream_can_be_joined_again_after_any_event() -> None:
    talk = Talk(*SCRIPT, chunk=3)
    shown = talk.events()

    async def rest(after: int) -> list[Any]:
        return [event async for event in talk.conversation().events(after=after)]

    for after in range(len(shown) + 1):
        joined = asyncio.run(rest(after))
        assert joined == shown[after:]


def test_a_run_under_way_is_followed_to_its_end() -> None:
    talk = Talk(*SCRIPT, chunk=3, delay=0.001)

    async def work() -> tuple[list[int], list[int]]:
        conversation = talk.conversation()
        async with conversation.events(None, PLAIN) as events:
            first = await anext(events)
            following = asyncio.create_task(collected(talk, first.seq))
            seen = [first.seq, *[event.seq async for event in events]]
        return seen, [first.seq, *await following]

    async def collected(talk: Talk, after: int) -> list[int]:
        return [event.seq async for event in talk.conversation().events(after=after)]

    seen, followed = asyncio.run(work())
    assert followed == seen


def test_erasing_a_message_erases_what_events_say_of_it() -> None:
    talk = Talk("A secret.", chunk=3)
    talk.events()
    talk.session.remove_message(talk.branch.messages[1])
    left = talk.conversation().history()
    assert "secret" not in "".join(getattr(event, "text", "") for event in left)
    assert kinds(left) == ["run.started", "turn.started", "run.ended"]


def test_a_run_that_is_refused_meanwhile_does_not_end_what_was_joined() -> None:
    talk = Talk(*SCRIPT, chunk=3, delay=0.001)

    async def work() -> tuple[list[int], list[int]]:
        conversation = talk.conversation()
        async with (
            conversation.events(None, PLAIN) as events,
            conversation.events(after=0) as again,
        ):
            shown = [(await anext(events)).seq]
            joined = [(await anext(again)).seq]
            assert (await conversation.run_to_stable_result()).stop_reason == "invalid"
            assert (await talk.conversation().run_to_stable_result()).stop_reason == "invalid"
            joined += [event.seq async for event in again]
            shown += [event.seq async for event in events]
        return shown, joined

    shown, joined = asyncio.run(work())
    assert joined == shown


amounts = st.integers(0, 10**9)
texts = st.text(max_size=9)
metrics = st.builds(
    Metrics,
    usage=st.builds(Usage, amounts, amounts, amounts, amounts, st.none() | st.floats(0.001, 9)),
    turns=amounts,
    tool_calls=amounts,
    seconds=st.floats(0, 9),
    finish_reason=st.none() | texts.filter(bool),
    model=texts,
)


@given(metrics)
def test_an_end_is_read_as_it_was_noted(given: Metrics) -> None:
    ended = Return(stop_reason="stable", metrics=given, run_id=RUN, seq=1)
    event = RunEnded(seq=1, run_id=RUN, result=ended)
    assert (
        from_record(to_record(event), lambda uid: pytest.fail(f"it speaks of no message {uid}"))
        == event
    )
