"""JSON as models write it, found and read; and whatever else they write, left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sennit.messages.lenient_json import values_in
from tests.json_values import json_values, scalars

containers = json_values.filter(lambda value: isinstance(value, dict | list))
prose = st.sampled_from(
    [
        "",
        "Sure! Here is the JSON you asked for:\n",
        "It's what I'd say; don't worry.\n\n",
        'He said "well" and left an open " behind.\n',
        "In braces {see below} and [so on], and {x}.\n",
        "A smiley :-} and a citation [1]. Note\n",
        "An open { in a text.\n",
        "# Heading\n\n- a point // not a comment\n\n",
        "≈ “curly” ‘quotes’, C:\\path\\n, 100 %\n",
    ]
)
fences = st.sampled_from(
    [("", ""), ("```json\n", "\n```"), ("```\n", "\n```\n"), ("````JSON \n", "````")]
)


@given(json_values, st.sampled_from([None, 0, 2]), st.booleans(), fences)
def test_any_json_value_comes_back_also_out_of_a_fence(
    value: Any, indent: int | None, ascii_only: bool, fence: tuple[str, str]
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert next(iter(values_in(f" {text}\n"))) == value
    if isinstance(value, dict | list):
        assert value in list(values_in(f"{fence[0]}{text}{fence[1]}"))


@given(containers, prose, fences, prose, st.sampled_from([None, 2]))
def test_any_json_value_comes_back_out_of_any_prose(
    value: Any, before: str, fence: tuple[str, str], after: str, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent)
    assert value in list(values_in(f"{before}{fence[0]}{text}{fence[1]}\n{after}"))


@given(st.dictionaries(st.text(max_size=5), scalars) | st.lists(scalars))
def test_what_python_prints_comes_back(value: Any) -> None:
    def plain(one: Any) -> bool:
        # A repr has escapes of its own for these, and JSON cannot hold them or not exactly.
        return not isinstance(one, str) or (one.isprintable() and "\\" not in one)

    parts = [*value.items()] if isinstance(value, dict) else [(one,) for one in value]
    if all(plain(one) for part in parts for one in part):
        assert list(values_in(repr(value))) == [value]


@given(st.text() | st.text("{}[]\"':,\\/*#`ab1- \n“”‘’", max_size=60))
@example("\ud800{")
@example('{"a": "\ud800"}')
@example('{"a": "\\ud800"}')
@example("[1e999]")
@example("{" * 3000 + "}" * 3000)
@example("[" * 3000 + "]" * 3000)
def test_no_text_makes_it_fail(text: str) -> None:
    for value in values_in(text):
        json.dumps(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("42", 42),
        ('"text"', "text"),
        ("null", None),
        ("```\n42\n```", 42),
        ('{"a": 1,}', {"a": 1}),
        ("[1, 2, ]", [1, 2]),
        ('{"a": [1, {"b": 2,},],}', {"a": [1, {"b": 2}]}),
        ("{'a': 'b'}", {"a": "b"}),
        ("{'a': 'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ("{“a”: “b”, ‘c’: ‘d’}", {"a": "b", "c": "d"}),
        ("{a: 1, $b-c: 2, über: 3}", {"a": 1, "$b-c": 2, "über": 3}),
        ("{1: 'x', true: 2}", {"1": "x", "true": 2}),
        ("{'a': True, 'b': False, 'c': None}", {"a": True, "b": False, "c": None}),
        ("[NaN, undefined]", [None, None]),
        ("[+1, .5, 5., 1_000, -.5e3]", [1, 0.5, 5.0, 1000, -500.0]),
        ('{"a": 1, // so\n "b": 2, # or so\n /* or\n so */ "c": 3}', {"a": 1, "b": 2, "c": 3}),
        ('{"url": "http://a/#b /* c */"}', {"url": "http://a/#b /* c */"}),
        ('{"text": "two\nlines\tand a tab"}', {"text": "two\nlines\tand a tab"}),
        ('{"pattern": "\\d+\\_\\u12"}', {"pattern": "\\d+\\_\\u12"}),
        ('{"code": "```js\\nx = {};\\n```"}', {"code": "```js\nx = {};\n```"}),
        ('{see {"a": 1}}', {"a": 1}),
        ('Use { to open.\n\n{"a": 1}', {"a": 1}),
        ('[\'tis the season]\n{"a": 1}', {"a": 1}),
        ('{"a": 1, oops {"b": 2}\n```json\n{"c": 3}\n```', {"c": 3}),
    ],
)
def test_the_usual_slips_are_forgiven(text: str, value: Any) -> None:
    assert list(values_in(text)) == [value]


def test_several_values_come_in_their_order() -> None:
    text = 'First {"a": 1}, then [2], and\n```json\n{"b": 3}\n```\n'
    assert list(values_in(text)) == [{"a": 1}, [2], {"b": 3}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No JSON here.",
        "Rather {prose} [than] data",
        '{"a": 1',
        '{"a": {"b": 1}',
        '{"a": {"b": 1}, "c": "cut o',
        '[{"a": 1}, {"a": 2}, {"a"',
        '{"a": 1]',
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        '{"a": , "b": 2}',
        "[1,, 2]",
        '{"a": 1, oops "inner": {"a": 2}}',
        '{"a": f(1), "b": {"a": 2}}',
        '{"a": 007}',
    ],
)
def test_half_an_answer_is_no_answer(text: str) -> None:
    assert list(values_in(text)) == []


@pytest.mark.parametrize(
    "piece",
    ["{", "[", '"', "'", '{"', '["', "[“", "{'", '{"a":1,', "[/*", "{a:[", "}", "```{", "[“\\”"],
)
def test_half_a_megabyte_of_a_hostile_text_comes_to_an_end(piece: str) -> None:
    # In proportion to its length that is a second at most; squared it would take hours.
    assert list(values_in(piece * (500_000 // len(piece)))) == []
