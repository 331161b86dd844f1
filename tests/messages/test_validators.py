"""Every field refuses what it cannot hold, by its own name, however the content is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    Message,
    MessageContent,
    SennitError,
    SystemContent,
)

DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]
CYCLE: dict[str, Any] = {}
CYCLE["again"] = [CYCLE]

NOT_TEXT: list[Any] = [5, 1.5, True, b"x", ["x"], {"a": 1}, object(), "a\0", "\ud800"]
NOT_PLAIN: list[Any] = [
    *(math.nan, math.inf, 10**30, "a\0", "\udfff", object(), b"x", int, DEEP, CYCLE),
    *({1.5: 1}, {"\0": 1}, {"\ud800": 1}, {1: 1, "1": 1}),
]
NOT_A_LIST: list[Any] = [5, "x", {"a": 1}, b"x", object(), {1, 2}, True]
NOT_A_DICT: list[Any] = [5, "x", ["a"], b"x", object(), {1, 2}, True]
NOT_AN_IMAGE: list[Any] = [
    *("file:///etc/passwd", "javascript:alert(1)", "data:image/png;base64,AA", "http://", "a.png"),
    *("http://user:hunter2@e.org/", "http://e.org/\0", "http://e.org/\x1b", "http://e.org/ x"),
    *("http://e.org\\x", "http://e.org:port/", "http://e.org:99999/", "http://e.org/\ud800"),
    *(5, None, b"http://e.org"),
]

WRONG: list[tuple[type[MessageContent], str, list[Any]]] = [
    (SystemContent, "system_message", NOT_TEXT),
    (SystemContent, "system_datetime", [False, 5, 1.5, b"x", ["x"], object(), "\0", "\ud800"]),
    (SystemContent, "datetime_factory", [5, "noon", ["x"], object()]),
    (InstructionContent, "instruction", NOT_TEXT),
    (InstructionContent, "context", [*NOT_A_LIST, *([value] for value in NOT_PLAIN)]),
    (InstructionContent, "tool_schemas", [*NOT_A_LIST, ["x"], [5], [int], [None]]),
    (InstructionContent, "tool_schemas", [[{"a": value}] for value in NOT_PLAIN]),
    (InstructionContent, "response_model", [5, "Analysis", ["x"], int, object()]),
    (InstructionContent, "response_model", [{"a": value} for value in NOT_PLAIN]),
    (InstructionContent, "images", [*NOT_A_LIST, *([value] for value in NOT_AN_IMAGE)]),
    (InstructionContent, "image_detail", ["medium", "HIGH", "", 5, True, ["low"], object()]),
    (AssistantResponseContent, "assistant_response", NOT_TEXT),
    (AssistantResponseContent, "reasoning", NOT_TEXT),
    (ActionRequestContent, "function", NOT_TEXT),
    (ActionRequestContent, "arguments", [*NOT_A_DICT, *({"a": value} for value in NOT_PLAIN)]),
    (ActionRequestContent, "call_id", NOT_TEXT),
    (ActionResponseContent, "request_id", NOT_TEXT),
    (ActionResponseContent, "result", [*NOT_PLAIN, *({"a": [value]} for value in NOT_PLAIN)]),
    (ActionResponseContent, "error", NOT_TEXT),
]
FIELDS = list(dict.fromkeys((kind, name) for kind, name, _ in WRONG))
WAYS: list[Callable[[Any, dict[str, Any]], Any]] = [
    lambda kind, fields: kind(**fields),
    lambda kind, fields: kind.create(**fields),
    lambda kind, fields: kind.from_dict(fields),
    lambda kind, fields: kind().with_updates(**fields),
    lambda kind, fields: Message(fields),
]


def assert_refused(kind: type[MessageContent], name: str, value: Any) -> None:
    for make in WAYS:
        with pytest.raises(SennitError) as caught:
            make(kind, {name: value})
        said = str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert name in said or (name == "images" and "Image URL" in said) or "schema" in said
        assert len(said) < 1000
        assert "hunter2" not in said


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        pytest.param(kind, name, value, id=f"{name}-{number}")
        for kind, name, values in WRONG
        for number, value in enumerate(values)
    ],
)
def test_a_wrong_value_is_refused_by_name_however_the_content_is_made(
    kind: type[MessageContent], name: str, value: Any
) -> None:
    assert_refused(kind, name, value)


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: getattr(value, "kind", value))
def test_a_wrong_value_too_deep_or_too_long_to_show_is_refused_too(
    kind: type[MessageContent], name: str
) -> None:
    assert_refused(kind, name, {"a": DEEP} if name in ("context", "images") else DEEP)
    assert_refused(kind, name, 10**5000)


@pytest.mark.parametrize("kind", dict(FIELDS), ids=lambda kind: kind.kind)
def test_an_unknown_field_is_a_type_error_that_names_it(kind: type[MessageContent]) -> None:
    for make in WAYS:
        with pytest.raises(TypeError, match="colour"):
            make(kind, {"colour": "red"})


@pytest.mark.parametrize("name", ["role", "kind", "checks", "_cached", "rendered", "success"])
def test_what_a_content_derives_is_no_field_of_it(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        WAYS[3](ActionResponseContent, {name: "x"})
    with pytest.raises(TypeError, match=name):
        WAYS[2](ActionResponseContent, {name: "x"})
