"""/v1/messages, as the official client of Anthropic uses it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from pydantic import BaseModel

from sennit import FilePart, ImagePart, ModelError
from sennit.messages.media import part_of_block
from sennit.server.http.tokens import new_token, write_tokens
from sennit.server.settings import Limits
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText, Usage
from sennit.testing import ToolCall
from tests.anthropic_client import served

WEATHER = {
    "name": "weather",
    "description": "The forecast for a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PDF = b"%PDF-1.7\n" + bytes(2_000)
THINKING = {"type": "enabled", "budget_tokens": 2048}
THOUGHTS = Reply(
    items=(ReplyReasoning("Ropes differ."), ReplyText("The sheet bend.")),
    usage=Usage(input_tokens=100, output_tokens=9, cached_tokens=60, reasoning_tokens=4),
)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def result(call: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def test_a_message_is_answered_counted_and_stored() -> None:
    with served("The bowline.") as chat:
        answer = chat.create(user("Name a knot."))
        assert [(block.type, block.text) for block in answer.content] == [("text", "The bowline.")]
        assert (answer.type, answer.role, answer.model) == ("message", "assistant", "sage")
        assert answer.stop_reason == "end_turn"
        assert answer.usage.input_tokens > 0
        assert answer.usage.output_tokens > 0
        (session,) = chat.sessions()
        assert chat.said(session["id"]) == ["Name a knot.", "The bowline."]


def test_a_stream_has_the_events_of_the_messages_api() -> None:
    with served("Over, under. " * 8, chunk=10) as chat:
        events = list(chat.create(user("Tie it."), stream=True))
        kinds = [event.type for event in events]
        assert kinds[:2] == ["message_start", "content_block_start"]  # the client drops pings
        assert set(kinds[2:-3]) == {"content_block_delta"}
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        assert events[-2].delta.stop_reason == "end_turn"
        assert events[-2].usage.output_tokens > 0
        text = "".join(event.delta.text for event in events[2:-3])
        assert text == "Over, under. " * 8


def test_the_stream_helper_collects_thinking_and_text() -> None:
    with served(THOUGHTS, chunk=5) as chat:
        options = {"model": "sage", "max_tokens": 4000, "thinking": THINKING}
        with chat.anthropic.messages.stream(messages=[user("Knots?")], **options) as stream:
            message = stream.get_final_message()
        thinking, text = message.content
        assert (thinking.type, thinking.thinking) == ("thinking", "Ropes differ.")
        assert thinking.signature
        assert (text.type, text.text) == ("text", "The sheet bend.")
        assert message.usage.cache_read_input_tokens == 60


def test_thinking_is_returned_only_to_those_who_ask_for_it() -> None:
    with served(THOUGHTS, THOUGHTS) as chat:
        thinking, text = chat.create(user("Knots?"), max_tokens=4000, thinking=THINKING).content
        assert (thinking.type, thinking.thinking) == ("thinking", "Ropes differ.")
        assert (text.type, text.text) == ("text", "The sheet bend.")
        assert [block.type for block in chat.create(user("Why?")).content] == ["text"]
        assert chat.model.requests[0].params["reasoning"] == "low"
        assert "reasoning" not in chat.model.requests[1].params


def test_tokens_read_from_a_cache_are_counted_apart() -> None:
    with served(THOUGHTS) as chat:
        usage = chat.create(user("Knots?")).usage
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (40, 60)
        assert usage.output_tokens_details.thinking_tokens == 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_runs_its_tools_in_parallel_on_one_branch(stream: bool) -> None:
    calls = [ToolCall("weather", {"city": city}, f"toolu_{city}") for city in ("Oslo", "Rome")]
    with served(calls, "Rain and sun.") as chat:
        options = {"model": "sage", "max_tokens": 1000, "tools": [WEATHER]}
        history = [user("Weather in Oslo and Rome?")]
        if stream:
            with chat.anthropic.messages.stream(messages=history, **options) as events:
                answer = events.get_final_message()
        else:
            answer = chat.anthropic.messages.create(messages=history, **options)
        assert answer.stop_reason == "tool_use"
        assert [(block.id, block.name, block.input) for block in answer.content] == [
            ("toolu_Oslo", "weather", {"city": "Oslo"}),
            ("toolu_Rome", "weather", {"city": "Rome"}),
        ]
        outcomes = [result("toolu_Oslo", "rain"), result("toolu_Rome", [_text("sun")])]
        history += [assistant(answer.content), user([*outcomes, _text("Briefly.")])]
        assert chat.create(*history, tools=[WEATHER]).content[0].text == "Rain and sun."
        asked = chat.asked()
        assert [message["role"] for message in asked] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]
        assert [message["content"] for message in asked[2:]] == ["rain", "sun", "Briefly."]
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 7


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def test_the_tool_runner_of_the_client_runs_to_the_answer() -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The forecast for a city.

        Args:
            city: Where to look.
        """
        return f"rain in {city}"

    with served([ToolCall("weather", {"city": "Oslo"}, "toolu_1")], "It rains.") as chat:
        runner = chat.anthropic.beta.messages.tool_runner(
            model="sage", max_tokens=1000, tools=[weather], messages=[user("Weather in Oslo?")]
        )
        assert runner.until_done().content[0].text == "It rains."
        assert "rain in Oslo" in str(chat.asked())


