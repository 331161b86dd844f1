"""The native form: what every provider with tool calling accepts, with nothing said lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    ContextPart,
    InstructionContent,
    InvalidTypeError,
    Message,
    NotFoundError,
    SennitError,
    Session,
    SystemContent,
    TextPart,
    to_model_messages,
)
from sennit.containers import Pile, Progression
from sennit.messages.prompt import tool_chat
from sennit.messages.prompt.repair import INTERRUPTED, repair
from sennit.messages.prompt.tool_chat import tool_text
from tests.strategies import Analysis, Search, histories, lines_in, messages, strings_in


def made(*contents: Any) -> list[Message]:
    return [Message(content) for content in contents]


def assert_acceptable(chat: list[dict[str, Any]]) -> None:
    """What OpenAI's form demands of a conversation."""
    used: list[str] = []
    waiting: list[str] = []
    for message in chat:
        role = message["role"]
        if role == "tool":
            assert message.keys() == {"role", "tool_call_id", "content"}
            assert waiting, "a tool message without a call"
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert not waiting, "a call without its tool message"
        if role == "assistant":
            assert message.keys() <= {"role", "content", "tool_calls"}
            calls = message.get("tool_calls", [])
            assert message["content"] or (message["content"] is None and calls)
            for call in calls:
                assert call["type"] == "function"
                assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
            waiting = [call["id"] for call in calls]
            used += waiting
        else:
            assert role in ("system", "user")
            assert message.keys() == {"role", "content"}
            assert message["content"]
    assert not waiting
    assert all(used)
    assert len(set(used)) == len(used)


def all_text(chat: list[dict[str, Any]]) -> str:
    return "\0".join(strings_in(chat))


@given(histories(), st.randoms(use_true_random=False))
def test_a_growing_branch_reads_at_any_time_as_if_for_the_first(
    history: list[Message], random: Any
) -> None:
    pile: Pile[Message] = Pile()
    order = Progression()
    for message in history:
        if message in pile:
            continue
        pile.include(message)
        order.append(message)
        if random.random() < 0.6:
            assert to_model_messages(pile, order) == to_model_messages(order.items_of(pile))
    if len(order) > 2:
        order.pop(random.randrange(len(order)))
    assert to_model_messages(pile, order) == to_model_messages(order.items_of(pile))


def test_reading_a_long_branch_again_looks_only_at_what_was_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session()
    main = session.create_branch("main")
    for number in range(100):
        for content in (
            InstructionContent(instruction=f"question {number}"),
            ActionRequestContent(function="search", arguments={}, call_id=f"c{number}"),
            ActionResponseContent(request_id=f"c{number}", result="found"),
            AssistantResponseContent(assistant_response="answer"),
        ):
            session.add_message(Message(content), branches=main)
    assert len(to_model_messages(session.messages, main)) == 400
    looked: list[int] = []
    whole = tool_chat.repaired_turns

    def counting(messages: Any, used: Any) -> Any:
        looked.append(len(messages))
        return whole(messages, used)

    monkeypatch.setattr(tool_chat, "repaired_turns", counting)
    session.add_message(Message(InstructionContent(instruction="one more")), branches=main)
    assert len(to_model_messages(session.messages, main)) == 401
    assert looked == [2]


@given(histories())
def test_any_history_becomes_acceptable(history: list[Message]) -> None:
    chat = to_model_messages(history)
    assert_acceptable(chat)
    assert json.loads(json.dumps(chat)) == chat


@given(st.lists(messages, max_size=6))
def test_any_messages_become_acceptable(history: list[Message]) -> None:
    assert_acceptable(to_model_messages(history))


@given(histories())
def test_nothing_said_is_lost(history: list[Message]) -> None:
    told = all_text(to_model_messages(history))
    for message in history:
        content = message.content
        if isinstance(content, SystemContent):
            assert (content.system_message or "") in told
        elif isinstance(content, InstructionContent):
            assert (content.instruction or "").rstrip("\n") in told
            assert all(url in told for url in content.images or ())
            assert all(line in told for line in lines_in(content.context))
        elif isinstance(content, AssistantResponseContent):
            assert (content.assistant_response or "") in told


@given(histories())
def test_every_result_that_repair_keeps_is_told(history: list[Message]) -> None:
    chat = to_model_messages(history)
    told = [message["content"] for message in chat if message["role"] == "tool"]
    kept = [content for content in repair(history) if isinstance(content, ActionResponseContent)]
    assert told == [tool_text(content) for content in kept]
    asked = [
        json.loads(call["function"]["arguments"]) for m in chat for call in m.get("tool_calls", [])
    ]
    assert asked == [
        m.content.arguments for m in history if isinstance(m.content, ActionRequestContent)
    ]


