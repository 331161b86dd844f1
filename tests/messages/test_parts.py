"""Parts: another view of the same messages, which comes back exactly."""

from __future__ import annotations

import copy
import json
import pickle
from contextlib import suppress
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    CodecError,
    ContextPart,
    ImagePart,
    InstructionContent,
    Message,
    MessageContent,
    MessageRole,
    SennitError,
    SystemContent,
    TextPart,
    ToolPart,
    Unset,
    ValidationError,
    clock,
    prepare_messages_for_chat,
    to_model_messages,
)
from sennit.messages import MessageGroup
from sennit.messages.parts import part_from_dict, part_to_dict, split
from tests.strategies import (
    junk,
    mangled,
    messages,
    moments,
    oddities,
    parties,
    role_and_parts,
    same,
)

GROUP_ID = "msg_0190a5c2-7e4b-7c1d-8f2a-3b4c5d6e7f80"
PICTURE = "https://example.com/a.png"
ALL_PARTS: list[Any] = [
    TextPart("Hello"),
    ContextPart("viking://user/profile.md", "who"),
    ToolPart("search", {"q": ["x"]}, {"rows": [1]}, None, "call_1"),
    ImagePart(PICTURE, "low"),
]
each_part = pytest.mark.parametrize("part", ALL_PARTS, ids=lambda part: type(part).__name__)


def contents(group: MessageGroup) -> list[Any]:
    return [message.content for message in group.messages]


@given(role_and_parts, parties, st.none() | moments)
def test_parts_come_back_exactly_through_stored_messages(
    said: Any, sender: Any, created_at: Any
) -> None:
    role, parts = said
    group = split(role, parts, sender=sender, created_at=created_at)
    stored = [Message.from_json(message.to_json()) for message in group.messages]
    back = MessageGroup.of(stored)
    assert back == group
    assert (back.id, back.role, back.created_at) == (group.id, group.role, group.created_at)
    assert list(back.parts) == parts
    assert same([part_to_dict(part) for part in back.parts], [part_to_dict(p) for p in parts])
    assert [message.content for message in back.messages] == contents(group)


@given(role_and_parts, st.none() | moments)
def test_a_line_of_jsonl_comes_back_exactly(said: Any, created_at: Any) -> None:
    role, parts = said
    group = split(role, parts, created_at=created_at)
    line = group.to_json()
    assert "\n" not in line
    back = MessageGroup.from_json(line)
    assert back == group
    assert back.to_json() == line
    assert MessageGroup.of(back.messages) == group


@given(role_and_parts, st.randoms())
def test_the_order_in_which_members_are_found_does_not_matter(said: Any, random: Any) -> None:
    group = split(*said)
    members = list(group.messages)
    random.shuffle(members)
    assert MessageGroup.of(members) == group
    assert MessageGroup.of(members).messages == group.messages


def test_a_line_of_jsonl_looks_like_this() -> None:
    moment = datetime(2026, 11, 15, 20, 0, 0, 123456, tzinfo=UTC)
    group = split(
        "assistant",
        [TextPart("Hi"), ToolPart("f", {"x": 1}, None), ContextPart("v://a")],
        id=GROUP_ID,
        created_at=moment,
    )
    assert json.loads(group.to_json()) == {
        "id": GROUP_ID,
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "Hi"},
            {"type": "tool", "name": "f", "input": {"x": 1}, "output": None},
            {"type": "context", "uri": "v://a", "abstract": ""},
        ],
        "created_at": "2026-11-15T20:00:00.123Z",
    }


def test_a_group_has_an_id_a_role_a_time_and_its_messages() -> None:
    with clock.wall_clock_from(lambda: 1_700_000_000_123_456_789):
        group = split("user", "Hello", sender="alice")
    assert group.id.startswith("msg_")
    assert group.role == "user"
    assert group.parts == (TextPart("Hello"),)
    assert group.created_at.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    [message] = group.messages
    assert message.content == InstructionContent("Hello")
    assert message.created_at == group.created_at
    assert message.sender == "alice"
    assert group.id == f"msg_{message.id}"
    assert not message.metadata  # a message that carries no mark is a group of its own
    assert split("user", "Hello").id != group.id


