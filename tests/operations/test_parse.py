"""parse: from a text to a checked value, with a model's help if need be."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import AccessError, InvalidTypeError, ModelError, OutputError, ValidationError
from sennit.messages.output_schema import ModelSchema
from sennit.testing import ScriptedModel
from tests.conducting import Answer, result_of, session_with
from tests.models import failure

SCHEMA = {"title": "Answer", "type": "object", "required": ["value"]}


def parsed(text: Any, *services: Any, form: Any = Answer, **params: Any) -> Any:
    return result_of(session_with(*services), "parse", text=text, response_model=form, **params)


@pytest.mark.parametrize(
    "text",
    [
        '{"value": 1}',
        'Sure!\n```json\n{"value": 1}\n```\nAnything else?',
        "{'value': 1,} // so",
        '{"thought": "hm"} and so {"value": 1}',
        '{"value": "1"}',
    ],
)
def test_a_value_is_found_and_becomes_an_instance_of_the_class(text: str) -> None:
    assert parsed(text) == Answer(value=1)


@pytest.mark.parametrize("form", [SCHEMA, ModelSchema("Answer", SCHEMA)], ids=["dict", "schema"])
def test_of_a_bare_schema_it_becomes_plain_data(form: Any) -> None:
    assert parsed('Here: {"value": 1}', form=form) == {"value": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("No idea.", "there is no complete JSON value in it"),
        ('{"value": 1', "there is no complete JSON value in it"),
        ('{"value": "one"}', "value: Input should be a valid integer"),
        ('{"valeu": 1}', "value: Field required"),
    ],
)
def test_without_a_model_what_does_not_fit_is_an_output_error(text: str, problem: str) -> None:
    with pytest.raises(OutputError, match="does not fit 'Answer'") as caught:
        parsed(text)
    assert caught.value.problems[0].startswith(problem)
    assert caught.value.said == text


@given(st.text())
def test_no_text_raises_anything_but_an_output_error(text: str) -> None:
    with suppress(OutputError):
        parsed(text, form={"title": "Answer"})


def test_a_model_is_asked_only_if_nothing_fits() -> None:
    model = ScriptedModel(['{"value": 3}'])
    assert parsed('{"value": 1}', model, imodel="scripted") == Answer(value=1)
    assert model.requests == []
    assert parsed("It is three.", model, imodel="scripted", temperature=0) == Answer(value=3)
    asked = model.requests[0]
    assert asked.params == {"temperature": 0}
    assert "It is three." in asked.messages[0]["content"]
    assert "interface Answer" in asked.messages[0]["content"]


def test_the_model_is_told_what_was_wrong_as_often_as_repairs_say() -> None:
    model = ScriptedModel(["four", '{"value": 4}'])
    assert parsed("It is four.", model, imodel=model) == Answer(value=4)
    with pytest.raises(OutputError, match="asked 1 times"):
        parsed("five", ScriptedModel(["five"]), imodel="scripted", repairs=0)


def test_a_model_that_fails_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="overloaded"):
        parsed("It is four.", ScriptedModel([failure()]), imodel="scripted")


def test_nothing_is_stored() -> None:
    session = session_with(ScriptedModel(['{"value": 3}']))
    result_of(session, "parse", text="three", response_model=Answer, imodel="scripted")
    assert len(session.messages) == 0


def test_no_model_is_used_unless_it_is_named() -> None:
    model = ScriptedModel([])
    with pytest.raises(OutputError):
        parsed("It is three.", model)
    assert model.requests == []


def test_bad_arguments_are_refused() -> None:
    for repairs in (-1, 1.5, True, "2"):
        with pytest.raises(ValidationError, match="repairs must be a whole number"):
            parsed("{}", repairs=repairs)
    with pytest.raises(InvalidTypeError, match="text must be a string, got 5"):
        parsed(5)
    with pytest.raises(InvalidTypeError, match="response_model must be"):
        parsed("{}", form=5)


def test_the_form_must_be_granted() -> None:
    with pytest.raises(AccessError, match="'Secret'"):
        parsed("{}", form={"title": "Secret"})
