"""How contents read: labelled sections, a little YAML, and every word that was put in."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    SystemContent,
)
from tests.strategies import (
    Analysis,
    Search,
    contents,
    json_dicts,
    json_lists,
    json_values,
    strings_in,
    texts,
)


def context(*items: Any) -> str:
    rendered = InstructionContent(context=list(items)).rendered
    assert isinstance(rendered, str)
    return rendered.removeprefix("Context:\n")


def test_sections_are_separated_by_one_blank_line() -> None:
    content = InstructionContent("Analyze this", ["Data point 1", "Data point 2"])
    expected = "Instruction: Analyze this\n\nContext:\n  - Data point 1\n  - Data point 2"
    assert content.rendered == expected


def test_a_whole_instruction_reads_from_top_to_bottom() -> None:
    content = InstructionContent("Go", ["a"], [Search, {"name": "ping"}], Analysis)
    assert content.rendered == dedent(
        """\
        Instruction: Go

        Context:
          - a

        Tools:
          Search:
            # Search for information.
            interface Search {
              query: string;
              max_results?: number;
            }
          ping:
            interface ping {}

        Output Types:
          interface Analysis {
            summary: string; // One sentence.
            score?: number;
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"summary": "...", "score": 0}
          ```

          Return ONLY valid JSON without markdown code blocks."""
    )


def test_a_multi_line_instruction_prints_as_plain_lines() -> None:
    said = "first: 'quoted'\n\n  - second\n# third: |"
    assert InstructionContent(said).rendered == f"Instruction: {said}"


def test_braces_in_a_model_do_not_confuse_the_response_format() -> None:
    schema: Any = {"title": "A", "properties": {"{example}": {"type": "string"}}}
    rendered = InstructionContent(response_model=schema).rendered
    assert '{"{example}": "..."}' in rendered


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["plain"], "  - plain"),
        (["key: value", "- dash", "null", "'q'"], "  - key: value\n  - - dash\n  - null\n  - 'q'"),
        ([""], '  - ""'),
        ([None, True, False, 5, 1.5], "  - null\n  - true\n  - false\n  - 5\n  - 1.5"),
        ([{}, []], "  - {}\n  - []"),
        (["a\nb\n\nc"], "  - a\n    b\n\n    c"),
        ([{"a": 1, "b": "x"}], "  - a: 1\n    b: x"),
        ([{"a": {"b": [1, 2]}}], "  - a:\n      b:\n        - 1\n        - 2"),
        ([[1, [2, 3]]], "  - - 1\n    - - 2\n      - 3"),
        ([{"a": [], "b": {}, "c": None}], "  - a: []\n    b: {}\n    c: null"),
        ([{"a": "x\ny"}], "  - a: |\n      x\n      y"),
        ([[{"a": 1}, {"b": 2}]], "  - - a: 1\n    - b: 2"),
    ],
)
def test_context_items_print_as_indented_yaml(items: list[Any], expected: str) -> None:
    assert context(*items) == expected


def test_arguments_print_below_the_function() -> None:
    content = ActionRequestContent("search", {"query": "quantum computing", "max_results": 5})
    expected = "function: search\narguments:\n  query: quantum computing\n  max_results: 5"
    assert content.rendered == expected


@pytest.mark.parametrize("content", [ActionRequestContent("f"), ActionRequestContent("f", {})])
def test_empty_arguments_print_as_braces(content: ActionRequestContent) -> None:
    assert content.rendered == "function: f\narguments: {}"


def test_a_result_prints_as_yaml() -> None:
    content = ActionResponseContent("req_123", {"papers": ["Paper 1", "Paper 2"]})
    assert content.rendered == (
        "success: true\nrequest_id: req_123\nresult:\n  papers:\n    - Paper 1\n    - Paper 2"
    )


def test_an_error_prints_instead_of_a_result() -> None:
    content = ActionResponseContent("r", result="half", error="API rate limit exceeded")
    assert content.rendered == "success: false\nrequest_id: r\nerror: API rate limit exceeded"


def test_an_unset_request_id_and_result_are_left_out() -> None:
    assert ActionResponseContent().rendered == "success: true"
    assert ActionResponseContent(error="no").rendered == "success: false\nerror: no"


@pytest.mark.parametrize("result", [0, False, "", None, [], {}])
def test_a_falsy_result_is_printed_all_the_same(result: Any) -> None:
    shown = {"0": "0", "False": "false", "": '""', "None": "null", "[]": "[]", "{}": "{}"}
    expected = f"success: true\nresult: {shown[str(result)]}"
    assert ActionResponseContent(result=result).rendered == expected


def test_nothing_set_renders_to_nothing() -> None:
    for content in (SystemContent(), InstructionContent(), AssistantResponseContent()):
        assert content.rendered == ""
        assert content.empty


def test_images_become_blocks_behind_the_text() -> None:
    content = InstructionContent("Look", images=["https://e.org/a.png"], image_detail="high")
    assert content.rendered == [
        {"type": "text", "text": "Instruction: Look"},
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "high"}},
    ]


def test_images_alone_have_no_text_block_and_auto_detail() -> None:
    content = InstructionContent(images=["https://e.org/a.png", "https://e.org/b.png"])
    assert content.rendered == [
        {"type": "image_url", "image_url": {"url": f"https://e.org/{name}.png", "detail": "auto"}}
        for name in "ab"
    ]


@pytest.mark.parametrize(
    "content",
    [
        InstructionContent("x\n\n"),
        InstructionContent("x", ["a\n"]),
        ActionResponseContent(result="x\n"),
        ActionRequestContent("f", {"a": "x\n\n"}),
        InstructionContent("x", response_model=Analysis),
    ],
    ids=repr,
)
def test_what_is_rendered_ends_without_a_newline(content: Any) -> None:
    assert not content.rendered.endswith("\n")


def test_a_key_that_would_break_the_lines_is_quoted() -> None:
    assert context({"a\nb": 1, "": 2}) == '  - "a\\nb": 1\n    "": 2'


@given(contents)
def test_rendering_gives_text_or_blocks_and_the_same_each_time(content: Any) -> None:
    rendered = content.rendered
    if isinstance(content, InstructionContent) and content.images:
        assert {block["type"] for block in rendered} <= {"text", "image_url"}
    else:
        assert isinstance(rendered, str)
    if not (isinstance(content, SystemContent) and content.system_datetime is True):
        assert content.rendered == rendered
    assert set(content.chat_msg) == {"role", "content"}


@given(texts)
def test_the_instruction_stands_in_the_text_as_it_is(said: str) -> None:
    rendered = InstructionContent(said, ["c"]).rendered
    words = said.rstrip("\n")
    assert rendered == (f"Instruction: {words}\n\n" if said else "") + "Context:\n  - c"


@given(json_lists, json_values, json_dicts)
def test_no_line_of_any_string_is_lost(items: list[Any], result: Any, arguments: Any) -> None:
    for content, value in (
        (InstructionContent(context=items), items),
        (ActionResponseContent(result=result), result),
        (ActionRequestContent("f", arguments), arguments),
    ):
        rendered = content.rendered
        for said in strings_in(value):
            assert all(line in rendered for line in said.split("\n"))


@given(json_lists.filter(bool))
def test_everything_in_a_context_is_indented_under_it(items: list[Any]) -> None:
    keyless = InstructionContent(context=[str(item) for item in items]).rendered
    assert isinstance(keyless, str)
    head, *lines = keyless.split("\n")
    assert head == "Context:"
    assert all(line.startswith("  ") or not line for line in lines)
    assert sum(bool(re.match("  -( |$)", line)) for line in lines) == len(items)


@given(st.lists(st.integers(), min_size=1, max_size=4).map(lambda ids: [i % 100 for i in ids]))
def test_nested_lists_show_every_item_once(numbers: list[int]) -> None:
    nested: Any = numbers
    for _ in range(3):
        nested = [nested]
    lines = context(nested).split("\n")
    assert [int(line.replace("-", " ")) for line in lines] == numbers