def test_a_thread_is_continued_with_new_messages_alone() -> None:
    with served("The bowline.", "It holds.", "Yes.", "The sheet bend.") as chat:
        threads = chat.anthropic.beta.messages
        more: Any = {"model": "sage", "max_tokens": 1000, "system": "Be brief.", "tools": [WEATHER]}
        thread = threads.thread(**more)
        first = thread.send(user("Name a knot."))
        thread.send(user("Why?"))
        thread.send(user("Sure?"))
        assert [message["content"] for message in chat.asked()] == [
            "Be brief.",
            "Name a knot.",
            "The bowline.",
            "Why?",
            "It holds.",
            "Sure?",
        ]
        assert [tool.name for tool in chat.model.requests[-1].tools] == ["weather"]
        (session,) = chat.sessions()
        assert [branch["message_count"] for branch in chat.branches(session["id"])] == [7]

        again = chat.create(
            user("Another."),
            extra_body={"thread": {"type": "continue", "previous_message_id": first.id}},
        )
        assert again.content[0].text == "The sheet bend."
        assert [message["content"] for message in chat.asked()] == [
            "Be brief.",
            "Name a knot.",
            "The bowline.",
            "Another.",
        ]
        assert len(chat.branches(session["id"])) == 2


def test_a_thread_is_streamed_and_survives_the_server(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    create = {"thread": {"type": "create"}}
    with served("The bowline.", store=store) as chat:
        start, *_ = chat.create(user("A knot?"), stream=True, extra_body=create)
    with served("It holds.", store=store) as chat:
        proceed = {"thread": {"type": "continue", "previous_message_id": start.message.id}}
        assert chat.create(user("Why?"), extra_body=proceed).content[0].text == "It holds."
        assert len(chat.asked()) == 3


def test_a_thread_that_is_gone_is_sent_again_by_the_client() -> None:
    with served("The bowline.", "It holds.") as chat:
        thread = chat.anthropic.beta.messages.thread(model="sage", max_tokens=1000)
        thread.send(user("A knot?"))
        (session,) = chat.sessions()
        assert chat.server.delete(f"/api/sessions/{session['id']}").status_code == 204
        thread.send(user("Why?"))
        assert [message["content"] for message in chat.asked()] == [
            "A knot?",
            "The bowline.",
            "Why?",
        ]


def test_a_thread_of_another_user_is_not_found(tmp_path: Path) -> None:
    entries = [new_token(user=user, scopes=["read", "write", "run"]) for user in ("ada", "bob")]
    write_tokens(tmp_path / "tokens.json", [token for _, token in entries])
    (ada, bob), create = (plain for plain, _ in entries), {"thread": {"type": "create"}}
    with served("A bowline.", tokens=tmp_path / "tokens.json", key=ada) as chat:
        name = chat.create(user("A knot?"), extra_body=create).id
        proceed = {"thread": {"type": "continue", "previous_message_id": name}}
        with anthropic.Anthropic(base_url=chat.server.url, api_key=bob, max_retries=0) as client:
            more: Any = {"model": "sage", "max_tokens": 9, "messages": [user("Why?")]}
            with pytest.raises(anthropic.NotFoundError) as caught:
                client.messages.create(**more, extra_body=proceed)
        body: Any = caught.value.body
        assert body["error"]["details"] == {"error_code": "thread_not_found"}


def test_a_failed_tool_is_told_to_the_model() -> None:
    with served([ToolCall("weather", {}, "toolu_1")], "No forecast.") as chat:
        first = chat.create(user("Weather?"), tools=[WEATHER])
        failed = user([result("toolu_1", "no such city", is_error=True)])
        chat.create(user("Weather?"), assistant(first.content), failed, tools=[WEATHER])
        assert "no such city" in chat.asked()[-1]["content"]


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"type": "any"}, "required"),
        ({"type": "tool", "name": "weather"}, ["weather"]),
        ({"type": "auto", "disable_parallel_tool_use": True}, None),
    ],
)
def test_a_tool_choice_reaches_the_model(choice: Any, param: Any) -> None:
    with served([ToolCall("weather", {}, "toolu_1")]) as chat:
        chat.create(user("Weather?"), tools=[WEATHER], tool_choice=choice)
        params = chat.model.requests[-1].params
        assert params.get("tool_choice") == param
        is_alone = choice.get("disable_parallel_tool_use")
        assert params.get("parallel_tool_calls") is (False if is_alone else None)


