"""Repair: every call gets an id of its own and one result; repairing twice changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    Message,
    MessageContent,
    SystemContent,
)
from sennit.messages.prompt.repair import INTERRUPTED, repair
from tests.strategies import histories, sound_histories


def ask(said: str = "ask") -> InstructionContent:
    return InstructionContent(said)


def say(said: str = "say") -> AssistantResponseContent:
    return AssistantResponseContent(said)


def call(call_id: str | None = "a", n: int = 1) -> ActionRequestContent:
    return ActionRequestContent.create("f", {"n": n}, call_id)


def result(request_id: str | None = "a", n: Any = 1) -> ActionResponseContent:
    return ActionResponseContent.create(request_id, n)


def interrupted(request_id: str) -> ActionResponseContent:
    return ActionResponseContent(request_id=request_id, error=INTERRUPTED)


def assert_sound(history: list[MessageContent]) -> None:
    """Every turn's calls have ids of their own, and their results follow it in their order."""
    used: list[Any] = []
    asked: list[Any] = []
    for content in [*history, InstructionContent()]:
        if isinstance(content, ActionResponseContent):
            assert asked, "a result without a call"
            assert content.request_id == asked.pop(0)
            continue
        if isinstance(content, ActionRequestContent):
            asked.append(content.call_id)
            used.append(content.call_id)
        elif not isinstance(content, AssistantResponseContent):
            assert not asked, "a call without a result"
    assert all(used)
    assert len(set(used)) == len(used)


@given(histories())
def test_any_history_becomes_sound(history: list[Message]) -> None:
    assert_sound(repair(history))


@given(histories())
def test_repairing_twice_changes_nothing(history: list[Message]) -> None:
    once = repair(history)
    assert repair(once) == once
    assert repair([Message(content) for content in once]) == once


@given(sound_histories())
def test_a_sound_history_stays_as_it_is(history: list[MessageContent]) -> None:
    assert repair(history) == history
    kept = repair([Message(content) for content in history])
    assert all(new is old for new, old in zip(kept, history, strict=True))


@given(histories())
def test_only_results_move_and_only_ids_change(history: list[Message]) -> None:
    def spoken(contents: list[MessageContent]) -> list[Any]:
        return [
            (content.function, content.arguments)
            if isinstance(content, ActionRequestContent)
            else content
            for content in contents
            if not isinstance(content, ActionResponseContent) and not content.empty
        ]

    assert spoken(repair(history)) == spoken([message.content for message in history])


@given(histories())
def test_no_result_is_made_up_or_given_to_two_calls(history: list[Message]) -> None:
    def given_results(contents: list[MessageContent]) -> Counter[str]:
        return Counter(
            repr((content.result, content.error))
            for content in contents
            if isinstance(content, ActionResponseContent) and content.error != INTERRUPTED
        )

    assert given_results(repair(history)) <= given_results([m.content for m in history])


@given(histories())
def test_a_result_and_a_call_that_name_only_each_other_come_together(
    history: list[Message],
) -> None:
    calls = [m for m in history if isinstance(m.content, ActionRequestContent)]
    results = [m.content for m in history if isinstance(m.content, ActionResponseContent)]
    repaired = repair(history)
    answers = {c.request_id: c for c in repaired if isinstance(c, ActionResponseContent)}
    asked = [c.call_id for c in repaired if isinstance(c, ActionRequestContent)]
    names = [{str(m.id), getattr(m.content, "call_id", None) or str(m.id)} for m in calls]
    for number, own in enumerate(names):
        rivals = [other for other in names if other & own]
        named = [result for result in results if result.request_id in own]
        if len(rivals) == len(named) == 1:
            answer = answers[asked[number]]
            assert (answer.result, answer.error) == (named[0].result, named[0].error)


@given(histories())
def test_no_input_is_changed(history: list[Message]) -> None:
    before = [message.to_json() for message in history]
    repair(history)
    assert [message.to_json() for message in history] == before


def test_nothing_repairs_to_nothing() -> None:
    assert repair([]) == []


def test_a_call_without_a_result_was_interrupted() -> None:
    assert repair([ask(), call("a"), ask("go on")]) == [
        ask(),
        call("a"),
        interrupted("a"),
        ask("go on"),
    ]
    assert "interrupted" in INTERRUPTED
    assert not interrupted("a").success


def test_an_orphan_result_is_dropped() -> None:
    assert repair([result("a"), ask(), result(None), say(), result("b")]) == [ask(), say()]


