"""Servers that are compatible with OpenAI's chat completions, each in its own way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest

import sennit
from sennit import iModel
from sennit.messages.provider_state import STATE_KEY
from sennit.turns.conversation import ConversationSession
from tests.conversation_fixtures import add
from tests.services.conftest import KEY
from tests.services.models.providers.test_kinds import ask, shown
from tests.services.models.providers.test_provider_state import BOTH, say
from tests.services.provider_rules import check_chat
from tests.services.wire_server import (
    DONE,
    WireServer,
    answer,
    chunks,
    completion,
    event,
    piece,
    usage_piece,
)

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
ARGUMENTS = '{"a": 1, "b": 2}'
FUNCTION = {"name": "add", "arguments": ARGUMENTS}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A way to say something: its deltas, and the fields of the message that they make."""

    deltas: Sequence[Mapping[str, Any]]
    message: Mapping[str, Any] | None = None
    """The whole message; None if the server only streams it so."""
    sent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the next requests have of it; by default the message."""
    unsent: Sequence[str] = ()
    """Fields that do not go back."""
    server: str = "openai"
    text: str = ""
    reasoning: str = ""


def thinking(*texts: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": text} for text in texts]
    return {"content": [{"type": "thinking", "thinking": parts, **more}]}


DETAIL = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
SIGNED = {**DETAIL, "text": "Add.", "signature": "U0lH"}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "RU5D", "id": "r1", "index": 1}
SUMMARY = {"type": "reasoning.summary", "summary": "Add.", "format": "openai-responses-v1"}
SERVER_CALL = {"type": "reasoning.server_tool_call", "tool_name": "s", "arguments": "{}"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}, "index": 0}
CITATION = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
FILE = {"type": "file", "file": {"hash": "h", "name": "a.pdf", "content": []}}

ROWS: Mapping[str, Row] = {
    "deepseek, moonshot, zai, vllm: reasoning_content": Row(
        server="deepseek",
        deltas=[{"reasoning_content": "A"}, {"reasoning_content": "dd."}],
        message={"reasoning_content": "Add."},
        reasoning="Add.",
    ),
    "groq, cerebras, ollama, lm studio, vllm: reasoning": Row(
        server="groq",
        deltas=[{"reasoning": "A"}, {"reasoning": "dd."}],
        message={"reasoning": "Add."},
        reasoning="Add.",
    ),
    "copilot, lm studio: reasoning_text": Row(
        server="",
        deltas=[{"reasoning_text": "A"}, {"reasoning_text": "dd."}, {"reasoning_opaque": "RU5D"}],
        message={"reasoning_text": "Add.", "reasoning_opaque": "RU5D"},
        reasoning="Add.",
    ),
    "vllm: the same reasoning under two names": Row(
        server="",
        deltas=[{"reasoning": "Add.", "reasoning_content": "Add."}],
        message={"reasoning": "Add.", "reasoning_content": "Add."},
        reasoning="Add.",
    ),
    "ollama: reasoning in tags": Row(
        deltas=[{"content": text} for text in ("<th", "ink>Ad", "d.</thi", "nk>So. ")],
        message={"content": "<think>Add.</think>So. "},
        sent={"content": "<think>Add.</think>So. "},
        reasoning="Add.",
        text="So. ",
    ),
    "litellm: thinking_blocks": Row(
        server="",
        deltas=[{"thinking_blocks": [{"type": "thinking", "thinking": "Add.", "signature": "s"}]}],
        message={"thinking_blocks": [{"type": "thinking", "thinking": "Add.", "signature": "s"}]},
        reasoning="Add.",
    ),
    "openrouter: reasoning_details": Row(
        server="openrouter",
        deltas=[
            {"reasoning": "A", "reasoning_details": [{**DETAIL, "text": "A"}]},
            {"reasoning": "dd.", "reasoning_details": [{**DETAIL, "text": "dd."}]},
            {"reasoning_details": [{**DETAIL, "signature": "U0lH"}]},
            {"reasoning_details": [ENCRYPTED]},
        ],
        message={"reasoning": "Add.", "reasoning_details": [SIGNED, ENCRYPTED]},
        reasoning="Add.",
    ),
    "openrouter: reasoning_details alone": Row(
        server="openrouter",
        deltas=[{"reasoning_details": [SUMMARY]}, {"reasoning_details": [SERVER_CALL]}],
        message={"reasoning_details": [SUMMARY, SERVER_CALL]},
        reasoning="Add.",
    ),
    "openrouter: images": Row(
        server="openrouter",
        deltas=[{"content": "Look. "}, {"images": [IMAGE]}],
        message={"content": "Look. ", "images": [IMAGE]},
        text="Look. ",
    ),
    "openrouter: annotations of files": Row(
        server="openrouter",
        deltas=[{"content": "So. "}, {"annotations": [FILE]}, {"annotations": [CITATION]}],
        message={"content": "So. ", "annotations": [FILE, CITATION]},
        text="So. ",
    ),
    "openai, perplexity, xai: annotations": Row(
        deltas=[{"content": "So. "}, {"annotations": [CITATION]}],
        message={"content": "So. ", "annotations": [CITATION]},
        sent={"content": "So. "},
        unsent=["annotations"],
        text="So. ",
    ),
    "openai: audio": Row(
        deltas=[
            {"audio": {"id": "audio_1", "transcript": "So"}},
            {"audio": {"data": "eA==", "transcript": ". "}},
            {"audio": {"data": "eQ==", "expires_at": 9}},
        ],
        message={"audio": {"id": "audio_1", "transcript": "So. ", "data": "eA==", "expires_at": 9}},
        sent={"audio": {"id": "audio_1"}},
        text="So. ",
    ),
    "mistral: thinking parts": Row(
        server="mistral",
        deltas=[thinking("A"), thinking("dd.", signature="s"), {"content": "So. "}],
        message={
            "content": [
                *thinking("Add.", signature="s")["content"],
                {"type": "text", "text": "So. "},
            ]
        },
        reasoning="Add.",
        text="So. ",
    ),
    "mistral: references": Row(
        server="mistral",
        deltas=[
            {"content": [{"type": "text", "text": "So. "}], "index": 0, "metadata": {"a": 1}},
            {"content": [{"type": "reference", "reference_ids": [1]}]},
        ],
        message={
            "content": [
                {"type": "text", "text": "So. "},
                {"type": "reference", "reference_ids": [1]},
            ]
        },
        text="So. ",
    ),
    "groq: executed tools": Row(
        server="groq",
        deltas=[{"executed_tools": [{"index": 0, "type": "search", "output": "x"}]}],
        message={"executed_tools": [{"index": 0, "type": "search", "output": "x"}]},
        unsent=["executed_tools"],
        sent={"tool_calls": [{**CALL, "function": FUNCTION}]},
    ),
    "google as openai: signatures of calls": Row(
        server="",
        deltas=[],
        message={},
        sent={
            "tool_calls": [
                {
                    **CALL,
                    "function": FUNCTION,
                    "extra_content": {"google": {"thought_signature": "s"}},
                }
            ]
        },
    ),
    "a field of an unknown kind": Row(
        server="",
        deltas=[{"unheard_of": {"a": [1]}}],
        message={"unheard_of": {"a": [1]}},
    ),
}


def talk(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, provider: str = "openai", *tools: Any
) -> ConversationSession:
    if provider not in ("openrouter", "deepseek"):
        model = iModel("openai:wire-1", base_url=f"{server.url}/v1", api_key=KEY, retry=None)
    else:  # which have one address
        names = {"openrouter": "OpenRouterProvider", "deepseek": "DeepSeekProvider"}
        module = import_module(f"pydantic_ai.providers.{provider}")
        url = property(lambda _: f"{server.url}/v1")
        monkeypatch.setattr(getattr(module, names[provider]), "base_url", url)
        model = iModel(f"{provider}:wire/wire-1", api_key=KEY, retry=None)
    return sennit.conversation(model=model, tools=[*tools, add])


def written(row: Row, call: Mapping[str, Any], *, stream: bool) -> list[Any]:
    if not stream:
        message = {"content": None, **(row.message or {}), "tool_calls": [call]}
        return answer(completion(**message, finish="tool_calls"))
    pieces = [piece(**delta) for delta in row.deltas]
    return chunks(*pieces, piece(tool_calls=[{"index": 0, **call}]), piece("tool_calls"), DONE)


@BOTH
@pytest.mark.parametrize("name", ROWS)
def test_what_a_server_says_is_shown_kept_and_sent_back(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, name: str, stream: bool
) -> None:
    row = ROWS[name]
    call = {**CALL, "function": FUNCTION}
    call |= next(
        (
            {"extra_content": one["extra_content"]}
            for one in row.sent.get("tool_calls", ())
            if "extra_content" in one
        ),
        {},
    )
    server.says(
        written(row, call, stream=stream),
        *(
            chunks(piece(content=one), piece("stop"), DONE) if stream else answer(completion(one))
            for one in ("It is 3.", "Yes.")
        ),
    )
    chat = talk(server, monkeypatch, row.server)
    assert say(chat, "1 + 2?", stream=stream).answer == "It is 3."
    assert shown(chat)[1] == row.reasoning
    assert shown(chat)[0].startswith(row.text)
    say(chat, "Sure?", stream=stream)
    for asked in server.asked[1:]:
        check_chat(asked.body, row.server)
        sent = asked.body["messages"][1]
        expected = {**(row.message or {}), **row.sent}
        assert {field: sent[field] for field in expected if field not in row.unsent} == {
            field: value for field, value in expected.items() if field not in row.unsent
        }
        assert not sent.keys() & set(row.unsent)
    if row.unsent:
        states = [one.metadata.get(STATE_KEY) for one in chat.request.branch.messages]
        assert row.unsent[0] in json.dumps(states)


CALLS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "whole, without an index": [{"id": "a", "type": "function", "function": FUNCTION}],
    "without an id": [{"index": 0, "type": "function", "function": FUNCTION}],
    "without index and id": [{"function": FUNCTION}],
    "with an empty id": [{"index": 0, "id": "", "function": FUNCTION}],
    "arguments as an object": [
        {"index": 0, "id": "a", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    ],
    "in pieces without an index": [
        {"id": "a", "function": {"name": "add", "arguments": '{"a": 1,'}},
        {"function": {"arguments": ' "b": 2}'}},
    ],
    "with the id in every piece": [
        {"id": "a", "function": {"name": "add", "arguments": '{"a": 1,'}},
        {"id": "a", "function": {"name": "add", "arguments": ' "b": 2}'}},
    ],
    "with null fields": [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "add"}},
        {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": ARGUMENTS}},
    ],
    "of a custom tool": [
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "write", "input": "1 + "}},
        {"index": 0, "custom": {"input": '"2"'}},
    ],
}


def write(input: str) -> str:
    """Add what is written."""
    return str(sum(int(part.strip('" ')) for part in input.split("+")))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_written_oddly_is_run(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pieces = [piece(tool_calls=[call]) for call in CALLS[name]]
    server.says(
        chunks(piece(reasoning="Add."), *pieces, piece("tool_calls"), DONE),
        chunks(piece(content="It is 3."), piece("stop"), DONE),
    )
    chat = talk(server, monkeypatch, "", write)
    assert say(chat, "1 + 2?", stream=True).answer == "It is 3."
    say(chat, "Sure?", stream=True)
    check_chat(server.body, "")
    assert server.body["messages"][2]["content"] == "3"
    assert server.body["messages"][1]["reasoning"] == "Add."


@pytest.mark.parametrize("same", ["index", "id", "neither"])
def test_two_calls_that_share_a_number_or_an_id_are_run(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, same: str
) -> None:
    calls = [
        {"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}},
        {"index": 1, "id": "b", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
    ]
    if same == "neither":
        calls = [{"function": call["function"]} for call in calls]
    else:
        calls[1][same] = calls[0][same]
    server.says(
        chunks(*(piece(tool_calls=[call]) for call in calls), piece("tool_calls"), DONE),
        chunks(piece(content="2 and 3."), piece("stop"), DONE),
    )
    chat = talk(server, monkeypatch)
    assert say(chat, "1 + 1 and 1 + 2?", stream=True).answer == "2 and 3."
    check_chat(server.body)
    assert [one["content"] for one in server.body["messages"][2:]] == ["2", "3"]


@BOTH
def test_a_function_call_of_old_is_a_call(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    call: dict[str, Any] = {"function_call": FUNCTION}
    server.says(
        chunks(piece(**call), piece("function_call"), DONE)
        if stream
        else answer(completion(None, finish="function_call", **call)),
        chunks(piece(content="It is 3."), piece("stop"), DONE)
        if stream
        else answer(completion("It is 3.")),
    )
    chat = talk(server, monkeypatch)
    assert say(chat, "1 + 2?", stream=stream).answer == "It is 3."
    check_chat(server.body)


@pytest.mark.parametrize(
    ("finish", "outcome"),
    [
        ("end_turn", "stop"),
        ("unheard_of", "stop"),
        ("model_length", "length"),
        ("error", "error"),
        (None, "stop"),
    ],
)
@BOTH
def test_a_reason_of_another_server_ends_the_reply(
    server: WireServer,
    monkeypatch: pytest.MonkeyPatch,
    finish: str | None,
    outcome: str,
    stream: bool,
) -> None:
    usage = usage_piece(prompt_tokens=3, completion_tokens=4, total_tokens=7)
    ended = [piece(finish)] if finish else []
    server.says(
        chunks(piece(content="So far"), *ended, usage, DONE)
        if stream
        else answer(completion("So far", finish=finish))  # type: ignore[arg-type]
    )
    chat = talk(server, monkeypatch)
    ask(chat, "Hello.", stream=stream)
    (said,) = [one for one in chat.request.branch.messages if one.text == "So far"]
    assert said.metadata["finish_reason"] == outcome


def lines(text: bytes) -> Iterator[bytes]:
    """A stream as another server writes it."""
    yield b": keep-alive\n\n"
    yield text.replace(b"data: ", b"data:")
    yield b"\n: OPENROUTER PROCESSING\n\n"


def test_a_stream_may_have_comments_no_space_and_no_end(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.says(chunks(*lines(piece(content="Hi.")), *lines(piece("stop"))))
    assert say(talk(server, monkeypatch), "Hello.", stream=True).answer == "Hi."


@pytest.mark.parametrize(
    "broken",
    [
        {"error": {"message": "It broke.", "code": 502}},
        {"error": {"message": "It broke."}, "choices": [{"index": 0, "delta": {}}]},
        {"id": "c", "choices": [], "error": {"message": "It broke.", "code": "server_error"}},
    ],
    ids=["alone", "with a choice", "with no choices"],
)
def test_an_error_inside_a_stream_is_told(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    server.says(chunks(piece(content="So far"), event(broken), DONE))
    chat = talk(server, monkeypatch)
    result = ask(chat, "Hello.", stream=True)
    assert "It broke." in str(result.notices)


@BOTH
def test_only_the_first_of_several_choices_is_taken(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    whole = completion("Hi.")
    whole["choices"].append({**whole["choices"][0], "index": 1, "message": {"content": "No."}})
    other = json.loads(piece(content="No.").decode().removeprefix("data: "))
    other["choices"][0]["index"] = 1
    server.says(
        chunks(piece(content="H"), event(other), piece(content="i."), piece("stop"), DONE)
        if stream
        else answer(whole)
    )
    assert say(talk(server, monkeypatch), "Hello.", stream=stream).answer == "Hi."


@BOTH
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 2}},
        {"prompt_cache_hit_tokens": 2, "prompt_cache_miss_tokens": 5},
        {"cached_tokens": 2},
    ],
    ids=["openai", "deepseek", "moonshot"],
)
def test_cached_and_reasoning_tokens_are_counted(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, usage: dict[str, Any], stream: bool
) -> None:
    used: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, **usage}
    used["completion_tokens_details"] = {"reasoning_tokens": 1}
    server.says(
        chunks(piece(content="Hi."), piece("stop"), usage_piece(**used), DONE)
        if stream
        else answer(completion("Hi.", usage=used))
    )
    result = say(talk(server, monkeypatch), "Hello.", stream=stream)
    counted = result.metrics.usage
    assert (counted.input_tokens, counted.output_tokens) == (7, 3)
    assert (counted.cached_tokens, counted.reasoning_tokens) == (2, 1)


@BOTH
def test_logprobs_and_citations_are_kept_with_the_reply(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    logprobs = {"content": [{"token": "Hi.", "logprob": -0.5, "bytes": None, "top_logprobs": []}]}
    body: dict[str, Any] = completion("Hi.") | {"citations": ["https://a.example"]}
    body["choices"][0]["logprobs"] = logprobs
    said = json.loads(piece(content="Hi.").decode().removeprefix("data: "))
    said["choices"][0]["logprobs"] = logprobs
    server.says(
        chunks(event(said | {"citations": ["https://a.example"]}), piece("stop"), DONE)
        if stream
        else answer(body)
    )
    chat = talk(server, monkeypatch)
    say(chat, "Hello.", stream=stream)
    details = json.loads(chat.request.branch.messages[-1].metadata[STATE_KEY]["response"])
    assert details == {"logprobs": logprobs, "citations": ["https://a.example"]}
