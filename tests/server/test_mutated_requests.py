"""Valid requests to both model APIs with something changed: answered, or refused with a 4xx.

Each refusal has the form of the API that was asked, and whatever comes as a stream ends as one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.http_server import Running, serving
from tests.server.test_hostile_requests import DEEP, Patient, places

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
URL = f"data:image/png;base64,{PNG}"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "sun", "arguments": '{"city":"x"}'},
}
CUSTOM = {"id": "call_2", "type": "custom", "custom": {"name": "run", "input": "1 + 1"}}
CHAT: dict[str, Any] = {
    "model": "talker",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "name": "ada",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "S25vdHMu"}},
            ],
        },
        {"role": "assistant", "content": "Hm.", "refusal": None, "tool_calls": [CALL, CUSTOM]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "2"}]},
        {"role": "user", "content": "Well?"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "sun", "parameters": SCHEMA, "strict": True}},
        {"type": "custom", "custom": {"name": "run", "format": {"type": "text"}}},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_completion_tokens": 100,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "reasoning_effort": "low",
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "stream_options": {"include_usage": True},
    "metadata": {"of": "ada"},
    "stream": True,
    "store": True,
    "n": 1,
    "verbosity": "low",
}
RESPONSES: dict[str, Any] = {
    "model": "talker",
    "instructions": "Be brief.",
    "input": [
        {"role": "system", "content": "Be kind."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": URL, "detail": "auto"},
                {"type": "input_file", "filename": "a.txt", "file_data": "S25vdHMu"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "Hm.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "sun", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "run", "input": "1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "Sunny."},
        {
            "type": "custom_tool_call_output",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "2"}],
        },
        {"role": "user", "content": "Well?"},
    ],
    "tools": [
        {"type": "function", "name": "sun", "parameters": SCHEMA, "strict": True},
        {"type": "custom", "name": "run", "format": {"type": "text"}},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "sun"}],
    },
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_output_tokens": 100,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"of": "ada"},
    "truncation": "auto",
    "store": True,
    "stream": True,
}
MESSAGES: dict[str, Any] = {
    "model": "talker",
    "max_tokens": 2000,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                },
                {
                    "type": "document",
                    "title": "A page",
                    "source": {"type": "text", "media_type": "text/plain", "data": "Ropes."},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "sun", "input": {"city": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "Sunny."}],
                },
                {"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ],
    "tools": [{"name": "sun", "description": "The forecast.", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "stop_sequences": ["END"],
    "temperature": 0.5,
    "top_k": 5,
    "metadata": {"user_id": "ada"},
    "stream": True,
}
COUNTED = {name: MESSAGES[name] for name in ("model", "system", "messages", "tools", "tool_choice")}
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": {**RESPONSES, "stream": None},
    "/v1/responses/compact": {"model": "talker", "input": RESPONSES["input"]},
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": COUNTED,
    "/v1/completions": {"model": "talker", "prompt": ["Once"], "max_tokens": 5, "stream": True},
    "/v1/conversations": {"items": RESPONSES["input"], "metadata": {"of": "ada"}},
}
ODD = st.one_of(
    st.sampled_from([None, True, 0, -1, 2**63, 10**400, 1e308, "", " ", "\0", "\ud800", DEEP]),
    st.sampled_from(["auto", "none", "data:,x", "data:image/png;base64,!", "call_1", "user"]),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "text", "role", "content", "id"]), inner)
        ),
        max_leaves=6,
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving(":memory:", models=[Patient()]) as running:
        yield running


@st.composite
def mutated(draw: st.DrawFn, valid: dict[str, Any]) -> dict[str, Any]:
    """A request with up to three values exchanged, left out, repeated or moved."""
    body = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        if not body:
            break
        *way, last = draw(st.sampled_from([one for one in places(body) if one]))
        holder: Any = body
        for key in way:
            holder = holder[key]
        change = draw(st.sampled_from(["exchange", "leave out", "repeat", "wrap", "add", "move"]))
        if change == "leave out":
            del holder[last]
        elif change == "repeat" and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        elif change == "wrap":
            holder[last] = draw(st.sampled_from([[holder[last]], {"type": holder[last]}]))
        elif change == "add" and isinstance(holder[last], dict):
            holder[last][draw(st.text(max_size=5))] = copy.deepcopy(draw(ODD))
        elif change == "move":
            other = draw(st.sampled_from([one for one in places(valid) if one]))
            value: Any = valid
            for key in other:
                value = value[key]
            holder[last] = copy.deepcopy(value)
        else:
            holder[last] = copy.deepcopy(draw(ODD))
    return body


def check(path: str, answer: httpx.Response, body: bytes) -> None:
    """What came is an answer, or says what was wrong as this API says it."""
    told = f"{answer.status_code} {answer.text[:300]} for {body[:2000]!r}"
    assert answer.headers["x-request-id"], told
    if answer.status_code >= 400:
        assert answer.status_code < 500, told
        error = answer.json()["error"]
        assert error["message"], told
        if path.startswith("/v1/messages"):
            assert answer.json()["type"] == "error", told
            assert error["type"] in ("invalid_request_error", "not_found_error"), told
        else:
            assert error["type"] in ("invalid_request_error", "not_found_error"), told
            assert {"code", "param"} <= error.keys(), told
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert "server_error" not in answer.text, told
        assert "api_error" not in answer.text, told
        assert answer.text.endswith("\n\n"), told


def send(server: Running, path: str, sent: dict[str, Any]) -> None:
    body = json.dumps(sent).encode()
    headers = {"content-type": "application/json"}
    check(path, server.http.post(path, content=body, headers=headers), body)


@pytest.mark.parametrize("path", REQUESTS)
def test_a_valid_request_is_answered(server: Running, path: str) -> None:
    answer = server.http.post(path, json=REQUESTS[path])
    assert answer.status_code == 200, answer.text
    assert "error" not in answer.text.replace('"error":null', ""), answer.text


@pytest.mark.parametrize("path", REQUESTS)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_a_mutated_request_is_answered_or_refused(
    server: Running, path: str, data: st.DataObject
) -> None:
    send(server, path, data.draw(mutated(REQUESTS[path])))