def test_a_second_result_for_the_same_call_is_dropped() -> None:
    assert repair([call("a"), result("a", 1), result("a", 2)]) == [call("a"), result("a", 1)]


def test_results_are_put_into_the_order_of_the_calls() -> None:
    history = [call("a"), call("b"), result("b"), result("a")]
    assert repair(history) == [call("a"), call("b"), result("a"), result("b")]


def test_a_late_result_moves_to_its_call() -> None:
    history = [call("a"), ask("still there?"), say("yes"), result("a")]
    assert repair(history) == [call("a"), result("a"), ask("still there?"), say("yes")]


def test_a_result_that_came_before_its_call_moves_behind_it() -> None:
    assert repair([result("a"), ask(), call("a")]) == [ask(), call("a"), result("a")]


def test_a_failed_result_stays_failed() -> None:
    failed = ActionResponseContent("a", error="boom")
    assert repair([call("a"), ask(), failed]) == [call("a"), failed, ask()]


def test_a_result_of_none_is_kept() -> None:
    history = [call("a"), ActionResponseContent("a", None)]
    assert repair(history) == history
    moved = repair([call("a"), ask(), ActionResponseContent("a", None)])[1]
    assert isinstance(moved, ActionResponseContent)
    assert moved.result is None
    assert moved.success


def test_reused_ids_in_later_turns_keep_their_own_results() -> None:
    history = [call("a", 1), result("a", 1), ask(), call("a", 2), result("a", 2)]
    first, one, _, second, two = repair(history)
    assert (first, one) == (call("a", 1), result("a", 1))
    assert isinstance(second, ActionRequestContent)
    assert second.call_id not in ("a", "")
    assert two == result(second.call_id or "", 2)


def test_the_same_id_twice_in_one_turn_is_answered_in_order() -> None:
    one, other, first, second = repair([call("a", 1), call("a", 2), result("a", 1), result("a", 2)])
    assert isinstance(one, ActionRequestContent)
    assert isinstance(other, ActionRequestContent)
    assert one.call_id != other.call_id
    assert [first, second] == [result(one.call_id or "", 1), result(other.call_id or "", 2)]


@pytest.mark.parametrize("blank", [None, ""])
def test_blank_ids_are_made_and_answered_in_order(blank: str | None) -> None:
    one, other, first, second = repair(
        [call(blank, 1), call(blank, 2), result(blank, 1), result(blank, 2)]
    )
    assert isinstance(one, ActionRequestContent)
    assert isinstance(other, ActionRequestContent)
    assert one.call_id
    assert other.call_id
    assert one.call_id != other.call_id
    assert [first, second] == [result(one.call_id, 1), result(other.call_id, 2)]


def test_an_unnamed_result_belongs_to_the_latest_turn_that_waits() -> None:
    history = [call("a", 1), ask(), call("b", 2), result(None, 2), result(None, 1)]
    assert repair(history) == [call("a", 1), result("a", 1), ask(), call("b", 2), result("b", 2)]


def test_a_result_may_name_the_message_that_asked() -> None:
    asked = [Message(call(None, 1)), Message(call("b", 2))]
    answers = [Message(result(str(message.id), n)) for n, message in enumerate(asked, 1)]
    one, other, first, second = repair([*asked, *reversed(answers)])
    assert isinstance(one, ActionRequestContent)
    assert one.call_id
    assert other == call("b", 2)
    assert [first, second] == [result(one.call_id, 1), result("b", 2)]


def test_a_made_up_id_never_takes_the_id_of_another_call() -> None:
    calls = [call("a"), call("a"), call("call_a"), call(""), call("call_0"), call("call_3")]
    assert_sound(repair([content for each in calls for content in (each, ask())]))


def test_a_system_message_or_instruction_ends_a_turn() -> None:
    system = SystemContent("later")
    assert repair([call("a"), system, call("b"), result("b"), result("a")]) == [
        call("a"),
        result("a"),
        system,
        call("b"),
        result("b"),
    ]


@pytest.mark.parametrize("silent", [InstructionContent(), SystemContent(), say("")])
def test_what_says_nothing_does_not_end_a_turn(silent: MessageContent) -> None:
    repaired = repair([call("a"), silent, call("b"), result(None)])
    heard = [content for content in repaired if not content.empty]
    assert heard == [call("a"), call("b"), result("a"), interrupted("b")]


def test_texts_before_between_and_after_calls_stay_where_they_are() -> None:
    history = [
        say("1"),
        call("a"),
        say("2"),
        call("b"),
        say("3"),
        result("a"),
        result("b"),
        say("4"),
    ]
    assert repair(history) == history