def test_pictures_and_documents_reach_the_model() -> None:
    blocks = [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/knot.png"}},
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": b64encode(PNG).decode(),
            },
        },
        {
            "type": "document",
            "title": "Ashley",
            "source": {"type": "text", "media_type": "text/plain", "data": "#1010 is the bowline."},
        },
        {
            "type": "search_result",
            "title": "Knots",
            "source": "https://example.org",
            "content": [{"type": "text", "text": "A bend joins two ropes."}],
        },
        _text("Which is it?"),
    ]
    with served("The bowline.", "Yes.") as chat:
        first = chat.create(user(blocks))
        chat.create(user(blocks), assistant(first.content), user("Sure?"))
        shown = str(chat.asked()[0]["content"])
        assert "https://example.org/knot.png" in shown
        assert f"data:image/png;base64,{b64encode(PNG).decode()}" in shown
        assert "Ashley\\n#1010 is the bowline." in shown
        assert "Knots\\nhttps://example.org\\nA bend joins two ropes." in shown
        assert len(chat.branches(chat.sessions()[0]["id"])) == 1


def document(data: bytes, **more: Any) -> dict[str, Any]:
    kind = "application/pdf"
    source = {"type": "base64", "media_type": kind, "data": b64encode(data).decode()}
    return {"type": "document", "source": source, **more}


def test_pdfs_reach_the_model_and_are_recognised_when_they_come_again() -> None:
    address = {
        "type": "document",
        "source": {"type": "url", "url": "https://example.org/b.pdf"},
    }
    blocks = [_text("Read."), document(PDF, title="a.pdf"), address]
    with served("A knot.", "Yes.") as chat:
        first = chat.create(user(blocks))
        chat.create(user(blocks), assistant(first.content), user("Sure?"))
        assert [part_of_block(block) for block in chat.asked()[0]["content"][1:]] == [
            FilePart(PDF, "a.pdf"),
            FilePart("https://example.org/b.pdf"),
        ]
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 4


def test_pictures_and_documents_in_a_tool_result_belong_to_it() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/rain.png"}}
    with served([ToolCall("weather", {}, "toolu_1")], "It rains.", "Yes.") as chat:
        first = chat.create(user("Weather?"), tools=[WEATHER])
        seen = user([result("toolu_1", [_text("radar"), picture, document(PDF)])])
        history = [user("Weather?"), assistant(first.content), seen]
        second = chat.create(*history, tools=[WEATHER])
        tool = chat.asked()[-1]
        assert tool["role"] == "tool"
        assert tool["content"][0] == {"type": "text", "text": "radar"}
        assert [part_of_block(block) for block in tool["content"][1:]] == [
            ImagePart("https://example.org/rain.png"),
            FilePart(PDF),
        ]
        chat.create(*history, assistant(second.content), user("Sure?"), tools=[WEATHER])
        assert len(chat.branches(chat.sessions()[0]["id"])) == 1


def test_a_conversation_goes_on_in_either_api() -> None:
    with served("The bowline.", "It holds.", "The sheet bend.") as chat:
        chat.create(user("Name a knot."))
        history = [user("Name a knot."), assistant("The bowline."), user("Why?")]
        assert chat.ask(*history).choices[0].message.content == "It holds."
        history += [assistant("It holds."), user("Another.")]
        assert chat.create(*history).content[0].text == "The sheet bend."
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 6


def test_a_history_that_diverges_forks() -> None:
    with served("The bowline.", "It holds.", "The sheet bend.") as chat:
        start = [user("Name a knot."), assistant("The bowline.")]
        chat.create(start[0])
        chat.create(*start, user("Why?"))
        chat.create(*start, user("Another."))
        (session,) = chat.sessions()
        assert sorted(branch["message_count"] for branch in chat.branches(session["id"])) == [4, 4]


