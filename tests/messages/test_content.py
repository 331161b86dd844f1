"""The five contents: frozen values that are checked and copied when made, and never change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    Message,
    MessageContent,
    MessageRole,
    OpaqueContent,
    SennitError,
    SystemContent,
    Unset,
    ValidationError,
    clock,
)
from sennit.errors import InvalidTypeError
from sennit.messages.output_schema import ModelSchema
from tests.strategies import MODELS, Analysis, Search, contents

KINDS: list[type[Any]] = [
    SystemContent,
    InstructionContent,
    AssistantResponseContent,
    ActionRequestContent,
    ActionResponseContent,
]
FULL: list[Any] = [
    SystemContent("Be kind", "noon"),
    InstructionContent(
        "Look", [{"a": [1]}], [Search, {"name": "f"}], Analysis, ["https://e.org/a.png"], "low"
    ),
    AssistantResponseContent("Yes", "hm"),
    ActionRequestContent("search", {"q": ["x"]}, "call_1"),
    ActionResponseContent("call_1", {"rows": [1]}),
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
each_content = pytest.mark.parametrize("content", FULL, ids=lambda content: content.kind)


def test_the_type_decides_the_role() -> None:
    assert [kind.role for kind in KINDS] == ["system", "user", "assistant", "assistant", "tool"]
    assert MessageContent.role is MessageRole.UNSET


@each_kind
def test_every_field_starts_unset(kind: type[Any]) -> None:
    assert all(getattr(kind(), field.name) is Unset for field in fields(kind))
    assert kind() == kind.create()


@each_kind
def test_none_given_to_create_means_unset(kind: type[Any]) -> None:
    assert kind.create(**{field.name: None for field in fields(kind)}) == kind()


@each_content
def test_none_given_to_with_updates_means_unset(content: Any) -> None:
    for field in fields(content):
        if getattr(content, field.name) is not Unset:
            updated = content.with_updates(**{field.name: None})
            assert getattr(updated, field.name) is Unset
            assert getattr(content, field.name) is not Unset


def test_a_tool_may_return_none() -> None:
    content = ActionResponseContent(request_id="r", result=None)
    assert content.result is None
    assert content.success
    assert content.rendered == "success: true\nrequest_id: r\nresult: null"
    assert content.to_dict() == {"request_id": "r", "result": None}
    assert ActionResponseContent.from_dict(content.to_dict()).result is None
    assert ActionResponseContent.create(result=None).result is Unset


def test_a_failed_tool_is_no_success_even_with_a_result_or_an_empty_error() -> None:
    assert not ActionResponseContent(error="boom").success
    assert not ActionResponseContent(result={"partial": 1}, error="boom").success
    assert not ActionResponseContent(error="").success
    assert ActionResponseContent(result={"error": "only a word"}).success
    assert ActionResponseContent().success


@each_content
def test_no_field_can_be_assigned_or_deleted(content: Any) -> None:
    for field in fields(content):
        with pytest.raises(FrozenInstanceError):
            setattr(content, field.name, "other")
        with pytest.raises(FrozenInstanceError):
            delattr(content, field.name)


@each_content
@pytest.mark.parametrize("name", ["role", "rendered", "chat_msg", "colour"])
def test_nothing_else_can_be_assigned_either(content: Any, name: str) -> None:
    with pytest.raises((AttributeError, TypeError)):
        setattr(content, name, "other")
    assert not hasattr(content, "__dict__")


def test_constructors_copy_what_they_are_given_all_the_way_down() -> None:
    inner = [1]
    given: dict[str, Any] = {"a": inner}
    images, schemas, schema = ["https://e.org"], [{"name": "f", "x": inner}], {"x": inner}
    made: list[Any] = [
        InstructionContent(context=[given], images=images, tool_schemas=schemas),  # type: ignore[list-item]
        InstructionContent(response_model=schema),  # type: ignore[arg-type]
        ActionRequestContent(arguments=given),
        ActionResponseContent(result=given),
        InstructionContent().with_updates(context=[given]),
        ActionRequestContent.from_dict({"arguments": given}),
    ]
    before = [content.to_dict() for content in made]
    inner.append(2)
    given["b"] = 1
    images.append("file:///etc/passwd")
    schemas.clear()
    schema.clear()
    assert [content.to_dict() for content in made] == before


@each_content
def test_to_dict_gives_the_caller_data_of_its_own(content: Any) -> None:
    before = content.to_dict()
    _wreck(content.to_dict())
    assert content.to_dict() == before


def _wreck(value: Any) -> None:
    for inner in list(value.values() if isinstance(value, dict) else value):
        if isinstance(inner, (dict, list)):
            _wreck(inner)
    value.clear()


def test_blocks_of_images_are_the_callers_own() -> None:
    content = InstructionContent("Look", images=["https://e.org/a.png"])
    before = content.rendered
    for block in content.rendered:
        _wreck(block)
    assert content.rendered == before


@given(contents)
def test_to_dict_and_from_dict_give_the_same_content(content: MessageContent) -> None:
    if isinstance(content, OpaqueContent):
        return  # its type is kept by the message
    stored = content.to_dict()
    back = type(content).from_dict(stored, MODELS)
    assert back.to_dict() == stored
    if not isinstance(content, SystemContent) or content.datetime_factory is Unset:
        assert back == content


@given(contents, st.sampled_from(["copy", "deepcopy", *range(pickle.HIGHEST_PROTOCOL + 1)]))
def test_copies_and_pickles_are_equal_and_render_alike(content: MessageContent, how: Any) -> None:
    if (
        isinstance(content, SystemContent)
        and content.datetime_factory is not Unset
        and how != "copy"
    ):
        return  # a lambda cannot be pickled
    with clock.wall_clock_from(lambda: 0):
        said = content.rendered
        if isinstance(how, str):
            copied = getattr(copy, how)(content)
        else:
            copied = pickle.loads(pickle.dumps(content, how))
        assert copied == content
        assert copied.rendered == said
        assert copied.chat_msg == content.chat_msg


@each_content
def test_a_copied_content_is_as_frozen_as_the_first(content: Any) -> None:
    for copied in (copy.copy(content), copy.deepcopy(content)):
        with pytest.raises(FrozenInstanceError):
            setattr(copied, fields(copied)[0].name, "other")
        assert copied.with_updates() == content


@each_content
def test_with_updates_leaves_the_first_content_alone(content: Any) -> None:
    before = content.to_dict()
    name = fields(content)[0].name
    updated = content.with_updates(**{name: "other"})
    assert getattr(updated, name) == "other"
    assert type(updated) is type(content)
    assert content.to_dict() == before
    assert updated.rendered != content.rendered or name == "request_id"


def test_with_updates_renders_the_new_words_after_the_old_were_rendered() -> None:
    content = InstructionContent("one", ["c"])
    assert content.rendered == "Instruction: one\n\nContext:\n  - c"
    updated = content.with_updates(instruction="two")
    assert updated.rendered == "Instruction: two\n\nContext:\n  - c"


@pytest.mark.parametrize(
    ("how", "shares_list", "shares_item"),
    [("none", True, True), ("shallow", False, True), ("deep", False, False)],
)
def test_with_updates_copies_containers_as_told(
    how: Any, shares_list: bool, shares_item: bool
) -> None:
    content: Any = InstructionContent("x", context=[{"a": 1}])
    updated: Any = content.with_updates(copy_containers=how, instruction="y")
    assert updated.context == content.context
    assert (updated.context is content.context) is shares_list
    assert (updated.context[0] is content.context[0]) is shares_item


@pytest.mark.parametrize("how", ["none", "shallow", "deep"])
def test_with_updates_copies_what_it_is_given_whatever_it_is_told(how: Any) -> None:
    row = {"a": 1}
    updated: Any = InstructionContent().with_updates(copy_containers=how, context=[row])
    row["a"] = 2
    assert updated.context == [{"a": 1}]


@pytest.mark.parametrize("how", ["deeply", "", None, True, ["deep"]])
def test_with_updates_refuses_another_way_of_copying(how: Any) -> None:
    with pytest.raises(ValidationError, match="copy_containers"):
        InstructionContent("x").with_updates(copy_containers=how)


def test_with_updates_keeps_model_classes_as_they_are() -> None:
    content = InstructionContent("x", tool_schemas=[Search], response_model=Analysis)
    for how in ("none", "shallow", "deep"):
        updated = content.with_updates(copy_containers=how, instruction="y")
        assert updated.response_model is Analysis
        assert updated.tool_schemas == [Search]


@pytest.mark.parametrize(
    "make",
    [
        lambda both: SystemContent(**both),
        lambda both: SystemContent.create(**both),
        SystemContent.from_dict,
        lambda both: SystemContent(system_datetime="noon").with_updates(
            datetime_factory=both["datetime_factory"]
        ),
        Message,
    ],
)
def test_a_time_and_a_factory_cannot_both_be_set(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="Cannot set both system_datetime and datetime_factory"):
        make({"system_datetime": True, "datetime_factory": lambda: "noon"})


def test_a_time_can_be_swapped_for_a_factory() -> None:
    content = SystemContent("x", system_datetime="noon")
    swapped = content.with_updates(system_datetime=None, datetime_factory=lambda: "dusk")
    assert swapped.rendered == "System Time: dusk\n\nx"


@pytest.mark.parametrize("given", [None, 5, b"noon", object(), "a\0", "\ud800"], ids=type)
def test_a_factory_must_give_text(given: Any) -> None:
    content = SystemContent("x", datetime_factory=lambda: given)
    for use in (
        lambda: content.rendered,
        lambda: content.chat_msg,
        content.to_dict,
        Message(content).to_json,
        Message(content).to_dict,
    ):
        with pytest.raises(SennitError, match="datetime_factory"):
            use()


def test_an_error_of_the_factory_is_not_swallowed() -> None:
    def broken() -> str:
        raise ZeroDivisionError

    content = SystemContent("x", datetime_factory=broken)
    with pytest.raises(ZeroDivisionError):
        _ = content.chat_msg
    with pytest.raises(ZeroDivisionError):
        Message(content).to_json()


def test_a_factory_is_asked_at_every_rendering() -> None:
    times = iter("abc")
    content = SystemContent(datetime_factory=lambda: next(times))
    assert [content.rendered, content.rendered] == ["System Time: a", "System Time: b"]
    assert content.to_dict() == {"system_datetime": "c"}


def test_true_is_the_time_of_rendering_and_stays_true_when_stored() -> None:
    content = SystemContent("x", system_datetime=True)
    for second in (0, 61):
        with clock.wall_clock_from(lambda now=second * 10**9: now):
            time = datetime.fromtimestamp(second, UTC).isoformat()
            assert content.rendered == f"System Time: {time}\n\nx"
    assert content.to_dict()["system_datetime"] is True


def test_text_alone_replaces_the_words_and_nothing_else() -> None:
    assert InstructionContent("a", ["c"]).with_text("b") == InstructionContent("b", ["c"])
    assert SystemContent("a", "noon").with_text("b") == SystemContent("b", "noon")
    assert AssistantResponseContent("a", "hm").with_text("b").reasoning == "hm"
    for wordless in (ActionRequestContent("f"), ActionResponseContent("r")):
        with pytest.raises(ValidationError, match=wordless.kind):
            wordless.with_text("b")


@pytest.mark.parametrize(
    ("data", "content"),
    [
        ({}, InstructionContent()),
        ({"instruction": "x"}, InstructionContent("x")),
        (
            {"images": ["https://e.org"], "image_detail": "low"},
            InstructionContent(images=["https://e.org"], image_detail="low"),
        ),
        ({"system_message": "x"}, SystemContent("x")),
        ({"assistant_response": "x", "reasoning": "y"}, AssistantResponseContent("x", "y")),
        ({"reasoning": "y"}, AssistantResponseContent(reasoning="y")),
        ({"function": "f", "arguments": {}}, ActionRequestContent("f", {})),
        ({"request_id": "r", "result": None}, ActionResponseContent("r", None)),
        ({"error": "e"}, ActionResponseContent(error="e")),
    ],
    ids=lambda value: getattr(value, "kind", "") or "-".join(value) or "empty",
)
def test_a_dict_becomes_the_one_content_its_keys_belong_to(data: Any, content: Any) -> None:
    assert MessageContent.from_dict(data) == content
    assert Message(data).content == content


@pytest.mark.parametrize(
    "data",
    [
        {"colour": "red"},
        {"instruction": "x", "colour": "red"},
        {"instruction": "x", "system_message": "y"},
        {"function": "f", "result": 1},
        {"assistant_response": "x", "function": "f"},
        {"content": "x", "role": "user"},
        {1: "x"},
        {None: "x", "instruction": "y"},
    ],
    ids=str,
)
def test_a_dict_that_fits_no_single_content_is_refused_not_guessed(data: Any) -> None:
    for make in (MessageContent.from_dict, Message):
        with pytest.raises(InvalidTypeError) as caught:
            make(data)
        assert all(str(key) in str(caught.value) for key in data)


def test_a_stored_model_comes_back_as_its_schema_or_as_the_class_one_gives() -> None:
    content = InstructionContent("x", response_model=Analysis, tool_schemas=[Search])
    stored = content.to_dict()
    alone = InstructionContent.from_dict(stored)
    assert alone.response_model == ModelSchema("Analysis", Analysis.model_json_schema())
    assert alone.rendered == content.rendered
    assert alone.to_dict() == stored
    given = InstructionContent.from_dict(stored, {"Analysis": Analysis, "Search": Search})
    assert given == content
    some = InstructionContent.from_dict(stored, {"Search": Search})
    assert some.tool_schemas == [Search]
    assert isinstance(some.response_model, ModelSchema)


@pytest.mark.parametrize("models", [[Analysis], Analysis], ids=["list", "class"])
def test_models_must_be_given_by_name(models: Any) -> None:
    stored = InstructionContent("x", response_model=Analysis).to_dict()
    with pytest.raises(SennitError, match="models"):
        InstructionContent.from_dict(stored, models)


@pytest.mark.parametrize("data", [None, 5, "instruction", [("instruction", "x")]], ids=str)
def test_only_a_dict_of_fields_can_be_read(data: Any) -> None:
    for kind in (MessageContent, InstructionContent):
        with pytest.raises(SennitError):
            kind.from_dict(data)


def test_the_base_class_says_nothing_and_cannot_be_a_message() -> None:
    with pytest.raises(InvalidTypeError, match="five"):
        _ = MessageContent().rendered
    with pytest.raises(InvalidTypeError, match="five"):
        Message(MessageContent())


def test_unset_within_a_value_is_refused_rather_than_stored_as_a_word() -> None:
    with pytest.raises(SennitError, match="Unset"):
        ActionResponseContent(result={"rows": Unset})
