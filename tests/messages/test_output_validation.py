"""Values checked against a form, and the JSON schemas that are understood."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from sennit import OutputError
from sennit.messages.output_schema import ModelSchema
from sennit.messages.output_validation import problems_with, validate_output
from tests.json_values import json_values


def problems(value: Any, schema: dict[str, Any]) -> list[str]:
    return problems_with(value, ModelSchema("Form", schema))


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Rich(BaseModel):
    model_config = ConfigDict(extra="forbid")

    colour: Colour
    mode: Literal["fast", "slow"] = "fast"
    tree: Tree
    counts: dict[str, int] = {}
    pair: tuple[int, str] | None = None
    share: float = Field(0.5, gt=0, le=1)
    name: str = Field("x", min_length=1, max_length=5)
    tags: list[str] = Field([], max_length=2)


GOOD = {"colour": "red", "tree": {"value": 1, "children": [{"value": 2}]}}


@pytest.mark.parametrize("form", [Rich, ModelSchema("Rich", Rich.model_json_schema())])
@pytest.mark.parametrize(
    "change",
    [
        {"colour": "blue"},
        {"colour": None},
        {"mode": "slower"},
        {"tree": {"value": 1, "children": [{"value": 2, "children": [{}]}]}},
        {"tree": []},
        {"counts": {"a": "b"}},
        {"pair": [1, 2]},
        {"pair": {}},
        {"share": 0},
        {"share": 1.5},
        {"share": "much"},
        {"name": ""},
        {"name": "too long"},
        {"tags": ["a", "b", "c"]},
        {"tags": "a"},
        {"other": 1},
    ],
    ids=str,
)
def test_class_and_schema_refuse_the_same(form: Any, change: dict[str, Any]) -> None:
    assert problems_with(GOOD, form) == []
    assert problems_with({**GOOD, "mode": "slow", "pair": [1, "a"], "share": 1}, form) == []
    told = problems_with(GOOD | change, form)
    assert told
    assert told[0].startswith(next(iter(change)))


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "integer"}, 1.5, "the value: must be integer"),
        ({"type": "integer"}, True, "the value: must be integer"),
        ({"type": ["string", "null"]}, 1, "the value: must be string or null"),
        ({"enum": ["a", 1]}, "b", "the value: must be one of ['a', 1]"),
        ({"const": 1}, True, "the value: must be 1"),
        ({"required": ["a"]}, {}, "a: is missing"),
        ({"properties": {"a": False}}, {"a": 1}, "a: is not a known field"),
        ({"properties": {}, "additionalProperties": False}, {"b": 1}, "b: is not a known field"),
        ({"additionalProperties": {"type": "string"}}, {"b": 1}, "b: must be string"),
        ({"items": {"type": "string"}}, ["a", 1], "1: must be string"),
        ({"items": False}, [1], "0: no value is allowed here"),
        ({"prefixItems": [{"type": "string"}], "items": False}, [1], "0: must be string"),
        ({"properties": {"a": {"items": {"required": ["b"]}}}}, {"a": [{}]}, "a.0.b: is missing"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "the value: must be string"),
        ({"oneOf": [{"type": "string"}]}, 1, "the value: must be string"),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, 1, "the value: must be at least 2"),
        ({"exclusiveMinimum": 1}, 1, "the value: must be more than 1"),
        ({"exclusiveMaximum": 1}, 1, "the value: must be less than 1"),
        ({"maximum": 1}, 2, "the value: must be at most 1"),
        ({"minLength": 2}, "a", "the value: must have at least 2 characters"),
        ({"maxItems": 1}, [1, 2], "the value: must have at most 1 items"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, 1, "the value: must be string"),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": False}}, 1, "the value: no value is"),
    ],
    ids=str,
)
def test_a_problem_names_the_place_and_what_belongs_there(
    schema: dict[str, Any], value: Any, told: str
) -> None:
    (problem,) = problems(value, schema)
    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, {"anything": [1]}),
        ({"type": "integer"}, 10**400),
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 10**400),
        ({"const": 1}, 1.0),
        ({"enum": [None]}, None),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 1}),
        ({"format": "email", "pattern": "(a+)+$"}, "a" * 50 + "!"),
        ({"$ref": "https://example.com/schema.json"}, 1),
        ({"$ref": "#/nowhere"}, 1),
    ],
    ids=str,
)
def test_what_is_not_understood_asks_for_nothing(schema: dict[str, Any], value: Any) -> None:
    assert problems(value, schema) == []


@given(json_values, json_values)
def test_no_schema_however_odd_makes_it_fail(schema: Any, value: Any) -> None:
    for word in ("type", "enum", "required", "properties", "items", "prefixItems", "anyOf"):
        problems(value, {word: schema, "additionalProperties": schema, "minimum": schema})
        problems([value], {"items": {word: schema}})
    problems(value, {"$ref": schema, "allOf": schema, "const": schema, "minLength": schema})


def test_a_schema_that_leads_to_itself_comes_to_an_end() -> None:
    ring = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert problems(1, ring) == []
    twice = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "string"}
    assert set(problems(1, twice)) == {"the value: must be string"}


def test_a_schema_with_endless_ways_to_the_same_place_is_walked_once() -> None:
    definitions = {
        f"n{number}": {"anyOf": [{"$ref": f"#/$defs/n{number + 1}"}] * 3} for number in range(60)
    }
    schema = {"$ref": "#/$defs/n0", "$defs": definitions | {"n60": {"type": "string"}}}
    assert problems(1, schema) == ["the value: must be string"]


def test_a_value_nested_too_deeply_is_a_problem_and_no_crash() -> None:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    assert problems(value, {"items": {"$ref": "#"}}) == [
        "the value: is nested too deeply to be checked"
    ]


def test_places_with_dots_in_their_names_are_told_apart() -> None:
    schema = {
        "properties": {
            "a.b": {"$ref": "#/$defs/s"},
            "a": {"properties": {"b": {"$ref": "#/$defs/s"}}},
        },
        "$defs": {"s": {"type": "string"}},
    }
    assert problems({"a.b": "x", "a": {"b": 1}}, schema) == ["a.b: must be string"]


@pytest.mark.parametrize("form", [Tree, ModelSchema("Tree", Tree.model_json_schema())])
def test_only_the_first_few_problems_are_told(form: Any) -> None:
    told = problems_with({"value": 1, "children": [{}] * 1000}, form)
    assert len(told) == 9
    assert told[-1] == "and more"


def test_the_first_value_that_fits_is_taken_and_the_last_one_that_does_not_is_told_of() -> None:
    text = 'First {"x": 1}, then {"value": 2}, then {"value": 3}'
    assert validate_output(text, Tree) == Tree(value=2)
    with pytest.raises(OutputError) as caught:
        validate_output('First {"x": 1}, then {"value": "two"}', Tree)
    (problem,) = caught.value.problems
    assert problem.startswith("value: Input should be a valid integer")


FIELDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (str, st.text(max_size=5)),
    "whole": (int, st.integers()),
    "part": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "flag": (bool, st.booleans()),
    "maybe": (str | None, st.none() | st.text(max_size=5)),
    "many": (list[int], st.lists(st.integers(), max_size=3)),
    "named": (dict[str, bool], st.dictionaries(st.text(max_size=3), st.booleans(), max_size=2)),
    "mode": (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    "either": (int | list[str], st.integers() | st.lists(st.text(max_size=2), max_size=2)),
    "tree": (Tree, st.just({"value": 1, "children": [{"value": 2, "children": []}]})),
}


def _no_whole_floats(value: Any) -> Any:
    """To JSON schema 2.0 is an integer; to pydantic, when it is strict, it is not."""
    if isinstance(value, float) and value.is_integer():
        return 0.5
    if isinstance(value, list):
        return [_no_whole_floats(one) for one in value]
    if isinstance(value, dict):
        return {name: _no_whole_floats(one) for name, one in value.items()}
    return value


@given(st.data(), st.sets(st.sampled_from(sorted(FIELDS))), json_values.map(_no_whole_floats))
def test_it_agrees_with_pydantic(data: st.DataObject, names: set[str], odd: Any) -> None:
    fields: Any = {name: (FIELDS[name][0], ...) for name in names}
    form = create_model("Form", __config__=ConfigDict(strict=True, extra="forbid"), **fields)
    value = {name: data.draw(FIELDS[name][1]) for name in names}
    if names and data.draw(st.booleans()):
        value[data.draw(st.sampled_from(sorted(names)))] = odd
    assert bool(problems(value, form.model_json_schema())) == _refuses(form, value)


def _refuses(form: type[BaseModel], value: Any) -> bool:
    try:
        form.model_validate(value, strict=True)
    except ValidationError:
        return True
    return False
