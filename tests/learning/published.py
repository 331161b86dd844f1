"""What the tools that read training files accept, written down from their documentation.

- OpenAI: the schemas FineTuneChatRequestInput and FineTunePreferenceRequestInput of its OpenAPI
  document 2.3.0, and the guides on supervised fine-tuning, vision and direct preference
  optimization (developers.openai.com, read in November 2026).
- ShareGPT's form as LLaMA-Factory reads it (its data/README.md, converter and formatter of 2026):
  questions and results in odd places, answers and calls in even ones, else the row is dropped.
- TRL: conversational preference and language-modeling datasets with tools (its page on dataset
  formats, versions 0.24 and 1.5).

Each function raises AssertionError for a row that would be refused or dropped.
"""

from __future__ import annotations

import json
import re
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def parsed(line: str) -> Any:
    """A line as strict JSON: no NaN, no Infinity, no half characters."""
    found = json.loads(line, parse_constant=_no_number)
    json.dumps(found, ensure_ascii=False).encode()
    return found


def _no_number(said: str) -> Any:
    raise AssertionError(f"{said} is no JSON")


def openai(row: dict[str, Any]) -> None:
    """A line of chat fine-tuning."""
    assert row.keys() <= {"messages", "tools", "parallel_tool_calls"}
    _openai_messages(row["messages"], _openai_tools(row))
    last = row["messages"][-1]
    assert last["role"] == "assistant", "the last message is what is learnt"
    weights = [m.get("weight", 1) for m in row["messages"] if m["role"] == "assistant"]
    assert any(weights), "something is learnt"


def openai_dpo(row: dict[str, Any]) -> None:
    """A line of preference fine-tuning: texts only, one message on each side."""
    assert row.keys() == {"input", "preferred_output", "non_preferred_output"}
    assert row["input"].keys() <= {"messages", "tools", "parallel_tool_calls"}
    _openai_messages(row["input"]["messages"], _openai_tools(row["input"]))
    assert row["input"]["messages"][-1]["role"] == "user"
    assert all(isinstance(m.get("content", ""), str) for m in row["input"]["messages"])
    for side in ("preferred_output", "non_preferred_output"):
        [answer] = row[side]
        assert answer.keys() == {"role", "content"}
        assert answer["role"] == "assistant"
        _text(answer["content"])


def _openai_tools(row: dict[str, Any]) -> set[str]:
    tools = row.get("tools", [])
    assert "tools" not in row or 1 <= len(tools) <= 128
    names = [_tool(tool) for tool in tools]
    assert len(set(names)) == len(names)
    return set(names)


def _tool(tool: dict[str, Any]) -> str:
    assert tool.keys() == {"type", "function"}
    assert tool["type"] == "function"
    return _function(tool["function"])


def _function(function: dict[str, Any]) -> str:
    assert function.keys() <= {"name", "description", "parameters", "strict"}
    assert NAME.fullmatch(function["name"])
    assert isinstance(function.get("description", ""), str)
    assert function["parameters"]["type"] == "object"
    assert all(isinstance(one, dict) for one in function["parameters"]["properties"].values())
    return function["name"]


def _openai_messages(messages: list[dict[str, Any]], tools: set[str]) -> None:
    assert messages
    waiting: list[str] = []
    for message in messages:
        assert None not in message.values()
        if message["role"] == "tool":
            assert message.keys() == {"role", "tool_call_id", "content"}
            assert isinstance(message["content"], str)
            assert message["tool_call_id"] == waiting.pop(0), "results follow their calls"
            continue
        assert not waiting, "every call has its result"
        if message["role"] == "assistant":
            waiting = _openai_answer(message, tools)
        else:
            assert message["role"] in ("system", "user")
            assert message.keys() == {"role", "content"}
            _openai_content(message)