def test_members_that_are_several_carry_their_groups_id_and_their_place() -> None:
    group = split("assistant", [TextPart("a"), TextPart("b")])
    marks = [message.metadata["group"] for message in group.messages]
    assert marks == [{"id": group.id, "role": "assistant", "index": index} for index in (0, 1)]


def test_text_becomes_an_instruction_or_an_answer() -> None:
    assert contents(split("user", [TextPart("a"), TextPart("b")])) == [
        InstructionContent("a"),
        InstructionContent("b"),
    ]
    assert contents(split("assistant", TextPart("a"))) == [AssistantResponseContent("a")]


def test_images_belong_to_the_instruction_before_them() -> None:
    other = "https://example.com/b.png"
    parts = [TextPart("Look"), ImagePart(PICTURE, "low"), ImagePart(other, "low"), ImagePart(other)]
    assert contents(split("user", parts)) == [
        InstructionContent("Look", images=[PICTURE, other], image_detail="low"),
        InstructionContent(images=[other], image_detail="auto"),
    ]


def test_a_tool_becomes_a_call_and_its_result() -> None:
    group = split("assistant", [ToolPart("f", {"x": 1}, {"y": 2}, tool_id="call_1")])
    assert contents(group) == [
        ActionRequestContent("f", {"x": 1}, "call_1"),
        ActionResponseContent("call_1", {"y": 2}),
    ]


def test_a_tool_without_an_id_is_answered_by_its_messages_id() -> None:
    call, result = split("assistant", [ToolPart("f", {}, "done")]).messages
    assert result.content == ActionResponseContent(str(call.id), "done")


def test_a_failed_tool_is_not_stored_as_a_success() -> None:
    for tool in (
        ToolPart("f", {}, error="boom"),
        ToolPart("f", {}, None, "boom"),
        ToolPart("f", {}, error=""),
    ):
        result = contents(split("assistant", [tool]))[1]
        assert not result.success
        assert result.error == tool.error
        assert "success: false" in result.rendered
        [back] = MessageGroup.of(split("assistant", [tool]).messages).parts
        assert back == tool


def test_a_tool_that_returned_none_has_a_result_and_a_running_one_has_not() -> None:
    assert contents(split("assistant", [ToolPart("f", {}, None)]))[1].result is None
    assert contents(split("assistant", [ToolPart("f", {})])) == [ActionRequestContent("f", {})]
    assert ToolPart("f", {}, error=None).error is Unset


@pytest.mark.parametrize("tool_id", ["same", "", None])
def test_tools_with_reused_or_blank_ids_keep_their_own_results(tool_id: Any) -> None:
    tools = [ToolPart("f", {"n": n}, n, tool_id=tool_id) for n in range(3)]
    group = split("assistant", tools)
    assert list(MessageGroup.of(group.messages).parts) == tools
    told = to_model_messages(group.messages)
    results = {
        message["tool_call_id"]: message["content"] for message in told if message["role"] == "tool"
    }
    calls = [call for message in told for call in message.get("tool_calls", [])]
    assert [results[call["id"]] for call in calls] == ["0", "1", "2"]


def test_contexts_are_recorded_and_say_nothing() -> None:
    used = [ContextPart("viking://a", "A"), ContextPart("viking://b")]
    group = split("user", [TextPart("x"), *used])
    assert contents(group) == [InstructionContent("x")]
    assert group.messages[0].parts == [TextPart("x"), *used]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_contexts_alone_are_an_empty_content_that_prompts_skip(role: Any) -> None:
    group = split(role, [ContextPart("viking://a")])
    [message] = group.messages
    assert message.content.empty
    assert prepare_messages_for_chat(group.messages) == []
    assert to_model_messages(group.messages) == []
    assert MessageGroup.of(group.messages) == group


