"""Each parameter of the official SDKs has an effect, is ignored by name, or is refused by name.

The parameters are those in the types of the installed SDKs, so a parameter that a new version adds
fails here until somebody decides what becomes of it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import pytest
from anthropic.types.beta import message_create_params as beta_messages
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from tests.http_server import Talker, serving

Verdict: TypeAlias = Literal["effect", "ignored", "refused"]
Table: TypeAlias = dict[str, tuple[Verdict, Any]]

CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": {"type": "object"}}
USER = [{"role": "user", "content": "Tie it."}]
COMMON: Table = {
    "metadata": ("effect", {"topic": "knots"}),
    "model": ("effect", "sage"),
    "parallel_tool_calls": ("effect", True),
    "presence_penalty": ("effect", 0.5),
    "frequency_penalty": ("effect", 0.5),
    "store": ("effect", True),
    "temperature": ("effect", 0.5),
    "top_p": ("effect", 0.5),
    "prompt_cache_key": ("ignored", "key"),
    "prompt_cache_options": ("ignored", {"mode": "explicit"}),
    "prompt_cache_retention": ("ignored", "24h"),
    "safety_identifier": ("ignored", "abc"),
    "service_tier": ("ignored", "priority"),
    "user": ("ignored", "ann"),
    "stream_options": ("ignored", {"include_obfuscation": True}),
    "moderation": ("refused", {"model": "omni-moderation-latest"}),
    "top_logprobs": ("refused", 2),
}
CHAT: Table = {
    **COMMON,
    "messages": ("effect", USER),
    "max_completion_tokens": ("effect", 100),
    "max_tokens": ("effect", 100),
    "reasoning_effort": ("effect", "low"),
    "response_format": ("effect", {"type": "json_object"}),
    "seed": ("effect", 1),
    "stop": ("effect", ["."]),
    "tool_choice": ("effect", "auto"),
    "tools": ("effect", [CHAT_TOOL]),
    "prediction": ("ignored", {"type": "content", "content": "Tie"}),
    "verbosity": ("ignored", "low"),
    "audio": ("refused", {"voice": "alloy", "format": "wav"}),
    "function_call": ("refused", "auto"),
    "functions": ("refused", [{"name": "weather"}]),
    "logit_bias": ("refused", {"50256": -100}),
    "logprobs": ("refused", True),
    "modalities": ("refused", ["text", "audio"]),
    "n": ("refused", 2),
    "web_search_options": ("refused", {}),
}
RESPONSES: Table = {
    **COMMON,
    "input": ("effect", "Tie it."),
    "background": ("effect", True),
    "conversation": ("effect", "knots"),
    "include": ("effect", ["reasoning.encrypted_content"]),
    "instructions": ("effect", "Be brief."),
    "max_output_tokens": ("effect", 100),
    "previous_response_id": ("refused", "resp_none"),  # there is no such response
    "reasoning": ("effect", {"effort": "low"}),
    "text": ("effect", {"format": {"type": "text"}}),
    "tool_choice": ("effect", "auto"),
    "tools": ("effect", [TOOL]),
    "max_tool_calls": ("ignored", 3),
    "truncation": ("ignored", "auto"),
    "access_programs": ("refused", {"cyber": "standard"}),
    "context_management": ("refused", [{"type": "compaction", "compact_threshold": 9000}]),
    "image": ("refused", {"context_compression": "enabled"}),
    "prompt": ("refused", {"id": "pmpt_1"}),
}
COUNT_TOKENS: Table = {
    "messages": ("effect", USER),
    "model": ("effect", "sage"),
    "output_config": ("effect", {"effort": "low"}),
    "system": ("effect", "Be brief."),
    "thinking": ("effect", {"type": "enabled", "budget_tokens": 1024}),
    "tool_choice": ("effect", {"type": "auto"}),
    "tools": ("effect", [ANTHROPIC_TOOL]),
    "cache_control": ("ignored", {"type": "ephemeral"}),
    "speed": ("ignored", "fast"),
    "user_profile_id": ("ignored", "u1"),
    "workspace_id": ("ignored", "w1"),
}
MESSAGES: Table = {
    **COUNT_TOKENS,
    "max_tokens": ("effect", 100),
    "metadata": ("effect", {"user_id": "ann"}),
    "stop_sequences": ("effect", ["."]),
    "temperature": ("effect", 0.5),
    "thread": ("effect", {"type": "create"}),
    "top_p": ("effect", 0.5),
    "diagnostics": ("ignored", {}),
    "inference_geo": ("ignored", "us"),
    "service_tier": ("ignored", "standard_only"),
    "top_k": ("ignored", 5),
    "container": ("refused", "container_1"),
}
BETA_MESSAGES: Table = {
    **MESSAGES,
    "output_format": ("effect", {"type": "json_schema", "schema": {"type": "object"}}),
    "billing_policy": ("ignored", "standard"),
    "compaction": ("ignored", {}),
    "context_management": ("ignored", {"edits": []}),
    "fallback_credit_token": ("ignored", "token"),
    "fallbacks": ("ignored", []),
    "mcp_servers": ("refused", [{"type": "url", "url": "https://example.org", "name": "x"}]),
}
APIS: dict[str, tuple[str, list[Any], Table, tuple[str, ...]]] = {
    "chat completions": ("/v1/chat/completions", [CompletionCreateParamsBase], CHAT, ("messages",)),
    "responses": ("/v1/responses", [ResponseCreateParamsBase], RESPONSES, ("input",)),
    "messages": ("/v1/messages", [MessageCreateParamsBase], MESSAGES, ("messages", "max_tokens")),
    "beta messages": (
        "/v1/messages",
        [beta_messages.MessageCreateParamsBase],
        BETA_MESSAGES,
        ("messages", "max_tokens"),
    ),
    "count tokens": (
        "/v1/messages/count_tokens",
        [MessageCountTokensParams],
        COUNT_TOKENS,
        ("messages",),
    ),
}
"""The path of each API, the types of its parameters, what becomes of them, and those it needs."""
NOT_IN_THE_BODY = {"betas"}
EARLIER = {
    *("frequency_penalty", "presence_penalty"),  # of responses, in Open Responses
    *("output_format", "temperature", "thread", "top_k", "top_p"),
}
"""Parameters that are not in the installed version of an SDK, and that other clients send."""


@pytest.mark.parametrize("api", APIS)
def test_every_parameter_of_the_sdk_is_in_the_table(api: str) -> None:
    _, types, table, _ = APIS[api]
    names = {name for kind in types for name in kind.__annotations__} - NOT_IN_THE_BODY
    assert names <= table.keys()
    assert table.keys() - names <= EARLIER


@pytest.mark.parametrize("api", APIS)
def test_a_parameter_does_what_the_table_says(api: str) -> None:
    path, _, table, needed = APIS[api]
    base = {"model": "sage", **{name: table[name][1] for name in needed}}
    with serving(models=[Talker("sage")]) as server:
        for name, (verdict, value) in table.items():
            more = {"tools": table["tools"][1]} if name == "tool_choice" else {}
            answer = server.post(path, {**base, **more, name: value})
            ignored = answer.headers.get("x-ignored-fields", "").split(", ")
            if verdict == "refused":
                error = answer.json()["error"]
                assert (answer.status_code, error["param"]) == (400, name), answer.text
                assert name in error["message"] or str(value) in error["message"]
            else:
                assert answer.status_code == 200, answer.text
                named = any(one.partition(".")[0] == name for one in ignored)
                assert named == (verdict == "ignored"), f"{name}: {ignored}"