def test_thinking_and_blocks_of_other_models_may_be_sent_back() -> None:
    answer = [
        {"type": "thinking", "thinking": "Rope lore.", "signature": "of another model"},
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "The bowline."},
    ]
    with served("It holds.", "Yes.") as chat:
        history = [user("Name a knot."), assistant(answer), user("Why?")]
        chat.create(*history)
        chat.create(*history, assistant("It holds."), user("Sure?"))
        assert [message["content"] for message in chat.asked(0)] == [
            "Name a knot.",
            "The bowline.",
            "Why?",
        ]
        assert len(chat.branches(chat.sessions()[0]["id"])) == 1


def test_a_message_with_a_schema_is_parsed_by_the_client() -> None:
    class Knot(BaseModel):
        name: str

    with served('{"name": "bowline"}') as chat:
        message = chat.anthropic.messages.parse(
            model="sage", max_tokens=100, messages=[user("A knot?")], output_format=Knot
        )
        assert message.parsed_output == Knot(name="bowline")


def test_a_session_is_named_in_a_header() -> None:
    with served("The bowline.") as chat:
        chat.create(user("Name a knot."), extra_headers={"X-Sennit-Session": "knots"})
        assert chat.said("knots") == ["Name a knot.", "The bowline."]


def test_metadata_is_stored_and_may_name_a_session() -> None:
    with served("The bowline.") as chat:
        chat.create(user("A knot."), metadata={"user_id": None, "session": "knots"})
        assert chat.said("knots") == ["A knot.", "The bowline."]


def test_nothing_is_stored_without_store() -> None:
    with served("The bowline.") as chat:
        chat.create(user("Name a knot."), extra_body={"store": False})
        assert chat.sessions() == []


def test_what_changes_nothing_is_taken_and_noted() -> None:
    with served("The bowline.") as chat:
        answer = chat.anthropic.messages.with_raw_response.create(
            model="sage",
            max_tokens=100,
            messages=[user([_text("A knot?")])],
            system=[_text("Be brief.")],
            service_tier="auto",
            extra_headers={"anthropic-beta": "context-management-2025-06-27"},
            extra_body={"context_management": {"edits": []}, "top_k": 5},
        )
        assert answer.headers["x-ignored-fields"] == "context_management, top_k"
        assert answer.headers["request-id"].startswith("req_")
        assert chat.asked()[0] == {"role": "system", "content": "Be brief."}


def test_tokens_are_counted_without_asking_the_model() -> None:
    with served() as chat:
        few, many = (
            chat.anthropic.messages.count_tokens(
                model="sage", messages=[user("Name a knot. " * count)], tools=[WEATHER], system="Hi"
            ).input_tokens
            for count in (1, 100)
        )
        assert 20 < few < 100
        assert 250 < many - few < 400
        assert chat.sessions() == []


