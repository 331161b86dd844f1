"""The rules by which providers refuse a request, as far as they concern earlier replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_type_hints

import anthropic.types.beta as anthropic
import openai.types.responses as responses
from typing_extensions import is_typeddict

from tests.services.models.providers.kinds import literals


def misfits(value: Any, annotation: Any, path: str = "") -> Iterator[str]:
    """Fields of a request that the SDK's types do not have; providers refuse them."""
    types = _typed_dicts(annotation)
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from misfits(one, annotation, f"{path}[{index}]")
    if not isinstance(value, dict) or not types:
        return
    hints = [get_type_hints(one) for one in types]
    tag = value.get("type")
    hints = [one for one in hints if "type" not in one or tag in literals(one["type"])] or hints
    if tag is not None and not any(tag in literals(one.get("type")) for one in hints):
        return  # a kind that is new
    for name, field in value.items():
        known = [one[name] for one in hints if name in one]
        if not known:
            yield f"{path}.{name}"
        elif len(known) == 1:
            yield from misfits(field, known[0], f"{path}.{name}")


def _typed_dicts(annotation: Any) -> list[Any]:
    if is_typeddict(annotation):
        return [annotation]
    parts = [part for part in get_args(annotation) if not isinstance(part, str | int)]
    return [one for part in parts for one in _typed_dicts(part)]


def check_anthropic(body: Mapping[str, Any]) -> None:
    messages = body["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant"] * (len(messages) // 2) + [
        "user"
    ]
    known: set[str] = set()
    for said, answer in zip(messages[1::2], messages[2::2], strict=True):
        content: Any = said["content"]
        blocks: list[Any] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        assert list(misfits(blocks, anthropic.BetaContentBlockParam)) == []
        kinds = [block["type"] for block in blocks]
        thinking = [kind in ("thinking", "redacted_thinking") for kind in kinds]
        assert not any(thinking) or thinking[0] or "fallback" in kinds
        assert all(block["signature"] for block in blocks if block["type"] == "thinking")
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        calls = _ids(blocks, "tool_use", "id")
        results = _leading_results(answer["content"])
        assert sorted(calls) == sorted(results)
        server = {*_ids(blocks, "server_tool_use", "id"), *_ids(blocks, "mcp_tool_use", "id")}
        answered = {block["tool_use_id"] for block in blocks if "tool_use_id" in block}
        assert calls or server <= answered
        known |= server
        assert answered <= known


def _leading_results(content: Any) -> list[str]:
    blocks: list[Any] = [] if isinstance(content, str) else content
    results = _ids(blocks, "tool_result", "tool_use_id")
    assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
    return results


def _ids(blocks: Iterable[Any], kind: str, name: str) -> list[str]:
    return [block[name] for block in blocks if block["type"] == kind]


_RESULTS: Mapping[str, tuple[str, str]] = {
    "function_call": ("function_call_output", "call_id"),
    "custom_tool_call": ("custom_tool_call_output", "call_id"),
    "local_shell_call": ("local_shell_call_output", "id"),
    "shell_call": ("shell_call_output", "call_id"),
    "apply_patch_call": ("apply_patch_call_output", "call_id"),
    "computer_call": ("computer_call_output", "call_id"),
}


def check_responses(body: Mapping[str, Any]) -> None:
    items = body["input"]
    assert list(misfits(items, responses.ResponseInputItemParam)) == []
    for index, item in enumerate(items):
        kind = item.get("type")
        if kind in _RESULTS:
            type, name = _RESULTS[kind]
            later = [one for one in items[index:] if one.get("type") == type]
            results = [one for one in later if one[name] == item["call_id"]]
            assert len(results) == 1, f"no result of {item}"
            if kind == "function_call":
                assert results[0].get("caller") == item.get("caller")
        if kind == "reasoning":
            following = items[index + 1]
            assert following.get("type") != "reasoning" or "summary" in following
            assert following.get("role") != "user"
    ids = [item["id"] for item in items if item.get("id") and item.get("role") != "user"]
    assert len(ids) == len(set(ids))


def check_google(body: Mapping[str, Any]) -> None:
    contents = body["contents"]
    assert [one["role"] for one in contents] == ["user", "model"] * (len(contents) // 2) + ["user"]
    for said, answer in zip(contents[1::2], contents[2::2], strict=True):
        assert said["parts"]
        assert all(part for part in said["parts"])
        calls = [part["functionCall"] for part in said["parts"] if "functionCall" in part]
        results = [
            part["functionResponse"] for part in answer["parts"] if "functionResponse" in part
        ]
        assert [call["name"] for call in calls] == [result["name"] for result in results]
        assert [call.get("id") for call in calls] == [result.get("id") for result in results]


_COMMON = frozenset({"role", "content", "tool_calls"})
STRICT_FIELDS: Mapping[str, frozenset[str]] = {
    "openai": _COMMON | {"name", "refusal", "audio", "function_call"},
    "groq": _COMMON | {"name", "function_call", "reasoning"},
    "mistral": _COMMON | {"prefix"},
    "openrouter": _COMMON
    | {"name", "refusal", "audio", "images", "model", "annotations"}
    | {"reasoning", "reasoning_details"},
}
"""The fields of an assistant's message that a server takes; it refuses others."""


def check_chat(body: Mapping[str, Any], server: str = "openai") -> None:
    waiting: list[str] = []
    thought = False
    for message in body["messages"]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == [], "a call has no result"
        if message["role"] != "assistant":
            continue
        assert message.keys() <= STRICT_FIELDS.get(server, message.keys())
        calls = message.get("tool_calls") or ()
        assert message.get("content") or calls or message.keys() & {"audio", "refusal", "images"}
        assert all(call["id"] and "index" not in call for call in calls)
        thought = thought or "reasoning_content" in message
        if server == "deepseek" and thought and calls:
            assert "reasoning_content" in message
        assert message.get("audio", {"id": ""}).keys() == {"id"}
        waiting = [call["id"] for call in calls]
    assert waiting == []
