"""What a provider sends with a reply goes back to it, and to no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import iModel
from sennit.errors import RunError
from sennit.messages.provider_state import STATE_KEY
from sennit.sessions.session import SessionCore
from sennit.turns.conversation import ConversationSession
from sennit.turns.result import Return
from tests.conversation_fixtures import add
from tests.services.conftest import KEY
from tests.services.provider_replies import (
    ANTHROPIC,
    ARGUMENTS,
    CHAT,
    GOOGLE,
    RESPONSES,
    Provider,
)
from tests.services.wire_server import (
    WireServer,
    answer,
    chunks,
    completion,
    event,
    piece,
    usage_piece,
)

pytestmark = pytest.mark.usefixtures("google_sdk")
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

THINKING = {"type": "thinking", "thinking": "Add them.", "signature": "U0lHTg=="}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Add them."}],
    "encrypted_content": "RU5D",
}

KINDS: dict[str, tuple[Provider, dict[str, Any] | list[dict[str, Any]]]] = {
    "anthropic thinking": (ANTHROPIC, THINKING),
    "anthropic redacted thinking": (ANTHROPIC, {"type": "redacted_thinking", "data": "RU5D"}),
    "anthropic web search": (
        ANTHROPIC,
        [
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "sums"},
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://sums.example",
                        "title": "Sums",
                        "encrypted_content": "RU5D",
                        "page_age": None,
                    }
                ],
            },
        ],
    ),
    "openai reasoning": (RESPONSES, REASONING),
    "openai encrypted reasoning without a summary": (RESPONSES, {**REASONING, "summary": []}),
    "openai raw reasoning": (
        RESPONSES,
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Add them."}],
        },
    ),
    "openai web search": (
        RESPONSES,
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "sums"},
        },
    ),
    "openai list of MCP tools": (
        RESPONSES,
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "sums", "tools": []},
    ),
    "openai code interpreter": (
        RESPONSES,
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "code": "1 + 1",
            "container_id": "c_1",
            "outputs": [{"type": "logs", "logs": "2"}],
        },
    ),
    "openai file search": (
        RESPONSES,
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["sums"],
            "results": None,
        },
    ),
    "openai MCP call": (
        RESPONSES,
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "sums",
            "name": "sum",
            "arguments": "{}",
            "output": "3",
            "status": "completed",
            "error": None,
            "approval_request_id": None,
        },
    ),
    "openai image": (
        RESPONSES,
        {
            "type": "image_generation_call",
            "id": "ig_1",
            "status": "completed",
            "result": "iVBORw0KGgo=",
        },
    ),
    "openai phase and citations": (
        RESPONSES,
        {
            "type": "message",
            "id": "msg_9",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {
                    "type": "output_text",
                    "text": "Well. ",
                    "logprobs": [],
                    "annotations": [
                        {
                            "type": "url_citation",
                            "start_index": 0,
                            "end_index": 4,
                            "title": "Sums",
                            "url": "https://sums.example",
                        }
                    ],
                }
            ],
        },
    ),
    "openai item of an unknown kind": (
        RESPONSES,
        {"type": "unheard_of_call", "id": "xx_1", "status": "completed", "stuff": {"a": [1]}},
    ),
    "anthropic block of an unknown kind": (ANTHROPIC, {"type": "unheard_of", "stuff": {"a": 1}}),
    "google thought": (GOOGLE, {"text": "Add them.", "thought": True}),
    "google code execution": (
        GOOGLE,
        [
            {
                "executableCode": {"language": "PYTHON", "code": "print(1)"},
                "thoughtSignature": "U0lHMg==",
            },
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ],
    ),
    "chat reasoning_content": (CHAT, {"reasoning_content": "Add them."}),
    "chat reasoning": (CHAT, {"reasoning": "Add them."}),
}
"""Each kind of item that goes back as it came."""


def connected(server: WireServer, provider: Provider) -> iModel:
    return iModel(provider.model, base_url=f"{server.url}{provider.path}", api_key=KEY, retry=None)


def conversation(
    server: WireServer, provider: Provider, session: SessionCore | None = None
) -> ConversationSession:
    model = connected(server, provider)
    if session is None:
        return sennit.conversation(model=model, tools=[add])
    assert isinstance(session, sennit.Session)
    return session.conversation(model=model, tools=[add])


def say(chat: ConversationSession, text: str, *, stream: bool = False) -> Return:
    if not stream:
        return chat.say(text).raise_for_error()
    stream_ = chat.stream(text)
    shown = "".join(str(piece) for piece in stream_)
    assert shown == stream_.result.text
    return stream_.result.raise_for_error()


def replies(server: WireServer, provider: Provider, *items: Any, stream: bool = False) -> list[Any]:
    """Have the provider call a tool with these items before the call; return all items."""
    flat = [one for item in items for one in (item if isinstance(item, list) else [item])]
    whole = [*flat, provider.text("Let me."), provider.call()]
    written = provider.streamed if stream else provider.whole
    server.says(written(whole), written([provider.text("It is 3.")]))
    return whole


def without_defaults(item: Any) -> Any:
    """An item without what providers add and do not ask for: empty lists, states, null."""
    if isinstance(item, dict):
        return {
            name: without_defaults(value)
            for name, value in item.items()
            if value not in (None, []) and name not in ("status", "index", "logprobs")
        }
    return [without_defaults(one) for one in item] if isinstance(item, list) else item


def parsed_arguments(item: Any) -> Any:
    """An item whose arguments are parsed: the bytes of JSON may have other spaces."""
    text = json.dumps(item)
    for arguments in (ARGUMENTS, json.dumps(json.loads(ARGUMENTS), separators=(",", ":"))):
        text = text.replace(json.dumps(arguments), ARGUMENTS)
    return json.loads(text)


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_goes_back_to_its_provider_as_it_came(
    server: WireServer, kind: str, stream: bool
) -> None:
    provider, item = KINDS[kind]
    items = replies(server, provider, item, stream=stream)
    chat = conversation(server, provider)
    result = say(chat, "1 + 2?", stream=stream)
    assert result.answer == "It is 3."
    for _ in range(2):
        if provider in (ANTHROPIC, RESPONSES):
            assert provider.sent(server.body) == items
        sent = [parsed_arguments(without_defaults(one)) for one in provider.sent(server.body)]
        expected = [parsed_arguments(without_defaults(one)) for one in items]
        assert sent == [one for one in expected if one]
        say(chat, "And again?", stream=stream)


@BOTH
@pytest.mark.parametrize("provider", [ANTHROPIC, RESPONSES, GOOGLE], ids=lambda one: one.model)
def test_reasoning_before_a_call_goes_back_without_a_text_between_them(
    server: WireServer, provider: Provider, stream: bool
) -> None:
    thought = {"text": "Add them.", "thought": True}
    reasoning = {ANTHROPIC: THINKING, RESPONSES: REASONING, GOOGLE: thought}[provider]
    written = provider.streamed if stream else provider.whole
    whole = [reasoning, provider.call()]
    server.says(written(whole), written([provider.text("It is 3.")]))
    chat = conversation(server, provider)
    assert say(chat, "1 + 2?", stream=stream).answer == "It is 3."
    assert provider.sent(server.body) == whole


@BOTH
def test_arguments_of_google_that_arrive_in_pieces_are_put_together(
    server: WireServer, stream: bool
) -> None:
    def call(**fields: Any) -> dict[str, Any]:
        return {"functionCall": {"willContinue": True, **fields}}

    def value(path: str, **fields: Any) -> dict[str, Any]:
        return call(partialArgs=[{"jsonPath": path, **fields}])

    def look(where: dict[str, Any], places: list[str]) -> str:
        """Look."""
        return f"{where} {places}"

    parts = [
        {**call(name="look", id="c1"), "thoughtSignature": "U0lH"},
        value("$.where.city", stringValue="Por", willContinue=True),
        value("$.where.city", stringValue="to"),
        value("$.where.floor", numberValue=2),
        value("$.where.open", boolValue=True),
        value("$.places[1]", stringValue="b"),
        value("$.places[0]", stringValue="a"),
        {"functionCall": {}},
        {"unheardOf": 1},
    ]
    written = GOOGLE.streamed if stream else GOOGLE.whole
    server.says(written(parts), written([GOOGLE.text("Here.")]))
    chat = sennit.conversation(model=connected(server, GOOGLE), tools=[look])
    assert say(chat, "Where?", stream=stream).answer == "Here."
    sent, unknown = GOOGLE.sent(server.body)
    assert unknown == {"unheardOf": 1}
    assert sent["functionCall"]["args"] == {
        "where": {"city": "Porto", "floor": 2, "open": True},
        "places": ["a", "b"],
    }
    assert sent["thoughtSignature"] == "U0lH"


@BOTH
@pytest.mark.parametrize(
    "field",
    [
        {"reasoning_text": "Add them."},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Add them."}]}]},
    ],
    ids=["reasoning_text", "thinking parts"],
)
def test_reasoning_under_another_name_is_kept(
    server: WireServer, field: dict[str, Any], stream: bool
) -> None:
    items = [field, CHAT.text("It is 3.")]
    if not stream and "content" in field:
        items = [{"content": [*field["content"], {"type": "text", "text": "It is 3."}]}]
    server.says(CHAT.streamed(items) if stream else CHAT.whole(items))
    result = say(conversation(server, CHAT), "1 + 2?", stream=stream)
    (message,) = [one for one in result.body.interactions if one.role.value == "assistant"]
    assert (message.content.reasoning, message.text) == ("Add them.", "It is 3.")  # type: ignore[union-attr]


def test_usage_that_is_sent_with_each_chunk_is_not_added_up(server: WireServer) -> None:
    usage = [
        {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}
        for count in (1, 2, 3)
    ]
    pieces = [json.loads(piece(content="so ").decode().removeprefix("data: ")) for _ in usage]
    events = [event({**one, "usage": used}) for one, used in zip(pieces, usage, strict=True)]
    server.says(chunks(*events, piece("stop"), usage_piece(**usage[-1]), event("[DONE]")))
    used = say(conversation(server, CHAT), "1 + 2?", stream=True).metrics.usage
    assert (used.input_tokens, used.output_tokens) == (7, 3)


def test_another_provider_gets_the_texts_and_calls_alone(server: WireServer) -> None:
    replies(server, RESPONSES, REASONING)
    chat = conversation(server, RESPONSES)
    say(chat, "1 + 2?")
    server.says(answer(completion("Yes.")))
    other = sennit.Session.conversation(
        chat.request.session,  # type: ignore[arg-type]
        model=connected(server, CHAT),
    )
    say(other, "Sure?")
    assert "RU5D" not in json.dumps(server.body)
    roles = [message["role"] for message in server.body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("change", ["edit", "remove"])
def test_a_reply_that_was_changed_goes_back_without_its_state(
    server: WireServer, change: str
) -> None:
    replies(server, RESPONSES, REASONING)
    chat = conversation(server, RESPONSES)
    say(chat, "1 + 2?")
    said = next(one for one in chat.request.branch.messages if one.text == "Let me.")
    if change == "edit":
        chat = chat.edit(said, "Let me see.")
        assert STATE_KEY not in chat.request.branch.messages[-1].metadata
    else:
        chat.request.session.remove_message(said)
    server.says(RESPONSES.whole([RESPONSES.text("Yes.")]))
    say(chat, "Sure?")
    assert "RU5D" not in json.dumps(server.body)


def test_an_erased_message_takes_its_state_along(server: WireServer, tmp_path: Path) -> None:
    replies(server, ANTHROPIC, THINKING, stream=True)
    with sennit.open(tmp_path / "sums.db") as client:
        chat = conversation(server, ANTHROPIC, client.session("sums"))
        say(chat, "1 + 2?", stream=True)
        said = next(one for one in chat.request.branch.messages if one.text == "Let me.")
        chat.request.session.remove_message(said)
    assert b"U0lHTg==" not in (tmp_path / "sums.db").read_bytes()


@BOTH
def test_a_state_that_the_provider_refuses_is_left_out(server: WireServer, stream: bool) -> None:
    replies(server, RESPONSES, REASONING)
    chat = conversation(server, RESPONSES)
    say(chat, "1 + 2?")
    refusal = {"error": {"message": "Encrypted content could not be verified.", "type": "x"}}
    written = RESPONSES.streamed if stream else RESPONSES.whole
    server.says(answer(refusal, 400), written([RESPONSES.text("Yes.")]))
    result = say(chat, "Sure?", stream=stream)
    assert [notice.code for notice in result.notices] == ["provider_state"]
    assert "RU5D" not in json.dumps(server.body)
    assert result.answer == "Yes."
    server.says(answer(refusal, 400))
    with pytest.raises(RunError, match="could not be verified"):
        say(chat, "Sure?")


@pytest.mark.parametrize(
    "damage",
    [
        {"parts": ["{"]},
        {"parts": []},
        {"parts": [3]},
        {"response": "null"},
        {"of": 7},
        {"index": 9},
        {"provider": "anthropic"},
        {"reply": None},
    ],
    ids=str,
)
def test_a_damaged_state_is_not_sent(server: WireServer, damage: dict[str, Any]) -> None:
    replies(server, RESPONSES, REASONING)
    chat = conversation(server, RESPONSES)
    say(chat, "1 + 2?")
    copied = sennit.Session()
    for message in chat.request.branch.messages:
        data = message.to_dict()
        if message.text == "Let me.":
            data["metadata"][STATE_KEY] |= damage
        copied.add_message(sennit.Message.from_dict(data), branches=copied.default_branch)
    server.says(RESPONSES.whole([RESPONSES.text("Yes.")]))
    say(conversation(server, RESPONSES, copied), "Sure?")
    assert "RU5D" not in json.dumps(server.body)
