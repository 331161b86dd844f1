"""Programs read what a provider sent with a reply, whatever the provider calls it."""

from __future__ import annotations

from typing import Any

import pytest

from sennit import AssistantResponseContent, Message
from sennit.messages import ProviderReply
from tests.services.models.providers.test_compatible import CITATION
from tests.services.models.providers.test_kinds import anthropic_items, openai_item, play
from tests.services.provider_replies import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Provider
from tests.services.wire_server import WireServer

pytestmark = pytest.mark.usefixtures("google_sdk")
URL = "https://sums.example"
CITED = {"type": "web_search_result_location", "url": URL, "title": "Sums", "cited_text": "3"}
ANNOTATED = {"type": "url_citation", "url": URL, "title": "Sums", "start_index": 0, "end_index": 1}
OUTPUT: dict[str, Any] = RESPONSES.text("Well. ") | {"id": "msg_9"}
CITATIONS: dict[str, tuple[Provider, list[Any], tuple[str, str, str]]] = {
    "anthropic": (
        ANTHROPIC,
        [{"type": "text", "text": "Well. ", "citations": [CITED]}],
        (URL, "Sums", "3"),
    ),
    "responses": (
        RESPONSES,
        [OUTPUT | {"content": [{**OUTPUT["content"][0], "annotations": [ANNOTATED]}]}],
        (URL, "Sums", ""),
    ),
    "chat": (CHAT, [{"annotations": [CITATION]}], ("https://a.example", "A", "")),
}
CALLS: dict[str, tuple[Provider, list[Any], tuple[str, Any, Any]]] = {
    "anthropic": (
        ANTHROPIC,
        [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
            anthropic_items("web_search_tool_result")[1] | {"tool_use_id": "s1"},
        ],
        ("web_search", {"query": "x"}, anthropic_items("web_search_tool_result")[1]["content"]),
    ),
    "responses mcp": (RESPONSES, [openai_item("mcp_call")], ("x", '{"x": 1}', "x")),
    "responses code": (
        RESPONSES,
        [openai_item("code_interpreter_call")],
        ("code_interpreter", "x", openai_item("code_interpreter_call")["outputs"]),
    ),
    "google code": (
        GOOGLE,
        [{"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}}],
        ("code_execution", {"code": "1"}, {"output": "1"}),
    ),
    "google search": (
        GOOGLE,
        [
            {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "args": {"q": "x"}}},
            {"toolResponse": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "response": {"a": 1}}},
        ],
        ("google_search_web", {"q": "x"}, {"a": 1}),
    ),
    "groq": (
        CHAT,
        [{"executed_tools": [{"type": "search", "arguments": "{}", "output": "x"}]}],
        ("search", "{}", "x"),
    ),
}


@pytest.mark.parametrize("name", CITATIONS)
def test_citations_are_read(server: WireServer, name: str) -> None:
    provider, items, expected = CITATIONS[name]
    chat, result = play(server, provider, items, stream=False)
    (citation,) = ProviderReply.of(chat.request.branch.messages).citations
    assert (citation.url, citation.title, citation.text) == expected
    assert ProviderReply.of(result.body.interactions).citations == (citation,)


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_the_provider_s_tools_are_read(server: WireServer, name: str) -> None:
    provider, items, expected = CALLS[name]
    _, result = play(server, provider, items, stream=False)
    (call,) = ProviderReply.of(result.body.interactions).tool_calls
    assert (call.name, call.arguments, call.result) == expected


def test_a_refusal_is_read(server: WireServer) -> None:
    item = OUTPUT | {"content": [{"type": "refusal", "refusal": "I will not."}]}
    _, result = play(server, RESPONSES, [item], stream=True)
    provided = ProviderReply.of(result.body.interactions)
    assert (provided.refusal, provided.provider) == ("I will not.", "openai-responses")


def test_messages_without_state_have_nothing() -> None:
    state = {"provider": "x", "parts": ["{", 3], "response": "?"}
    content = AssistantResponseContent(assistant_response="Hi.")
    damaged = Message(content, metadata={"provider_state": state})
    provided = ProviderReply.of([damaged])
    assert (provided.items, provided.details, provided.logprobs) == ((), (), None)