def _openai_answer(message: dict[str, Any], tools: set[str]) -> list[str]:
    assert message.keys() <= {"role", "content", "tool_calls", "weight"}
    assert message.get("weight", 1) in (0, 1)
    calls = message.get("tool_calls", [])
    assert "content" in message or calls
    if "content" in message:
        _text(message["content"])
    for call in calls:
        assert call.keys() == {"id", "type", "function"}
        assert call["type"] == "function"
        assert call["function"].keys() == {"name", "arguments"}
        assert call["function"]["name"] in tools
        assert isinstance(parsed(call["function"]["arguments"]), dict)
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == len(ids)
    return ids


def _openai_content(message: dict[str, Any]) -> None:
    if isinstance(message["content"], str):
        _text(message["content"])
        return
    assert message["role"] == "user", "only users show pictures"
    assert message["content"]
    for block in message["content"]:
        if block["type"] == "text":
            assert block.keys() == {"type", "text"}
            _text(block["text"])
        else:
            assert block.keys() == {"type", "image_url"}
            assert block["image_url"].keys() <= {"url", "detail"}
            assert re.match("https?://", block["image_url"]["url"])
            assert block["image_url"].get("detail", "auto") in ("auto", "low", "high")


def _text(said: Any) -> None:
    assert isinstance(said, str)
    assert said.strip()


def sharegpt(row: dict[str, Any]) -> None:
    """A row of ShareGPT's form."""
    assert row.keys() <= {"conversations", "system", "tools", "images"}
    lines = row["conversations"]
    assert lines
    assert len(lines) % 2 == 0
    for at, line in enumerate(lines):
        assert line.keys() == {"from", "value"}
        assert isinstance(line["value"], str)
        allowed = ("gpt", "function_call") if at % 2 else ("human", "observation")
        assert line["from"] in allowed
        if line["from"] == "function_call":
            called = parsed(line["value"])
            for call in called if isinstance(called, list) else [called]:
                assert isinstance(call["name"], str)
                assert isinstance(call["arguments"], dict)
        elif line["from"] != "observation":
            _text(line["value"])
    if "system" in row:
        _text(row["system"])
    if "tools" in row:
        assert [_function(tool) for tool in parsed(row["tools"])]
    if "images" in row:
        assert sum(line["value"].count("<image>") for line in lines) == len(row["images"])


def templates(row: dict[str, Any]) -> None:
    """A row of messages as chat templates take them, with tools."""
    assert row.keys() <= {"messages", "tools"}
    _template_messages(row["messages"])
    assert row["messages"][-1]["role"] == "assistant"
    _openai_tools(row)


def dpo(row: dict[str, Any]) -> None:
    """A row of a conversational preference dataset."""
    assert {"prompt", "chosen", "rejected"} <= row.keys()
    assert row.keys() <= {
        "prompt", "chosen", "rejected", "score_chosen", "score_rejected", "tools",
    }  # fmt: skip
    assert row["prompt"][-1]["role"] == "user"
    assert row["chosen"] != row["rejected"]
    for side in ("chosen", "rejected"):
        _template_messages([*row["prompt"], *row[side]])
        assert row[side][-1]["role"] == "assistant"
    _openai_tools(row)


def _template_messages(messages: list[dict[str, Any]]) -> None:
    assert messages
    for message in messages:
        assert message["role"] in ("system", "user", "assistant", "tool")
        assert isinstance(message["content"], str)
        if message["role"] == "tool":
            assert NAME.fullmatch(message["name"])
        for call in message.get("tool_calls", []):
            assert isinstance(call["function"]["arguments"], dict)


def dspy(row: dict[str, Any]) -> None:
    """An example with inputs and outputs."""
    assert row.keys() == {"inputs", "outputs", "messages", "score"}
    assert row["inputs"].keys() == {"history", "question"}
    assert row["outputs"].keys() == {"answer"}
    _text(row["inputs"]["question"])
    _text(row["outputs"]["answer"])


CHECKS = {
    "openai": openai,
    "openai-dpo": openai_dpo,
    "sharegpt": sharegpt,
    "tools": templates,
    "dpo": dpo,
    "dspy": dspy,
}
