"""Plain data: copied all the way down, and whatever could not be stored is refused by place."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from pydantic import BaseModel

from sennit import SennitError
from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.json_values import MAX_DEPTH, plain, plain_dict, plain_list, validate_text
from tests.strategies import json_values, same, texts

UID = UUID("0190a5c2-7e4b-7c1d-8f2a-3b4c5d6e7f80")


class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    ALICE = "alice"


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"


class Cost(float):
    def __repr__(self) -> str:
        return "dear"


@dataclass
class Point:
    x: int
    y: list[int]


class Model(BaseModel):
    when: date
    point: tuple[int, int] = (1, 2)


def named(value: Any) -> str:
    return type(value).__name__


def nested(depth: int, make: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = make(value)
    return value


@given(json_values)
def test_json_values_stay_what_they_are(value: Any) -> None:
    assert same(plain(value, "it"), value)


@given(json_values)
def test_no_container_is_shared_with_what_was_given(value: Any) -> None:
    def containers(value: Any) -> list[int]:
        if not isinstance(value, (dict, list)):
            return []
        inner = value.values() if isinstance(value, dict) else value
        return [id(value), *(found for item in inner for found in containers(item))]

    copied = plain([value], "it")
    assert not set(containers(copied)) & set(containers(value))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (Colour.RED, "red"),
        (Colour.PAIR, [1, 2]),
        (Level.HIGH, 3),
        (Name.ALICE, "alice"),
        (Loud("quiet"), "quiet"),
        (Cost(1.5), 1.5),
        (UID, str(UID)),
        (Decimal("1.10"), "1.10"),
        (PurePosixPath("a/b"), "a/b"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (Point(1, [2]), {"x": 1, "y": [2]}),
        (Model(when=date(2026, 1, 2)), {"when": "2026-01-02", "point": [1, 2]}),
        ({1: "a", UID: "b", Colour.RED: "c"}, {"1": "a", str(UID): "b", "red": "c"}),
    ],
    ids=named,
)
def test_the_usual_python_values_become_their_json_form(value: Any, kept: Any) -> None:
    assert same(plain(value, "it"), kept)
    assert same(plain({"a": [value]}, "it"), {"a": [kept]})


REFUSED: list[tuple[Any, type[SennitError], str]] = [
    (math.nan, ValidationError, "nan"),
    (math.inf, ValidationError, "inf"),
    (-math.inf, ValidationError, "-inf"),
    (Cost("nan"), ValidationError, "nan"),
    (10**30, ValidationError, "64 bits"),
    (2**63, ValidationError, "64 bits"),
    (-(2**63) - 1, ValidationError, "64 bits"),
    (10**5000, ValidationError, "64 bits"),
    ("a\0b", ValidationError, "NUL character at position 1"),
    ("ab\ud800", ValidationError, r"lone surrogate '\ud800' at position 2"),
    (b"bytes", InvalidTypeError, "b'bytes'"),
    (bytearray(b"x"), InvalidTypeError, "bytearray"),
    (object, InvalidTypeError, "object"),
    (Point, InvalidTypeError, "Point"),
    (Model, InvalidTypeError, "Model"),
    (len, InvalidTypeError, "len"),
    (1j, InvalidTypeError, "1j"),
    (iter([]), InvalidTypeError, "iterator"),
    ({"a\0": 1}, ValidationError, "a key of"),
    ({"\udfff": 1}, ValidationError, "a key of"),
    ({1.5: 1}, InvalidTypeError, "1.5"),
    ({None: 1}, InvalidTypeError, "None"),
    ({True: 1}, InvalidTypeError, "True"),
    ({b"k": 1}, InvalidTypeError, "b'k'"),
    ({("a",): 1}, InvalidTypeError, "('a',)"),
    ({1: 1, "1": 2}, ValidationError, "two keys"),
]


@pytest.mark.parametrize(("value", "error", "words"), REFUSED, ids=named)
def test_what_cannot_be_stored_is_refused_by_name(
    value: Any, error: type[SennitError], words: str
) -> None:
    with pytest.raises(error) as caught:
        plain(value, "result")
    assert "result" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(("value", "error", "words"), REFUSED, ids=named)
def test_what_cannot_be_stored_is_refused_by_place(
    value: Any, error: type[SennitError], words: str
) -> None:
    with pytest.raises(error) as caught:
        plain({"rows": [1, {"cell": value}]}, "result")
    assert "result.rows[1].cell" in str(caught.value)
    assert words in str(caught.value)


def test_an_integer_key_of_any_size_is_kept_or_refused() -> None:
    with pytest.raises(SennitError, match="context"):
        plain({10**5000: 1}, "context")


def test_nesting_up_to_the_limit_is_kept() -> None:
    deepest = nested(MAX_DEPTH)
    assert plain(deepest, "it") == deepest
    assert plain_list(deepest, "it") == deepest


@pytest.mark.parametrize(
    "value",
    [
        nested(MAX_DEPTH + 1),
        nested(MAX_DEPTH + 1, lambda inner: {"a": inner}),
        nested(MAX_DEPTH + 1, lambda inner: (inner,)),
        nested(MAX_DEPTH + 1, lambda inner: MappingProxyType({"a": inner})),
        nested(MAX_DEPTH + 1, lambda inner: Point(1, inner)),
        nested(100_000),
    ],
    ids=["list", "dict", "tuple", "mapping", "dataclass", "bomb"],
)
def test_deeper_nesting_is_refused_with_a_short_message(value: Any) -> None:
    with pytest.raises(ValidationError, match="nested deeper than 100") as caught:
        plain(value, "context")
    assert str(caught.value).startswith("context")
    assert len(str(caught.value)) < 300


def test_cycles_are_refused() -> None:
    circle: list[Any] = []
    circle.append({"again": circle})
    loop: dict[str, Any] = {}
    loop["again"] = [loop]
    for value in (circle, loop):
        with pytest.raises(ValidationError, match="nested deeper"):
            plain(value, "context")


def test_the_same_list_twice_is_no_cycle_and_becomes_two_lists() -> None:
    row = [1]
    copied = plain([row, row], "it")
    assert copied == [[1], [1]]
    assert copied[0] is not copied[1]


@pytest.mark.parametrize(
    "check", [plain_dict, plain_list, validate_text], ids=lambda check: check.__name__
)
@pytest.mark.parametrize("value", [None, 5, b"x", object(), Colour.RED], ids=named)
def test_a_wrong_type_is_refused_by_name_and_value(check: Callable[..., Any], value: Any) -> None:
    with pytest.raises(InvalidTypeError, match="metadata must be a") as caught:
        check(value, "metadata")
    assert repr(value) in str(caught.value)


def test_a_string_is_no_list_and_a_list_is_no_dict() -> None:
    with pytest.raises(InvalidTypeError):
        plain_list("abc", "context")
    with pytest.raises(InvalidTypeError):
        plain_dict([("a", 1)], "arguments")


@pytest.mark.parametrize("check", [plain_dict, validate_text], ids=lambda check: check.__name__)
@pytest.mark.parametrize("value", [nested(100_000), 10**5000], ids=["deep", "long"])
def test_a_wrong_type_that_cannot_even_be_shown_is_refused_too(
    check: Callable[..., Any], value: Any
) -> None:
    with pytest.raises(InvalidTypeError, match="metadata"):
        check(value, "metadata")


def test_an_error_about_a_huge_value_stays_short() -> None:
    with pytest.raises(InvalidTypeError) as caught:
        plain({"a": b"x" * 1_000_000}, "result")
    assert len(str(caught.value)) < 500


def test_a_model_that_cannot_be_dumped_is_refused_by_place() -> None:
    class Holder(BaseModel):
        model_config = {"arbitrary_types_allowed": True}
        thing: object

    with pytest.raises(SennitError, match=r"result\.model"):
        plain({"model": Holder(thing=object())}, "result")


@pytest.mark.timeout(20)
def test_a_long_key_above_many_lists_is_read_in_linear_time() -> None:
    bomb = {"k" * 4_000_000: [[] for _ in range(300_000)]}
    assert plain(bomb, "context") == bomb


@given(texts)
def test_text_stays_as_it_is(value: str) -> None:
    assert validate_text(value, "it") == value
    assert type(validate_text(Loud(value), "it")) is str
    assert validate_text(Loud(value), "it") == value
