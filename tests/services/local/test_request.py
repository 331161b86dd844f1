"""What a local model is sent: checked, in roles every template knows, with kind defaults."""

from __future__ import annotations

from typing import Any

import pytest

from sennit import FilePart, InstructionContent, Message, to_model_messages
from sennit.errors import InvalidTypeError, ModelError, ValidationError
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.services.local.request import body_of
from sennit.services.models.params import PARAMS
from sennit.services.models.request import ModelRequest

HELLO = {"role": "user", "content": "Hello"}
WEATHER = ToolSchema("weather", "The weather now", {"type": "object", "properties": {}})


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return body_of(ModelRequest(messages=messages, **more))


def sent(*messages: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["role"], one["content"]) for one in body(*messages)["messages"]]


def test_defaults_keep_a_tiny_model_from_rambling() -> None:
    made = body(HELLO)
    assert (made["temperature"], made["top_p"], made["repeat_penalty"]) == (0.2, 0.9, 1.15)
    assert made["max_tokens"] == 512
    assert made["messages"] == [HELLO]


def test_the_callers_parameters_win() -> None:
    params = {"temperature": 0, "max_tokens": 7, "stop": "x", "extra_body": {"repeat_penalty": 1}}
    made = body(HELLO, params=params)
    assert (made["temperature"], made["max_tokens"], made["repeat_penalty"]) == (0, 7, 1)
    assert made["stop"] == ["x"]


def test_every_known_parameter_is_taken_or_refused_by_name() -> None:
    fine = {
        "temperature": 1.5,
        "top_p": 0.5,
        "max_tokens": 1,
        "stop": ["a", "b"],
        "seed": 3,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.5,
        "timeout": 2,
        "parallel_tool_calls": True,
        "tool_choice": None,
        "reasoning": "off",
        "prompt_cache": True,
        "extra_body": {"top_k": 3},
    }
    assert body(HELLO, params=fine)["top_k"] == 3
    assert PARAMS.keys() - fine.keys() == {"extra_headers"}


@pytest.mark.parametrize(
    "params",
    [
        {"temprature": 1},
        {"temperature": -1},
        {"temperature": float("nan")},
        {"max_tokens": 0},
        {"seed": -1},
        {"stop": [""]},
        {"reasoning": "high"},
        {"extra_headers": {"X": "y"}},
        {"extra_body": {"messages": []}},
        {"extra_body": {"stream": False}},
    ],
)
def test_parameters_it_cannot_follow_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(params))):
        body(HELLO, params=params)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": "hot"},
        {"max_tokens": 1.5},
        {"timeout": True},
        {"extra_body": 1},
        {"parallel_tool_calls": 1},
    ],
)
def test_parameters_of_the_wrong_type_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidTypeError, match=next(iter(params))):
        body(HELLO, params=params)


def test_a_parameter_that_is_none_is_as_if_not_given() -> None:
    assert body(HELLO, params={"temperature": None, "timeout": None})["temperature"] == 0.2


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": ""}]])
def test_a_request_that_says_nothing_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError, match="at least one"):
        body(*messages)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "frog", "content": "x"},
        {"content": "x"},
        {"role": "user", "content": 3},
        {"role": "assistant", "tool_calls": [{"id": "a"}]},
    ],
)
def test_a_message_of_no_known_form_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        body(message)


def test_a_text_file_is_read_as_text() -> None:
    content = InstructionContent(instruction="Read.", files=[FilePart(b"a,b", "t.csv")])  # type: ignore[list-item]
    (message,) = body(*to_model_messages([Message(content)]))["messages"][-1:]
    assert message["content"] == "Read.\nt.csv\na,b"


def test_an_image_is_refused_as_the_model_reads_text_only() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(ModelError, match="text only") as caught:
        body({"role": "user", "content": [{"type": "text", "text": "See"}, image]})
    assert caught.value.kind == "bad_request"


def test_blocks_of_text_are_joined() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert sent({"role": "user", "content": blocks}) == [("user", "a\nb")]


def test_calls_and_results_are_shown_as_text_in_turns_that_alternate() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}},
        {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}},
    ]
    assert sent(
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "user", "content": "And now?"},
    ) == [
        ("user", "Hi"),
        (
            "assistant",
            'Let me look.\n{"tool": "weather", "arguments": {"a": 1}}\n'
            '{"tool": "time", "arguments": {}}',
        ),
        ("user", "Result of weather: rain\n\nResult of time: noon\n\nAnd now?"),
    ]


def test_tools_are_described_in_the_system_message() -> None:
    own = {"role": "system", "content": "Be brief."}
    told = body(own, HELLO, tools=(WEATHER,))["messages"]
    assert told[0]["content"].startswith("Be brief.\n\nYou can use tools.")
    assert "weather: The weather now" in told[0]["content"]
    assert body(HELLO, tools=(WEATHER,))["messages"][0]["role"] == "system"


def test_an_output_schema_may_refer_to_its_root_and_tools_bring_their_own_form() -> None:
    output = ModelSchema("Out", {"type": "object", "properties": {"more": {"$ref": "#"}}})
    made = body(HELLO, output=output)
    assert made["response_format"]["json_schema"]["schema"] == {
        "$ref": "#/$defs/answer",
        "$defs": {"answer": {"type": "object", "properties": {"more": {"$ref": "#/$defs/answer"}}}},
    }
    both = body(HELLO, output=output, tools=(WEATHER,))["response_format"]["json_schema"]["schema"]
    assert len(both["anyOf"]) == 2
    assert "response_format" not in body(HELLO)