def test_contexts_of_a_tool_are_recorded_with_the_call_only() -> None:
    parts = [ToolPart("f", {}, 1), ContextPart("viking://a")]
    call, result = split("assistant", parts).messages
    assert call.parts == [ToolPart("f", {}), ContextPart("viking://a")]
    assert result.parts == [ToolPart("", {}, 1, tool_id=str(call.id))]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (SystemContent("x"), [TextPart("x")]),
        (SystemContent(), []),
        (InstructionContent("x"), [TextPart("x")]),
        (InstructionContent(""), [TextPart("")]),
        (InstructionContent(images=[PICTURE]), [ImagePart(PICTURE)]),
        (
            InstructionContent("x", images=[PICTURE], image_detail="low"),
            [TextPart("x"), ImagePart(PICTURE, "low")],
        ),
        (AssistantResponseContent("x", "hm"), [TextPart("x")]),
        (AssistantResponseContent(), []),
        (ActionRequestContent("f", {"a": 1}, "c"), [ToolPart("f", {"a": 1}, tool_id="c")]),
        (ActionRequestContent(), [ToolPart("", {})]),
        (ActionResponseContent("c", None), [ToolPart("", {}, None, tool_id="c")]),
        (ActionResponseContent(error="e"), [ToolPart("", {}, error="e")]),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_message_gives_its_own_parts(content: Any, parts: list[Any]) -> None:
    assert Message(content).parts == parts


@given(messages)
def test_every_message_has_parts(message: Message) -> None:
    assert all(isinstance(part, (TextPart, ImagePart, ToolPart)) for part in message.parts)


@pytest.mark.parametrize(
    "contexts", [5, "x", {}, [5], ["x"], [{}], [{"uri": 5}], [{"uri": "a", "colour": 1}], [None]]
)
def test_metadata_of_a_strangers_making_does_not_break_the_parts(contexts: Any) -> None:
    for metadata in (
        {"contexts": contexts},
        {"group": contexts},
        {"group": {"contexts": contexts}},
    ):
        message = Message(InstructionContent("x"), metadata=metadata)
        with suppress(SennitError):
            assert message.parts[0] == TextPart("x")


@each_part
def test_no_field_of_a_part_can_be_assigned(part: Any) -> None:
    for field in fields(part):
        with pytest.raises(FrozenInstanceError):
            setattr(part, field.name, "other")
    with pytest.raises((AttributeError, TypeError)):
        part.colour = "red"


def test_no_field_of_a_group_can_be_assigned() -> None:
    group = split("user", "x")
    for field in fields(group):
        with pytest.raises(FrozenInstanceError):
            setattr(group, field.name, "other")


@each_part
def test_parts_survive_copying_pickling_and_a_dict(part: Any) -> None:
    assert copy.copy(part) == copy.deepcopy(part) == pickle.loads(pickle.dumps(part)) == part
    assert part_from_dict(part_to_dict(part)) == part


def test_a_tool_part_copies_what_it_is_given() -> None:
    rows = [1]
    part = ToolPart("f", {"rows": rows}, {"rows": rows})
    rows.append(2)
    assert part == ToolPart("f", {"rows": [1]}, {"rows": [1]})


