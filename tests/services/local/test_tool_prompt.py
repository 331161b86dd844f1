"""The form through which a local model calls tools, read in pieces of any size."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.services.local.tool_prompt import FormReader, call_text, tools_schema
from sennit.services.models.reply import Finished, FinishReason, Reply, ReplyAssembler

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def read(
    form: str, cuts: int = 1, *, reason: FinishReason = "stop", in_json: bool = False
) -> Reply:
    """The reply of a form that comes in pieces of `cuts` characters."""
    reader, assembly = FormReader(answers_in_json=in_json), ReplyAssembler()
    for start in range(0, len(form), cuts):
        for delta in reader.feed(form[start : start + cuts]):
            assembly.feed(delta)
    for delta in reader.end(reason):
        assembly.feed(delta)
    assembly.feed(Finished(reader.reason(reason)))
    return assembly.reply()


@given(TEXTS, st.integers(1, 20), st.booleans(), st.sampled_from([None, 2]))
def test_an_answer_is_the_text_whatever_the_pieces(
    text: str, cuts: int, ascii: bool, indent: int | None
) -> None:
    form = json.dumps({"answer": text}, ensure_ascii=ascii, indent=indent)
    reply = read(form, cuts)
    assert (reply.text, reply.finish, reply.calls) == (text, "stop", ())


@given(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=3), st.integers(1, 20), st.booleans())
def test_a_call_has_its_name_and_arguments_whatever_the_pieces(
    name: str, arguments: dict[str, object], cuts: int, indented: bool
) -> None:
    form = json.dumps({"tool": name, "arguments": arguments}, indent=2 if indented else None)
    (call,) = read(form, cuts).calls
    assert (call.name, json.loads(call.arguments)) == (name, arguments)
    assert call.id.startswith("call_")


@given(VALUES, st.integers(1, 20))
def test_an_answer_in_json_stays_json(value: object, cuts: int) -> None:
    reply = read(json.dumps({"answer": value}, indent=1), cuts, in_json=True)
    assert json.loads(reply.text) == value


def test_a_call_finishes_the_reply_as_other_providers_say_it() -> None:
    assert read(call_text("a", "{}")).finish == "tool_calls"


def test_a_call_cut_off_is_marked_so_that_nobody_runs_it() -> None:
    reply = read('{"tool": "a", "arguments": {"b": {"c": 1}', reason="length")
    assert reply.cut_off is not None
    assert reply.cut_off.arguments == '{"b": {"c": 1}'


def test_an_answer_cut_off_keeps_what_came() -> None:
    assert read('{"answer": "Good mor\\u00', reason="length").text == "Good mor"


@pytest.mark.parametrize("form", ["", "{", ' {"tool": "wea'])
def test_a_form_cut_off_before_it_says_anything_says_nothing(form: str) -> None:
    assert read(form, reason="length").items == ()


def test_a_reply_that_is_no_form_is_text() -> None:
    assert read("Good morning.").text == "Good morning."


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert read(r'{"answer": "a\ud800b\ud800\n"}').text == "a\ufffdb\ufffd\n"


def test_an_answer_streams_before_its_form_is_complete() -> None:
    reader = FormReader(answers_in_json=False)
    assert [list(reader.feed(piece)) for piece in ('{"ans', 'wer": "Go')][1] != []


def test_a_model_that_has_to_call_a_tool_has_no_form_to_answer_in() -> None:
    tool = ToolSchema("go", "", {"type": "object"})
    forms = tools_schema([tool], ModelSchema("Out", {"type": "object"}), may_answer=False)["anyOf"]
    assert [one["properties"]["tool"] for one in forms] == [{"const": "go"}]


def test_references_still_lead_to_their_definitions() -> None:
    parameters = {
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/Place"}, "next": {"$ref": "#"}, "$ref": {}},
        "$defs": {"Place": {"type": "string"}},
    }
    schema = tools_schema([ToolSchema("go", "", parameters)], ModelSchema("Out", {"$ref": "#/x"}))
    moved = schema["$defs"]["tool0"]["properties"]
    assert moved["to"] == {"$ref": "#/$defs/tool0/$defs/Place"}
    assert moved["next"] == {"$ref": "#/$defs/tool0"}
    assert schema["$defs"]["answer"] == {"$ref": "#/$defs/answer/x"}
    assert parameters["properties"] == {
        "to": {"$ref": "#/$defs/Place"},
        "next": {"$ref": "#"},
        "$ref": {},
    }