@given(histories())
def test_a_repaired_history_reads_the_same(history: list[Message]) -> None:
    assert to_model_messages(made(*repair(history))) == to_model_messages(history)


@given(histories())
def test_no_input_is_changed_even_if_the_caller_changes_what_it_got(history: list[Message]) -> None:
    before = [message.to_json() for message in history]
    told = to_model_messages(history)
    expected = json.dumps(told)
    for message in told:
        if isinstance(message["content"], list):
            for block in message["content"]:
                block.clear()
        for call in message.get("tool_calls", []):
            call["function"].clear()
        message.clear()
    assert [message.to_json() for message in history] == before
    assert json.dumps(to_model_messages(history)) == expected


@given(histories(), st.randoms())
def test_a_branch_a_pile_and_a_list_read_the_same(history: list[Message], random: Any) -> None:
    session = Session()
    branch = session.create_branch("main")
    for message in history:
        session.add_message(message, branches=branch)
    assert to_model_messages(session.messages, branch) == to_model_messages(branch.messages)
    order = [message.id for message in history]
    shuffled = random.sample(history, len(history))
    assert to_model_messages(shuffled, order) == to_model_messages(history)
    assert to_model_messages(Pile(shuffled), Progression(order)) == to_model_messages(history)


@given(histories())
def test_a_new_instruction_comes_last(history: list[Message]) -> None:
    newest = InstructionContent("and now?")
    for given_as in (newest, Message(newest)):
        told = to_model_messages(history, new_instruction=given_as)
        assert told == to_model_messages([*history, Message(newest)])
        assert told[-1] == {"role": "user", "content": "and now?"}


@given(histories(), st.data())
def test_what_says_nothing_is_skipped_without_a_trace(history: list[Message], data: Any) -> None:
    place = data.draw(st.integers(0, len(history)))
    silent = data.draw(st.sampled_from([InstructionContent(), AssistantResponseContent()]))
    with_silence = [*history[:place], Message(silent), *history[place:]]
    assert to_model_messages(with_silence) == to_model_messages(history)


def test_a_whole_conversation_looks_like_this() -> None:
    chat = to_model_messages(
        made(
            SystemContent("Be kind"),
            InstructionContent("Find it"),
            AssistantResponseContent("Looking."),
            ActionRequestContent("search", {"q": "x"}, "call_1"),
            ActionRequestContent("ping", call_id="call_2"),
            ActionResponseContent("call_1", {"rows": [1]}),
            ActionResponseContent("call_2", error="no route"),
            AssistantResponseContent("Found."),
        )
    )
    assert chat == [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": "Find it"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"q":"x"}'},
                },
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "ping", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"rows":[1]}'},
        {"role": "tool", "tool_call_id": "call_2", "content": "Error: no route"},
        {"role": "assistant", "content": "Found."},
    ]


def test_a_call_without_a_result_is_told_as_interrupted() -> None:
    [assistant, tool] = to_model_messages(made(ActionRequestContent("f", {}, "a")))
    assert assistant["content"] is None
    assert tool == {"role": "tool", "tool_call_id": "a", "content": f"Error: {INTERRUPTED}"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (ActionResponseContent(result="text"), "text"),
        (ActionResponseContent(result=""), ""),
        (ActionResponseContent(result=None), "null"),
        (ActionResponseContent(result=False), "false"),
        (ActionResponseContent(result=[1, "é"]), '[1,"é"]'),
        (ActionResponseContent(), ""),
        (ActionResponseContent(error="boom"), "Error: boom"),
        (ActionResponseContent(result="half", error="boom"), "Error: boom"),
        (ActionResponseContent(error=""), "Error: "),
    ],
)
def test_a_result_is_told_as_it_is_and_an_error_as_one(content: Any, told: str) -> None:
    assert tool_text(content) == told


def test_an_instruction_of_text_alone_goes_as_it_was_typed() -> None:
    assert to_model_messages(made(InstructionContent("Hi\nthere"))) == [
        {"role": "user", "content": "Hi\nthere"}
    ]


def test_an_instruction_with_more_goes_under_its_headings() -> None:
    [message] = to_model_messages(made(InstructionContent("Hi", ["a"])))
    assert message["content"] == "Instruction: Hi\n\nContext:\n  - a"


