"""A message: one content, who said it to whom, when; it never changes and comes back exactly."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    CodecError,
    InstructionContent,
    InvalidTypeError,
    Message,
    MessageRole,
    SennitError,
    SystemContent,
    TextPart,
    ValidationError,
    clock,
)
from sennit.messages import codec
from tests.strategies import (
    MODELS,
    Analysis,
    Search,
    contents,
    junk,
    mangled,
    messages,
    oddities,
    same,
    texts,
)

UID = "0190a5c2-7e4b-7c1d-8f2a-3b4c5d6e7f80"
STORED: dict[str, Any] = {
    "id": UID,
    "created_at": "2026-11-15T20:00:00.123456Z",
    "type": "instruction",
    "content": {
        "instruction": "Hello",
        "context": [{"a": [1, None]}, "b"],
        "tool_schemas": [{"schema": {"name": "ping"}}, {"model": "S", "schema": {}}],
        "response_model": {"model": "Analysis", "schema": {"type": "object"}},
        "images": ["https://example.com/a.png"],
        "image_detail": "low",
    },
    "sender": "user",
    "recipient": UID,
    "metadata": {"tags": ["x"]},
}


def said(message: Message) -> tuple[Any, ...]:
    """All that a message holds, for comparing: equality of messages goes by id alone."""
    return (
        message.id,
        message.created_at,
        message.sender,
        message.recipient,
        dict(message.metadata),
        message.content,
    )


@given(messages)
def test_any_message_survives_json(message: Message) -> None:
    written = message.to_json()
    back = Message.from_json(written, MODELS)
    assert same(json.loads(back.to_json()), json.loads(written))
    if not (isinstance(message.content, SystemContent) and message.content.datetime_factory):
        assert said(back) == said(message)
        assert type(back.sender) is type(message.sender)
        assert same(dict(back.metadata), dict(message.metadata))


@given(messages)
def test_any_message_survives_a_dict(message: Message) -> None:
    written = message.to_dict()
    back = Message.from_dict(written, MODELS)
    assert same(back.to_dict(), written)
    assert same(json.loads(message.to_json()), written)
    if not (isinstance(message.content, SystemContent) and message.content.datetime_factory):
        assert said(back) == said(message)


@given(messages)
def test_without_the_classes_it_encodes_and_renders_identically(message: Message) -> None:
    written = message.to_json()
    back = Message.from_json(written.encode())
    assert back.to_json() == written
    with clock.wall_clock_from(lambda: 0):
        assert back.rendered == message.rendered
        assert back.chat_msg == message.chat_msg


@given(messages, st.sampled_from(["copy", "deepcopy", *range(2, pickle.HIGHEST_PROTOCOL + 1)]))
def test_any_message_survives_copying_and_pickling(message: Message, how: Any) -> None:
    if isinstance(message.content, SystemContent) and message.content.datetime_factory:
        message = Message(SystemContent("x"), message.sender)  # a lambda cannot be pickled
    if isinstance(how, str):
        copied = getattr(copy, how)(message)
    else:
        copied = pickle.loads(pickle.dumps(message, how))
    assert copied == message
    assert said(copied) == said(message)
    with clock.wall_clock_from(lambda: 0):
        assert copied.rendered == message.rendered
    with pytest.raises(TypeError):
        copied.metadata["new"] = 1


def test_a_factory_is_stored_as_the_time_it_gives() -> None:
    message = Message(SystemContent("x", datetime_factory=lambda: "noon"))
    back = Message.from_json(message.to_json())
    assert back.content == SystemContent("x", system_datetime="noon")
    assert back.rendered == message.rendered


def test_a_stored_message_looks_like_this() -> None:
    message = Message.from_dict(STORED)
    assert message.to_dict() == STORED
    assert json.loads(message.to_json()) == STORED
    assert message.sender is MessageRole.USER
    assert message.recipient == UUID(UID)
    bare = Message(InstructionContent())
    assert bare.to_dict().keys() == {"id", "created_at", "type", "content"}


def test_the_classes_come_back_when_given() -> None:
    message = Message(InstructionContent("x", tool_schemas=[Search], response_model=Analysis))
    for back in (
        Message.from_json(message.to_json(), models=MODELS),
        Message.from_dict(message.to_dict(), models=MODELS),
    ):
        assert isinstance(back.content, InstructionContent)
        assert back.content.response_model is Analysis
        assert back.content.tool_schemas == [Search]


def test_to_dict_gives_the_caller_data_of_its_own() -> None:
    message = Message.from_dict(STORED)
    before = message.to_json()
    data = message.to_dict()
    data["content"]["context"][0]["a"].append(2)
    data["content"]["response_model"]["schema"].clear()
    data["metadata"]["tags"].append("y")
    assert message.to_json() == before
    assert Message.from_dict(STORED).to_dict() == STORED


def test_the_role_follows_from_the_content() -> None:
    for content, role in (
        (SystemContent("x"), MessageRole.SYSTEM),
        (InstructionContent("x"), MessageRole.USER),
        (AssistantResponseContent("x"), MessageRole.ASSISTANT),
        (ActionRequestContent("f"), MessageRole.ASSISTANT),
        (ActionResponseContent("r"), MessageRole.TOOL),
    ):
        message = Message(content)
        assert message.role is role
        assert message.chat_msg == {"role": role.value, "content": message.rendered}


def test_role_is_no_argument() -> None:
    make: Any = Message
    with pytest.raises(TypeError, match="'role' is not a field of Message"):
        make(InstructionContent("x"), role="user")
    with pytest.raises(TypeError, match="colour"):
        make(InstructionContent("x"), colour="red")


@pytest.mark.parametrize(
    "name",
    [
        *("id", "created_at", "metadata", "content", "sender", "recipient"),
        *("role", "rendered", "chat_msg", "parts", "colour"),
    ],
)
def test_nothing_of_a_message_can_be_assigned(name: str) -> None:
    message = Message(InstructionContent("x"), metadata={"a": 1})
    with pytest.raises(AttributeError):
        setattr(message, name, "other")
    with pytest.raises(AttributeError):
        delattr(message, name)
    assert not hasattr(message, "__dict__")


def test_metadata_is_copied_and_read_only() -> None:
    tags = ["x"]
    message = Message(InstructionContent("x"), metadata={"tags": tags})
    tags.append("y")
    assert message.metadata == {"tags": ["x"]}
    with pytest.raises(TypeError):
        message.metadata["more"] = 1  # type: ignore[index]


def test_messages_without_metadata_share_one_empty_mapping() -> None:
    one, other = Message(InstructionContent()), Message(InstructionContent(), metadata={})
    assert one.metadata is other.metadata
    assert one.metadata == {}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        (MessageRole.TOOL, MessageRole.TOOL),
        ("assistant", MessageRole.ASSISTANT),
        ("unset", MessageRole.UNSET),
        ("User", "User"),
        (UUID(UID), UUID(UID)),
        (UID, UUID(UID)),
        (UID.upper(), UUID(UID)),
        (UID.replace("-", ""), UID.replace("-", "")),
        (f"{{{UID}}}", f"{{{UID}}}"),
        ("alice", "alice"),
        ("", ""),
    ],
    ids=str,
)
def test_senders_and_recipients_are_normalised(given: Any, kept: Any) -> None:
    message = Message(InstructionContent(), sender=given, recipient=given)
    assert message.sender == message.recipient == kept
    assert type(message.sender) is type(message.recipient) is type(kept)


@given(texts)
def test_any_other_string_is_a_name(name: str) -> None:
    message = Message(InstructionContent(), sender=name)
    assert message.sender == name


def test_equality_and_hash_go_by_id() -> None:
    uid = uuid4()
    one, same_id = Message(InstructionContent("a"), id=uid), Message(SystemContent("b"), id=uid)
    other = Message(InstructionContent("a"))
    assert one == same_id
    assert hash(one) == hash(same_id)
    assert one != other
    assert len({one, same_id, other}) == 2
    assert one != uid


def test_a_clone_has_a_new_id_and_remembers_the_first() -> None:
    message = Message(InstructionContent("x"), "alice", "bob", metadata={"a": [1]})
    clone = message.clone()
    assert clone.id != message.id
    assert clone.content is message.content
    assert (clone.sender, clone.recipient) == ("alice", "bob")
    assert clone.metadata == {
        "a": [1],
        "clone_from": str(message.id),
        "original_created_at": message.to_dict()["created_at"],
    }
    assert message.metadata == {"a": [1]}
    assert message.clone(sender="user").sender is MessageRole.USER
    assert clone.clone().metadata["clone_from"] == str(clone.id)


def test_a_rendering_error_is_raised_not_swallowed() -> None:
    def broken() -> str:
        raise ZeroDivisionError

    message = Message(SystemContent("x", datetime_factory=broken))
    with pytest.raises(ZeroDivisionError):
        _ = message.chat_msg
    with pytest.raises(ZeroDivisionError):
        _ = message.rendered


def test_a_message_shows_its_role_words_and_id_in_short() -> None:
    shown = repr(Message(InstructionContent("word " * 100), id=UID))
    assert shown.startswith("Message(user, 'word")
    assert UID in shown
    assert len(shown) < 150


def test_a_message_gives_its_own_parts() -> None:
    assert Message(AssistantResponseContent("x")).parts == [TextPart("x")]


@pytest.mark.parametrize(
    "content",
    [None, "Hello", 5, ["Hello"], InstructionContent, object(), MessageRole.USER],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_content_is_refused(content: Any) -> None:
    with pytest.raises(InvalidTypeError, match="content") as caught:
        Message(content)
    assert repr(content)[:50] in str(caught.value)


DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sender", 5),
        ("sender", ["user"]),
        ("sender", b"user"),
        ("sender", "a\0"),
        ("sender", "\ud800"),
        ("recipient", 1.5),
        ("recipient", object()),
        ("id", 5),
        ("id", ""),
        ("id", "no-uuid"),
        ("id", b"0" * 16),
        ("id", UID + "0"),
        ("created_at", "yesterday"),
        ("created_at", "2026-01-01T00:00:00"),
        ("created_at", 5),
        ("created_at", datetime(2026, 1, 1)),
        ("created_at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))),
        ("created_at", datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
        ("metadata", 5),
        ("metadata", "x"),
        ("metadata", ["x"]),
        ("metadata", []),
        ("metadata", ""),
        ("metadata", 0),
        ("metadata", {"a": object()}),
        ("metadata", {"a": float("nan")}),
        ("metadata", {"a": [10**30]}),
        ("metadata", {"a": "\0"}),
        ("metadata", {"\ud800": 1}),
        ("metadata", {1.5: 1}),
        ("metadata", {"a": DEEP}),
    ],
    ids=lambda value: value if isinstance(value, str) and value in STORED else None,
)
def test_a_wrong_field_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Message(InstructionContent("x"), **{field: value})
    assert str(caught.value)
    assert len(str(caught.value)) < 1000


def test_every_moment_that_a_message_takes_can_be_stored() -> None:
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        message = Message(InstructionContent(), created_at=moment)
        assert Message.from_json(message.to_json()).created_at == moment


@pytest.mark.parametrize(
    "field", ["content", "sender", "recipient", "id", "created_at", "metadata"]
)
@pytest.mark.parametrize("value", [DEEP, 10**5000], ids=["deep", "long"])
def test_a_wrong_field_too_deep_or_too_long_to_show_is_refused(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"content": InstructionContent("x"), field: value}
    with pytest.raises(ValidationError):
        Message(**fields)
    with pytest.raises(ValidationError):
        Message.from_dict({**STORED, field: value})


@pytest.mark.parametrize(
    "data", [None, 5, "x", [], [STORED], b"{}"], ids=lambda value: type(value).__name__
)
def test_only_a_dict_is_a_stored_message(data: Any) -> None:
    with pytest.raises(CodecError, match="stored message is a dict"):
        Message.from_dict(data)


@pytest.mark.parametrize("key", ["id", "created_at", "type", "content"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(CodecError, match=key):
        Message.from_dict({name: value for name, value in STORED.items() if name != key})


@pytest.mark.parametrize("key", ["role", "Id", "_id", "class", 5, None])
def test_an_unknown_key_is_named(key: Any) -> None:
    with pytest.raises(CodecError, match=str(key)):
        Message.from_dict({**STORED, key: "x"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("id", value) for value in (None, 5, [], {}, "", "x", "a\0")),
        *(("created_at", value) for value in (None, 5, [], "", "now", "2026-01-01T00:00:00")),
        *(("created_at", f"{year}:00") for year in ("9999-12-31T23:59-01", "0001-01-01T00:00+01")),
        *(("type", value) for value in (None, 5, [], {}, "", "user", "System", "os.system")),
        *(("content", value) for value in (None, 5, [], "x", {"function": "f"}, {"x": 1})),
        *(("sender", value) for value in (5, [], {}, "\ud800", True)),
        *(("recipient", value) for value in (5, [], {}, "\0", 1.5)),
        *(("metadata", value) for value in (5, ["x"], "x", [], "", 0, False, {"a": object()})),
    ],
    ids=lambda value: value if isinstance(value, str) and value in STORED else None,
)
def test_a_wrong_value_of_a_key_is_refused(key: str, value: Any) -> None:
    with pytest.raises(SennitError) as caught:
        Message.from_dict({**STORED, key: value})
    assert str(caught.value)


@pytest.mark.parametrize("type_name", ["system", "assistant_response", "action_request"])
def test_a_content_must_belong_to_its_type(type_name: str) -> None:
    with pytest.raises(InvalidTypeError, match="has no field"):
        Message.from_dict({**STORED, "type": type_name})


def assert_sound_or_refused(read: Callable[[], Message]) -> None:
    try:
        message = read()
    except SennitError:
        return
    written = message.to_json()
    assert Message.from_json(written).to_json() == written
    with clock.wall_clock_from(lambda: 0):
        assert Message.from_json(written).rendered == message.rendered


records = messages.map(Message.to_dict) | st.just(STORED)


@given(mangled(records, oddities))
def test_a_mangled_dict_gives_a_sound_message_or_a_clear_error(record: Any) -> None:
    assert_sound_or_refused(lambda: Message.from_dict(record, MODELS))


@given(mangled(records, junk))
def test_mangled_json_gives_a_sound_message_or_a_clear_error(record: Any) -> None:
    line = json.dumps(record)
    assert_sound_or_refused(lambda: Message.from_json(line))


@given(messages.map(lambda message: message.to_json().encode()), st.data())
def test_broken_bytes_give_a_sound_message_or_a_clear_error(
    line: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(line)))
    stop = data.draw(st.integers(start, min(len(line), start + 20)))
    broken = line[:start] + data.draw(st.binary(max_size=4)) + line[stop:]
    assert_sound_or_refused(lambda: Message.from_json(broken))


@given(contents, st.data())
def test_any_dict_as_content_gives_a_content_or_a_clear_error(content: Any, data: Any) -> None:
    fields = data.draw(mangled(st.just(content.to_dict()), oddities))
    assert_sound_or_refused(lambda: Message(fields))


@pytest.mark.parametrize(
    "data", [None, 5, {}, [], object()], ids=lambda value: type(value).__name__
)
def test_only_text_and_bytes_can_be_json(data: Any) -> None:
    with pytest.raises(SennitError):
        Message.from_json(data)


@pytest.mark.parametrize(
    "data", ["", "null", "[]", "5", '"x"', "{}", "[" * 100_000, b"\xff", b'{"id":"\xff"}']
)
def test_what_is_no_stored_message_is_refused(data: Any) -> None:
    with pytest.raises(CodecError):
        Message.from_json(data)


def test_nesting_of_any_depth_anywhere_is_kept_or_refused() -> None:
    for depth in (99, 101, 500, *range(850, 1010), 5000):
        bomb = "[" * depth + "]" * depth
        for key in (*STORED, *STORED["content"]):
            record = {**STORED, key: "@"} if key in STORED else {**STORED, "content": {key: "@"}}
            line = json.dumps(record).replace('"@"', bomb)
            assert_sound_or_refused(lambda line=line: Message.from_json(line))


def test_a_message_too_big_to_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    message = Message(InstructionContent("x" * 200))
    written = message.to_json()
    monkeypatch.setattr(codec, "MAX_BYTES", 100)
    with pytest.raises(CodecError, match="bytes"):
        message.to_json()
    with pytest.raises(CodecError, match="bytes"):
        Message.from_json(written)


_LOADS = """
import sys
import sennit.messages.typescript
from sennit import Message
lines = sys.stdin.read().splitlines()
before = set(sys.modules)
for line in lines:
    message = Message.from_json(line, models={"Other": int})
    message.rendered, message.to_json(), repr(message)