def test_the_models_are_listed() -> None:
    with served() as chat:
        (model,) = chat.anthropic.models.list().data
        assert (model.id, model.type, model.display_name) == ("sage", "model", "sage")
        assert chat.anthropic.models.retrieve("sage").created_at.year == 1970


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no message": ({"messages": []}, "at least one message"),
    "a prefilled answer": (
        {"messages": [user("A knot?"), assistant("The")]},
        "answers cannot be prefilled",
    ),
    "an unknown block": ({"messages": [user([{"type": "hologram"}])]}, "'hologram'"),
    "a block that is none": ({"messages": [user([result("t", 5)])]}, "a list of blocks"),
    "a block without a type": ({"messages": [user([{"text": "x"}])]}, "needs a 'type'"),
    "a picture that is none": (
        {
            "messages": [
                user(
                    [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": b64encode(b"no picture, I fear").decode(),
                            },
                        }
                    ]
                )
            ]
        },
        "PNG, JPEG, GIF or WebP",
    ),
    "a file of a picture": (
        {"messages": [user([{"type": "image", "source": {"type": "file", "file_id": "f"}}])]},
        "'url', or 'base64'",
    ),
    "a PDF that is none": (
        {
            "messages": [
                user(
                    [
                        {
                            "type": "document",
                            "source": {
                                "type": "base64",
                                "media_type": "application/pdf",
                                "data": b64encode(b"no PDF").decode(),
                            },
                        }
                    ]
                )
            ]
        },
        "not of the type 'application/pdf'",
    ),
    "a result without a call": ({"messages": [user([result("toolu_9", "x")])]}, "'toolu_9'"),
    "a result without an id": (
        {"messages": [user([{"type": "tool_result", "content": "x"}])]},
        "'tool_use_id'",
    ),
    "a call without a result": (
        {
            "messages": [
                user("Weather?"),
                assistant([{"type": "tool_use", "id": "toolu_1", "name": "w", "input": {}}]),
                user("Well?"),
            ]
        },
        "toolu_1",
    ),
    "a tool of Anthropic's": (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "'web_search_20250305'",
    ),
    "a choice that is not offered": (
        {"tool_choice": {"type": "tool", "name": "dig"}, "tools": [WEATHER]},
        "'dig'",
    ),
    "a choice without tools": ({"tool_choice": {"type": "any"}}, "not in 'tools'"),
    "a container": ({"container": "c_1"}, "'container' is not supported"),
    "servers of tools": (
        {"extra_body": {"mcp_servers": [{"type": "url", "url": "https://example.org"}]}},
        "'mcp_servers' is not supported",
    ),
    "a thread that is not stored": (
        {"extra_body": {"thread": {"type": "create"}, "store": False}},
        "A thread is stored",
    ),
    "no tokens": ({"max_tokens": 0}, "at least 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_400_that_says_what_is_wrong(case: str) -> None:
    fields, reason = BAD[case]
    with served() as chat, pytest.raises(anthropic.BadRequestError) as caught:
        chat.create(**{"messages": [user("A knot?")], **fields})
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert reason in body["error"]["message"]
    assert chat.model.requests == []


def test_errors_have_the_form_of_anthropic() -> None:
    with served(limits=Limits(items=2)) as chat:
        with pytest.raises(anthropic.NotFoundError) as missing:
            chat.create(user("A knot?"), model="oracle")
        assert _type(missing.value) == "not_found_error"
        with pytest.raises(anthropic.APIStatusError) as large:
            chat.create(*[user("A knot?")] * 3)
        assert large.value.status_code == 413
        assert _type(large.value) == "request_too_large"
        answer = chat.server.get("/v1/messages")
        assert answer.status_code == 405
        assert answer.json()["type"] == "error"


def _type(error: anthropic.APIStatusError) -> str:
    body: Any = error.body
    assert body["type"] == "error"
    return body["error"]["type"]


@pytest.mark.parametrize(
    ("kind", "error", "name"),
    [
        ("rate_limit", anthropic.RateLimitError, "rate_limit_error"),
        ("overloaded", anthropic.InternalServerError, "overloaded_error"),
        ("timeout", anthropic.InternalServerError, "timeout_error"),
        ("network", anthropic.InternalServerError, "api_error"),
        ("context", anthropic.BadRequestError, "invalid_request_error"),
    ],
)
def test_a_failure_of_the_model_has_a_status_and_a_type(kind: Any, error: Any, name: str) -> None:
    failures = [ModelError("The model failed.", kind=kind)] * 2
    with served(*failures) as chat:
        with pytest.raises(error) as whole:
            chat.create(user("A knot?"))
        assert _type(whole.value) == name
        with pytest.raises(anthropic.APIStatusError) as streamed:
            list(chat.create(user("A bend?"), stream=True))
        assert _type(streamed.value) == name


def test_a_token_is_taken_from_the_header_of_either_client(tmp_path: Path) -> None:
    plain, token = new_token(user="ada", scopes=["read", "write", "run"])
    write_tokens(tmp_path / "tokens.json", [token])
    with served("A bowline.", "A bend.", tokens=tmp_path / "tokens.json", key=plain) as chat:
        assert chat.create(user("A knot?")).content[0].text == "A bowline."
        other = anthropic.Anthropic(
            base_url=chat.server.url, auth_token=plain, api_key=None, max_retries=0
        )
        with other as client:
            more: Any = {"model": "sage", "max_tokens": 9, "messages": [user("Another?")]}
            assert client.messages.create(**more).content[0].text == "A bend."
        with (
            anthropic.Anthropic(base_url=chat.server.url, api_key="snt_wrong") as client,
            pytest.raises(anthropic.AuthenticationError) as caught,
        ):
            client.messages.create(**more)
        assert _type(caught.value) == "authentication_error"


def test_two_keys_in_one_request_are_refused(tmp_path: Path) -> None:
    with served() as chat:
        headers = [("x-api-key", "one"), ("x-api-key", "two")]
        answer = httpx.get(f"{chat.server.url}/v1/models", headers=headers, trust_env=False)
        assert answer.status_code == 400
        assert "X-Api-Key" in answer.json()["error"]["message"]
