"""What a provider gets to read: messages, tools, output and params in its own form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.services.models.params import PARAMS, check_params
from sennit.services.models.providers.model import ProviderModel, connect
from sennit.services.models.request import ModelRequest
from tests.services.asking import asked, folded, request, streamed
from tests.services.conftest import KEY
from tests.services.provider_replies import CHAT, RESPONSES, Provider
from tests.services.wire_server import (
    WireServer,
    answer,
    anthropic_message,
    completed,
    completion,
    piece,
)

IMAGE = "https://example.org/cat.png"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ],
    },
    {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}},
            {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "a cat"},
    {"role": "tool", "tool_call_id": "b", "content": "Error: no clock"},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": "<system>Thanks</system>"},
]
LOOK = ToolSchema(
    "look",
    "Look closer.",
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"]},
)
PERSON = ModelSchema(
    "Person X",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    },
)


def sent(server: WireServer, model: ProviderModel, request: ModelRequest) -> dict[str, Any]:
    """The body the provider gets."""
    gemini = {"candidates": [{"content": {"parts": [{"text": "so"}]}, "finishReason": "STOP"}]}
    said = {
        "openai": completion("so"),
        "anthropic": anthropic_message({"type": "text", "text": "so"}),
        "google": gemini,
    }
    server.says(answer(said[model.name.split(":")[0]]))
    assert asked(model, request).text == "so"
    return server.body


def test_a_conversation_reaches_openai_as_it_is(server: WireServer, openai: ProviderModel) -> None:
    messages = sent(server, openai, request(HISTORY))["messages"]
    assert messages[0] == HISTORY[0]
    assert messages[1]["content"][:2] == HISTORY[1]["content"][:2]
    assert messages[1]["content"][2]["image_url"]["url"] == PIXEL
    assert messages[2:] == HISTORY[2:]


def test_streaming_asks_the_same_and_for_usage(server: WireServer, openai: ProviderModel) -> None:
    whole = sent(server, openai, request(HISTORY))
    server.says(completed(piece(content="x")))
    folded(streamed(openai, request(HISTORY)))
    told = {"stream": True, "stream_options": {"include_usage": True}}
    assert server.body == {**whole, **told}


def test_a_conversation_reaches_anthropic_in_its_form(
    server: WireServer, anthropic: ProviderModel
) -> None:
    body = sent(server, anthropic, request(HISTORY, params={"prompt_cache": False}))
    assert "Be brief." in str(body["system"])
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    shown, called, results, _, thanks = (message["content"] for message in body["messages"])
    assert [block["type"] for block in shown] == ["text", "image", "image"]
    assert shown[1]["source"] == {"type": "url", "url": IMAGE}
    assert shown[2]["source"]["media_type"] == "image/png"
    assert [block["type"] for block in called] == ["text", "tool_use", "tool_use"]
    assert called[1] == {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}}
    assert [block["tool_use_id"] for block in results] == ["a", "b"]
    assert "no clock" in str(results[1]["content"])
    assert thanks == [{"type": "text", "text": "<system>Thanks</system>"}]


def test_a_conversation_reaches_google_in_its_form(
    server: WireServer, google: ProviderModel
) -> None:
    history = [HISTORY[0], {"role": "user", "content": "What is this?"}, *HISTORY[2:]]
    body = sent(server, google, request(history))
    assert "Be brief." in str(body["systemInstruction"])
    roles = [content["role"] for content in body["contents"]]
    assert roles == ["user", "model", "user", "model", "user"]
    called, results = body["contents"][1]["parts"], body["contents"][2]["parts"]
    assert called[1]["functionCall"]["args"] == {"n": 1}
    assert [part["functionResponse"]["name"] for part in results] == ["look", "now"]


def test_tools_are_offered_as_described(server: WireServer, openai: ProviderModel) -> None:
    (tool,) = sent(server, openai, request(tools=(LOOK,)))["tools"]
    function = tool["function"]
    assert (function["name"], function["description"]) == ("look", "Look closer.")
    assert function["parameters"]["properties"]["n"]["type"] == "integer"
    assert function["parameters"]["required"] == ["n"]


def test_tools_reach_anthropic_and_google(
    server: WireServer, anthropic: ProviderModel, google: ProviderModel
) -> None:
    (tool,) = sent(server, anthropic, request(tools=(LOOK,)))["tools"]
    assert (tool["name"], tool["input_schema"]["required"]) == ("look", ["n"])
    (tool,) = sent(server, google, request(tools=(LOOK,)))["tools"]
    assert tool["functionDeclarations"][0]["name"] == "look"


def test_a_tool_s_schema_is_not_changed_by_sending_it(
    server: WireServer, openai: ProviderModel
) -> None:
    before = repr(LOOK), repr(PERSON)
    sent(server, openai, request(tools=(LOOK,), output=PERSON))
    assert (repr(LOOK), repr(PERSON)) == before


def test_the_form_of_the_answer_is_asked_for_natively(
    server: WireServer, openai: ProviderModel, google: ProviderModel
) -> None:
    assert openai.supports_output_schema
    form = sent(server, openai, request(output=PERSON))["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["name"] == "Person_X"
    assert form["json_schema"]["schema"] == PERSON.schema
    config = sent(server, google, request(output=PERSON))["generationConfig"]
    assert config["responseMimeType"] == "application/json"


def test_anthropic_is_held_to_a_form_where_it_can_be(
    server: WireServer, anthropic: ProviderModel
) -> None:
    new = connect("anthropic:claude-opus-5", base_url=server.url, api_key=KEY)
    assert new.supports_output_schema
    body = sent(server, new, request(output=PERSON, params={"max_tokens": 100}))
    assert body["output_config"]["format"]["type"] == "json_schema"
    old = connect("anthropic:claude-3-haiku", base_url=server.url, api_key=KEY)
    assert not old.supports_output_schema
    with pytest.raises(ValidationError, match="does not support structured output"):
        asked(old, request(output=PERSON))


ALL: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "max_tokens": 100,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "timeout": 60,
    "parallel_tool_calls": False,
    "tool_choice": "required",
    "reasoning": "low",
    "prompt_cache": False,
    "extra_body": {"mine": 1},
    "extra_headers": {"x-mine": "1"},
}


def test_every_param_reaches_openai(server: WireServer, openai: ProviderModel) -> None:
    assert ALL.keys() == PARAMS.keys()
    body = sent(server, openai, request(tools=(LOOK,), params=ALL))
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.5, 0.9, 7)
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.1, 0.2)
    assert (body["max_completion_tokens"], body["stop"]) == (100, ["END"])
    assert (body["parallel_tool_calls"], body["reasoning_effort"], body["mine"]) == (
        False,
        "low",
        1,
    )
    assert body["tool_choice"] == "required"
    assert server.asked[-1].headers["x-mine"] == "1"


@pytest.mark.parametrize(("api", "provider"), [("openai", CHAT), ("openai-responses", RESPONSES)])
def test_the_requests_of_a_conversation_share_a_cache_key_at_openai(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, api: str, provider: Provider
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    model = connect(f"{api}:wire-model", api_key=KEY)
    server.says(provider.whole([provider.text("so")]))

    def key(messages: list[dict[str, Any]], **params: Any) -> Any:
        asked(model, request(messages, params=params))
        return server.body.get("prompt_cache_key")

    first = key(HISTORY[:2])
    assert len(first) == 31
    assert key(HISTORY) == key(HISTORY[:5]) == first
    assert key(HISTORY[1:]) != first
    assert key(HISTORY, prompt_cache=False) is None


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in ALL.items() if name not in names}


def test_what_anthropic_can_do_reaches_it(server: WireServer, anthropic: ProviderModel) -> None:
    params = without("seed", "presence_penalty", "frequency_penalty", "reasoning")
    body = sent(server, anthropic, request(tools=(LOOK,), params=params))
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 100)
    assert (body["stop_sequences"], body["mine"]) == (["END"], 1)
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert server.asked[-1].headers["x-mine"] == "1"


def test_what_google_can_do_reaches_it(server: WireServer, google: ProviderModel) -> None:
    params = without("parallel_tool_calls", "extra_body")
    body = sent(server, google, request(tools=(LOOK,), params=params))
    config = body["generationConfig"]
    assert (config["temperature"], config["topP"], config["seed"]) == (0.5, 0.9, 7)
    assert (config["maxOutputTokens"], config["stopSequences"]) == (100, ["END"])
    assert (config["presencePenalty"], config["frequencyPenalty"]) == (0.1, 0.2)
    assert "thinkingConfig" in config
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
    assert server.asked[-1].headers["x-mine"] == "1"


def test_one_tool_of_several_can_be_asked_for(server: WireServer, openai: ProviderModel) -> None:
    both = (LOOK, replace(LOOK, name="other"))
    body = sent(server, openai, request(tools=both, params={"tool_choice": ["look"]}))
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert len(body["tools"]) == 2


@pytest.mark.parametrize("choice", [["look", "nothing"], ["nothing"]])
def test_a_tool_that_is_not_offered_cannot_be_asked_for(
    openai: ProviderModel, choice: list[str]
) -> None:
    with pytest.raises(ValidationError, match=r"nothing.*'look'"):
        asked(openai, request(tools=(LOOK,), params={"tool_choice": choice}))
    with pytest.raises(ValidationError, match="none"):
        asked(openai, request(params={"tool_choice": "required"}))


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_a_reasoning_model_is_told_how_hard_to_think(server: WireServer, effort: str) -> None:
    model = connect("openai:gpt-5", base_url=f"{server.url}/v1", api_key=KEY)
    body = sent(server, model, request(params={"reasoning": effort}))
    assert body["reasoning_effort"] == effort


def test_anthropic_thinks_when_told(server: WireServer) -> None:
    model = connect("anthropic:claude-haiku-4-5", base_url=server.url, api_key=KEY)
    body = sent(server, model, request(params={"reasoning": "low", "max_tokens": 10_000}))
    assert body["thinking"]["type"] == "enabled"
    body = sent(server, model, request(params={"reasoning": "off", "max_tokens": 10_000}))
    assert body.get("thinking", {}).get("type") != "enabled"


@pytest.mark.parametrize(
    ("spec", "params", "named"),
    [
        ("anthropic:claude-opus-5", {"seed": 1}, "seed"),
        ("anthropic:claude-opus-5", {"presence_penalty": 1.0}, "presence_penalty"),
        ("anthropic:claude-opus-5", {"temperature": 0.5}, "temperature"),
        ("anthropic:claude-opus-5-5", {"reasoning": "off"}, "reasoning"),
        ("google:gemini-2.0-flash", {"reasoning": "low"}, "reasoning"),
        ("google:gemini-2.5-flash", {"extra_body": {"x": 1}}, "extra_body"),
        ("google:gemini-2.5-flash", {"parallel_tool_calls": False}, "parallel_tool_calls"),
        ("openai:gpt-5", {"temperature": 0.5}, "temperature"),
        ("openai:gpt-5", {"reasoning": "off"}, "reasoning"),
        ("openai-responses:gpt-4o", {"stop": "x"}, "stop"),
        ("openai-responses:gpt-4o", {"seed": 1}, "seed"),
    ],
)
@pytest.mark.usefixtures("google_sdk")
def test_what_a_model_cannot_do_is_refused_before_anything_is_sent(
    server: WireServer, spec: str, params: dict[str, Any], named: str
) -> None:
    model = connect(spec, base_url=server.url, api_key=KEY)
    with pytest.raises(ValidationError, match=named) as caught:
        asked(model, request(tools=(LOOK,), params=params))
    assert spec in str(caught.value)
    assert not server.asked


def test_there_is_nothing_to_turn_off_in_a_model_that_does_not_reason(
    server: WireServer, google_sdk: None
) -> None:
    model = connect("google:gemini-2.0-flash", base_url=server.url, api_key=KEY)
    body = sent(server, model, request(params={"reasoning": "off"}))
    assert "thinkingConfig" not in body.get("generationConfig", {})


def test_sampling_is_taken_where_reasoning_is_off(server: WireServer) -> None:
    model = connect("openai:gpt-5.1", base_url=f"{server.url}/v1", api_key=KEY)
    params = {"temperature": 0.5, "reasoning": "off"}
    body = sent(server, model, request(params=params))
    assert (body["temperature"], body["reasoning_effort"]) == (0.5, "none")


def test_a_param_nobody_knows_is_refused_with_those_that_exist(openai: ProviderModel) -> None:
    with pytest.raises(ValidationError, match="temprature") as caught:
        asked(openai, request(params={"temprature": 1}))
    assert all(name in str(caught.value) for name in PARAMS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("temperature", True),
        ("top_p", "1"),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("stop", 1),
        ("stop", ["a", ""]),
        ("stop", b"x"),
        ("seed", 1.0),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", 10**400),
        ("temperature", -(10**400)),
        ("parallel_tool_calls", 1),
        ("reasoning", "very"),
        ("reasoning", ["low"]),
        ("extra_body", [1]),
        ("extra_headers", {"x": 1}),
        ("extra_headers", {1: "x"}),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        check_params({name: value})


def test_none_means_not_set_and_one_text_to_stop_at_is_a_list() -> None:
    assert check_params({"seed": None, "stop": "x"}) == {"stop": ["x"]}


def test_a_header_of_the_wrong_kind_is_not_shown() -> None:
    with pytest.raises(InvalidTypeError) as caught:
        check_params({"extra_headers": {"authorization": ["secret"]}})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"content": "x"},
        {"role": "user", "content": [{"type": "video", "url": "x"}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": 7},
        {"role": "system", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]},
        {"role": "assistant", "tool_calls": [{"id": "a"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
    ],
)
def test_a_message_that_is_none_is_refused_before_anything_is_sent(
    server: WireServer, openai: ProviderModel, message: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        asked(openai, request([message]))
    assert not server.asked