def test_groups_survive_copying_and_pickling() -> None:
    group = split("assistant", [TextPart("a"), ToolPart("f", {}, 1)])
    for copied in (copy.deepcopy(group), pickle.loads(pickle.dumps(group))):
        assert copied == group
        assert contents(copied) == contents(group)


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (TextPart, [None], "TextPart.text"),
        (TextPart, [5], "TextPart.text"),
        (TextPart, ["\0"], "TextPart.text"),
        (TextPart, ["\ud800"], "TextPart.text"),
        (ContextPart, [""], "ContextPart.uri"),
        (ContextPart, [5], "ContextPart.uri"),
        (ContextPart, ["\0"], "ContextPart.uri"),
        (ContextPart, ["a", None], "ContextPart.abstract"),
        (ContextPart, ["a", "\ud800"], "ContextPart.abstract"),
        (ToolPart, [None, {}], "ToolPart.name"),
        (ToolPart, ["f", None], "ToolPart.input"),
        (ToolPart, ["f", []], "ToolPart.input"),
        (ToolPart, ["f", {"a": float("nan")}], "ToolPart.input.a"),
        (ToolPart, ["f", {}, object()], "ToolPart.output"),
        (ToolPart, ["f", {}, [10**30]], r"ToolPart.output\[0\]"),
        (ToolPart, ["f", {}, 1, 5], "ToolPart.error"),
        (ToolPart, ["f", {}, 1, None, 5], "ToolPart.tool_id"),
        (ImagePart, ["file:///etc/passwd"], "Image URL"),
        (ImagePart, ["http://u:p@e.org"], "credentials"),
        (ImagePart, ["http://e.org/\ud800"], "Image URL"),
        (ImagePart, [None], "Image URL"),
        (ImagePart, [PICTURE, "huge"], "ImagePart.detail"),
        (ImagePart, [PICTURE, None], "ImagePart.detail"),
    ],
)
def test_a_wrong_value_is_refused_by_name(kind: Any, arguments: list[Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        kind(*arguments)


@pytest.mark.parametrize("role", ["tool", "User", "", None, 5, [], MessageRole.TOOL], ids=str)
def test_other_roles_do_not_speak_in_parts(role: Any) -> None:
    with pytest.raises(ValidationError, match="'user', 'assistant' or 'system'"):
        split(role, "x")


def test_a_role_may_be_given_as_a_message_role() -> None:
    group = split(MessageRole.ASSISTANT, "x")  # type: ignore[arg-type]
    assert contents(group) == [AssistantResponseContent("x")]
    assert json.loads(group.to_json())["role"] == "assistant"
    assert MessageGroup.from_json(group.to_json()) == group


@pytest.mark.parametrize(
    "parts",
    [None, 5, object(), [b"x"], [TextPart("x"), {"type": "text"}], [TextPart]],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_part_is_refused(parts: Any) -> None:
    with pytest.raises(ValidationError, match="part"):
        split("user", parts)


@pytest.mark.parametrize("parts", [[], (), iter([])])
def test_a_message_says_something(parts: Any) -> None:
    with pytest.raises(ValidationError, match="empty"):
        split("user", parts)


def test_users_call_no_tools_and_assistants_show_no_images() -> None:
    with pytest.raises(ValidationError, match=r"ToolPart .* 'assistant'"):
        split("user", [TextPart("x"), ToolPart("f", {})])
    with pytest.raises(ValidationError, match=r"ImagePart .* 'user'"):
        split("assistant", [TextPart("x"), ImagePart(PICTURE)])


@pytest.mark.parametrize(
    "id", ["", "msg_", "msg_x", GROUP_ID[4:], GROUP_ID + "0", 5, ["msg_"], b"msg_"], ids=str
)
def test_a_groups_id_is_msg_and_a_uuid(id: Any) -> None:
    with pytest.raises(ValidationError, match="msg_"):
        split("user", "x", id=id)


def test_messages_of_no_group_or_of_two_are_refused() -> None:
    one, other = split("user", "x"), split("user", "y")
    lone = Message(InstructionContent("x"))
    result = Message(ActionResponseContent("call_1", "r"))
    for members in ([], [result], [*one.messages, lone], [*one.messages, *other.messages]):
        with pytest.raises(ValidationError, match="group"):
            MessageGroup.of(members)


@pytest.mark.parametrize(
    ("content", "role"),
    [
        (InstructionContent("x"), "user"),
        (AssistantResponseContent("x"), "assistant"),
        (ActionRequestContent("look_up", {"knot": "bowline"}), "assistant"),
    ],
    ids=["instruction", "answer", "call"],
)
def test_a_message_that_was_added_by_itself_is_a_group_of_its_own(
    content: MessageContent, role: str
) -> None:
    message = Message(content)
    group = MessageGroup.of([message])
    assert (group.id, group.role) == (f"msg_{message.id}", role)
    assert list(group.parts) == message.parts
    assert MessageGroup.from_json(group.to_json()) == group


@pytest.mark.parametrize(
    "mark",
    [
        None,
        5,
        {},
        {"id": GROUP_ID},
        {"id": 5, "role": "user", "index": 0},
        {"id": GROUP_ID, "role": "tool", "index": 0},
        {"id": GROUP_ID, "role": "user", "index": "0"},
    ],
    ids=str,
)
def test_a_broken_mark_is_no_group(mark: Any) -> None:
    with pytest.raises(ValidationError, match="group"):
        MessageGroup.of([Message(InstructionContent("x"), metadata={"group": mark})])


LINE: dict[str, Any] = {
    "id": GROUP_ID,
    "role": "assistant",
    "parts": [
        {"type": "text", "text": "Hi"},
        {"type": "tool", "name": "f", "input": {"x": [1]}, "output": {"y": 2}, "tool_id": "c"},
        {"type": "tool", "name": "f", "input": {}, "error": "boom"},
        {"type": "context", "uri": "viking://a", "abstract": "A"},
    ],
    "created_at": "2026-11-15T20:00:00.123Z",
}


def test_the_line_used_below_is_sound() -> None:
    assert json.loads(MessageGroup.from_json(json.dumps(LINE)).to_json()) == LINE


@pytest.mark.parametrize("key", LINE)
@pytest.mark.parametrize("value", [None, 5, "", "x", [], {}, [5], ["x"], [{}], True])
def test_a_wrong_value_in_a_line_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        MessageGroup.from_json(json.dumps({**LINE, key: value}))
    assert str(caught.value)


@pytest.mark.parametrize("key", LINE)
def test_a_missing_or_unknown_key_in_a_line_is_refused(key: str) -> None:
    with pytest.raises(CodecError, match="id, role, parts and created_at"):
        MessageGroup.from_json(json.dumps({k: v for k, v in LINE.items() if k != key}))
    with pytest.raises(CodecError, match="id, role, parts and created_at"):
        MessageGroup.from_json(json.dumps({**LINE, f"{key}_": 1}))


@pytest.mark.parametrize("line", ["", "null", "[]", "5", "{", "[" * 100_000, b"\xff"])
def test_what_is_no_line_is_refused(line: Any) -> None:
    with pytest.raises(CodecError):
        MessageGroup.from_json(line)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_time_outside_of_utc_is_refused(moment: str) -> None:
    with pytest.raises(SennitError):
        MessageGroup.from_json(json.dumps({**LINE, "created_at": moment}))


@pytest.mark.parametrize(
    "part",
    [
        None,
        "x",
        {},
        {"type": "video"},
        {"type": None},
        {"type": ["text"]},
        {"text": "x"},
        {"type": "text"},
        {"type": "text", "text": "x", "colour": "red"},
        {"type": "text", "text": "x", "self": 1},
        {"type": "tool", "name": "f"},
        {"type": "tool", "name": "f", "input": []},
        {"type": "image", "url": "file:///etc/passwd"},
        {"type": "context", "uri": ""},
    ],
    ids=str,
)
def test_a_wrong_part_is_refused(part: Any) -> None:
    with pytest.raises(ValidationError):
        part_from_dict(part)


def assert_sound_or_refused(line: str) -> None:
    try:
        group = MessageGroup.from_json(line)
    except SennitError:
        return
    assert MessageGroup.from_json(group.to_json()) == group
    assert MessageGroup.of(group.messages) == group


def _line(said: Any) -> dict[str, Any]:
    return json.loads(split(*said).to_json())


lines = role_and_parts.map(_line) | st.just(LINE)


@given(mangled(lines, junk))
def test_a_mangled_line_gives_a_sound_group_or_a_clear_error(line: Any) -> None:
    assert_sound_or_refused(json.dumps(line))


@given(role_and_parts, st.data())
def test_a_broken_line_gives_a_sound_group_or_a_clear_error(said: Any, data: Any) -> None:
    line = split(*said).to_json()
    start = data.draw(st.integers(0, len(line)))
    stop = data.draw(st.integers(start, min(len(line), start + 20)))
    assert_sound_or_refused(line[:start] + data.draw(st.text(max_size=4)) + line[stop:])


@given(st.data())
def test_a_mangled_part_gives_a_part_or_a_clear_error(data: Any) -> None:
    record = data.draw(mangled(st.sampled_from(ALL_PARTS).map(part_to_dict), oddities))
    try:
        part = part_from_dict(record)
    except SennitError:
        return
    assert part_from_dict(part_to_dict(part)) == part


def test_a_group_may_be_created_at_any_millisecond() -> None:
    for naive in (datetime.min, datetime.max, datetime(1969, 12, 31, 23, 59, 59, 999999)):
        moment = naive.replace(tzinfo=UTC)
        group = split("user", "x", created_at=moment)
        assert timedelta(0) <= moment - group.created_at < timedelta(milliseconds=1)
        assert MessageGroup.from_json(group.to_json()) == group