def test_images_become_blocks() -> None:
    [message] = to_model_messages(made(InstructionContent("Look", images=["https://e.org/a.png"])))
    assert message["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "auto"}},
    ]


@pytest.mark.parametrize(
    ("function", "name"),
    [("a b.c", "a_b_c"), ("é", "_"), ("", "unknown"), (None, "unknown"), ("x" * 99, "x" * 64)],
)
def test_an_odd_name_is_made_acceptable(function: Any, name: str) -> None:
    [assistant, _] = to_model_messages(made(ActionRequestContent.create(function)))
    assert assistant["tool_calls"][0]["function"]["name"] == name


def test_only_the_current_instruction_keeps_its_response_model_and_tools() -> None:
    asked = InstructionContent("Rate it", tool_schemas=[Search], response_model=Analysis)
    [current] = to_model_messages(made(asked))
    assert current["content"] == asked.rendered
    tool = made(ActionRequestContent("f", {}, "a"), ActionResponseContent("a", 1))
    assert to_model_messages([*made(asked), *tool])[0] == current
    history = {"role": "user", "content": "Rate it"}
    assert to_model_messages(made(asked, AssistantResponseContent("5")))[0] == history
    assert to_model_messages(made(asked, InstructionContent("Well?")))[0] == history
    assert to_model_messages(made(asked), new_instruction=InstructionContent("Well?"))[0] == history


def test_what_is_said_beside_a_call_does_not_make_the_current_instruction_old() -> None:
    session = Session()
    branch = session.default_branch
    asked = InstructionContent("Rate it", response_model=Analysis)
    beside = [AssistantResponseContent("Hm."), ActionRequestContent("f", {}, "a")]
    first: list[Any] = []
    for content in (asked, *beside, ActionResponseContent("a", 1), AssistantResponseContent("5")):
        session.add_message(Message(content), branches=branch)
        first.append(to_model_messages(session.messages, branch)[0]["content"])
    # Until the call comes, the text before it looks like an answer.
    assert first == [asked.rendered, "Rate it", asked.rendered, asked.rendered, "Rate it"]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_contexts_used_meanwhile_do_not_make_the_current_instruction_old(role: Any) -> None:
    session = Session()
    asked = InstructionContent("Rate it", response_model=Analysis)
    branch = session.default_branch
    session.add_message(Message(asked), branches=branch)
    session.add_message(role, [ContextPart("viking://user/profile.md")])
    assert to_model_messages(session.messages, branch) == [asked.chat_msg]


def test_an_instruction_that_only_had_tools_is_left_out_of_history() -> None:
    told = to_model_messages(
        made(InstructionContent(tool_schemas=[Search]), InstructionContent("x"))
    )
    assert told == [{"role": "user", "content": "x"}]


def test_reasoning_is_never_sent_back() -> None:
    told = to_model_messages(made(AssistantResponseContent("Yes", "hm")))
    assert told == [{"role": "assistant", "content": "Yes"}]
    assert to_model_messages(made(AssistantResponseContent(reasoning="hm"))) == []


def test_parts_are_told_as_the_messages_they_are() -> None:
    session = Session()
    session.add_message("user", [TextPart("Hi"), ContextPart("viking://a")])
    assert to_model_messages(session.messages, session.default_branch) == [
        {"role": "user", "content": "Hi"}
    ]


def test_an_unknown_id_is_not_found() -> None:
    known, unknown = made(InstructionContent("a"), InstructionContent("b"))
    for order in ([unknown.id], Progression([unknown.id])):
        for given_as in ([known], Pile([known])):
            with pytest.raises(NotFoundError, match=str(unknown.id)):
                to_model_messages(given_as, order)


@pytest.mark.parametrize(
    "newest",
    ["Hi", 5, {"instruction": "Hi"}, SystemContent("x"), Message(AssistantResponseContent("x"))],
    ids=lambda value: type(value).__name__,
)
def test_a_new_instruction_must_be_one(newest: Any) -> None:
    with pytest.raises(InvalidTypeError, match="new_instruction must be an instruction"):
        to_model_messages([], new_instruction=newest)


@pytest.mark.parametrize("wrong", [None, 5, ["x"], [None], "text", [InstructionContent]], ids=str)
def test_what_are_no_messages_is_refused(wrong: Any) -> None:
    with pytest.raises(SennitError):
        to_model_messages(wrong)


def test_a_branch_given_in_place_of_messages_is_refused() -> None:
    session = Session()
    session.add_message("user", "Hi")
    with pytest.raises(SennitError):
        to_model_messages(session.default_branch)  # type: ignore[arg-type]