print(sorted(set(sys.modules) - before))
"""


def test_loading_a_message_imports_and_runs_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "was_run"
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Module: ...\n")
    names = [
        "os.system",
        "evil",
        "evil.Module",
        "evil:Module",
        "smtplib.SMTP",
        "__import__('evil')",
    ]
    lines: list[str] = []
    for name in names:
        form = {"model": name, "schema": {"$ref": f"file://{trace}", "title": name, "type": name}}
        content = {"response_model": form, "tool_schemas": [form, {"schema": form}]}
        lines.append(json.dumps({**STORED, "content": content, "metadata": {"class": name}}))
    ran = subprocess.run(
        [sys.executable, "-c", _LOADS],
        input="\n".join(lines),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[]\n"
    assert not trace.exists()


def test_the_stand_in_would_have_been_noticed(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    ran = subprocess.run(
        [sys.executable, "-c", "import evil"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "imported" in ran.stderr


def test_a_kept_message_is_read_when_someone_looks() -> None:
    message = Message(InstructionContent("x", ["a"]), sender="ada", metadata={"n": 1})
    body = json.dumps(message.to_record()).encode()
    kept = Message.from_stored(message.id, 1_000_000, body)
    assert kept == message
    assert copy.deepcopy(kept).to_dict() == kept.to_dict()
    assert kept.content == message.content
    assert (kept.sender, kept.metadata) == ("ada", {"n": 1})
    assert kept.created_at.timestamp() == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"type": "nothing", "content": {}}',
        b'{"type": "instruction", "content": {"instruction": 5}}',
        b'{"type": "instruction", "content": {"images": ["file:///etc/passwd"]}}',
        b'{"type": "instruction", "content": {"function": "x"}}',
        b'{"type": "instruction", "content": {}, "role": "user"}',
    ],
)
def test_a_kept_message_that_is_not_sound_says_so_when_read(body: bytes) -> None:
    message = Message.from_stored(Message(InstructionContent()).id, 1, body)
    with pytest.raises(SennitError):
        message.content  # noqa: B018


def test_the_text_of_any_message_is_a_string() -> None:
    knot = Message(
        InstructionContent(instruction="Which knot?", images=["https://a.example/k.png"])
    )
    assert (knot.text, knot.rendered_text) == ("Which knot?", "Instruction: Which knot?")
    assert isinstance(knot.rendered, list)
    call = Message(ActionRequestContent("tie", {"knot": "bowline"}))
    assert call.text == call.rendered_text == call.rendered


@given(messages)
def test_the_rendering_as_text_is_the_rendering_unless_there_are_images(message: Message) -> None:
    assert isinstance(message.text, str)
    with mock.patch.object(clock, "now_us", return_value=clock.now_us()):  # a text may have it
        if isinstance(message.rendered, str):
            assert message.rendered_text == message.rendered
        else:
            texts = [block["text"] for block in message.rendered if block["type"] == "text"]
            assert message.rendered_text == "".join(texts)


def test_a_misspelt_attribute_names_the_right_one() -> None:
    with pytest.raises(AttributeError, match=r"no attribute .tetx.\. Did you mean .text."):
        getattr(Message(SystemContent("Hi")), "tetx")  # noqa: B009 (an error to type checkers)
