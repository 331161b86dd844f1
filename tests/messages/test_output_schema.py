"""Models: a class in the running program, a name and a schema at rest, the same text either way."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from sennit import InstructionContent, SennitError
from sennit.errors import InvalidTypeError
from sennit.messages.output_schema import ModelSchema, as_model, is_model, model_name, model_schema
from tests.strategies import Analysis, Tree


def test_a_model_is_a_pydantic_class_or_a_model_schema() -> None:
    assert is_model(Analysis)
    assert is_model(ModelSchema("A", {}))
    for other in (None, "Analysis", {}, int, Analysis(summary="x"), BaseModel.model_json_schema):
        assert not is_model(other)


def test_a_class_is_its_own_model() -> None:
    assert as_model(Analysis, "response_model") is Analysis
    assert model_name(Analysis) == "Analysis"
    assert model_schema(Analysis) == Analysis.model_json_schema()


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"title": "Point", "type": "object"}, "Point"),
        ({"type": "object"}, "Output"),
        ({"title": ""}, "Output"),
        ({}, "Output"),
    ],
)
def test_a_json_schema_goes_by_its_title(schema: dict[str, Any], name: str) -> None:
    model = as_model(schema, "response_model")
    assert model == ModelSchema(name, schema)
    assert model_name(model) == name
    assert model_schema(model) == schema


@pytest.mark.parametrize(
    "value",
    [5, "Analysis", [Analysis], int, object, None, Analysis(summary="x")],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidTypeError, match="response_model must be a pydantic model class"):
        as_model(value, "response_model")


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (5, {}),
        (None, {}),
        ("a\0", {}),
        ("\ud800", {}),
        ("A", []),
        ("A", None),
        ("A", {"x": 1j}),
    ],
    ids=ascii,
)
def test_a_model_schema_is_checked(name: Any, schema: Any) -> None:
    with pytest.raises(SennitError, match="schema"):
        ModelSchema(name, schema)


def test_a_model_schema_is_frozen_and_keeps_a_copy() -> None:
    given: dict[str, Any] = {"properties": {"a": {}}}
    model = ModelSchema("A", given)
    given["properties"]["b"] = {}
    assert model.schema == {"properties": {"a": {}}}
    with pytest.raises(FrozenInstanceError):
        model.name = "B"  # type: ignore[misc]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_model_schema_survives_copying(copied: Any) -> None:
    model = ModelSchema("A", {"properties": {"a": {}}})
    assert copied(model) == model


def test_a_class_and_its_schema_render_to_the_same_text() -> None:
    for model in (Analysis, Tree):
        stored = ModelSchema(model.__name__, model.model_json_schema())
        as_class = InstructionContent("x", tool_schemas=[model], response_model=model)
        at_rest = InstructionContent("x", tool_schemas=[stored], response_model=stored)
        assert as_class.rendered == at_rest.rendered
        assert as_class.to_dict() == at_rest.to_dict()


def test_the_schema_of_a_class_is_made_once_and_does_not_keep_the_class_alive() -> None:
    model: Any = create_model("Passing", x=(int, ...))
    assert model_schema(model) is model_schema(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_two_classes_of_one_name_keep_their_own_schemas() -> None:
    one, other = create_model("Same", a=(int, ...)), create_model("Same", b=(str, ...))
    assert model_schema(one) != model_schema(other)
