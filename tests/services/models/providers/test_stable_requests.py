"""The bodies of requests, as providers get them: each begins with the bytes of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sennit
from sennit import InstructionContent, Message, iModel
from sennit.memory import MemoryContext
from sennit.services.tools.tool import Tool
from tests.services.conftest import KEY
from tests.services.provider_replies import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Provider
from tests.services.wire_server import WireServer, answer

pytestmark = pytest.mark.usefixtures("google_sdk")
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA"
    "60e6kgAAAABJRU5ErkJggg=="
)
THOUGHTS: dict[str, dict[str, Any]] = {
    ANTHROPIC.model: {"type": "thinking", "thinking": "Add them.", "signature": "U0lHTg=="},
    RESPONSES.model: {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Add them."}],
        "encrypted_content": "RU5D",
    },
    GOOGLE.model: {"text": "Add them.", "thought": True},
    CHAT.model: {"reasoning_content": "Add them."},
}
ACTS = (
    "say",
    "think",
    "tool",
    "think and tool",
    "image",
    "steer",
    "approve",
    "deny",
    "fail",
    "cancel",
    "fork",
    "reopen",
    "learn",
)


def numbered(item: Any, number: int) -> Any:
    """An item of a reply with ids of its own."""
    text = json.dumps(item).replace('_1"', f'_{number}"').replace('"c1"', f'"c{number}"')
    return json.loads(text)


def prefix(provider: Provider, body: Mapping[str, Any]) -> list[str]:
    """The cacheable parts of a request in order, as bytes; what marks a cache is no part of it."""

    def whole(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: whole(value) for name, value in part.items() if name != "cache_control"}
        return [whole(one) for one in part] if isinstance(part, list) else part

    def blocks(messages: list[Any], name: str) -> list[Any]:
        """The blocks of messages: those of two messages of one role stand in one."""
        return [
            [message["role"], block]
            for message in messages
            for block in (
                message[name] if isinstance(message[name], list) else [{"text": message[name]}]
            )
        ]

    if provider is ANTHROPIC:
        parts = [body.get("tools"), body.get("system"), *blocks(body["messages"], "content")]
    elif provider is GOOGLE:
        parts = [body.get("tools"), body.get("systemInstruction")]
        parts += blocks(body["contents"], "parts")
    elif provider is RESPONSES:
        parts = [body.get("tools"), body.get("instructions"), *body["input"]]
    else:
        parts = [body.get("tools"), *body["messages"]]
    return [json.dumps(whole(part)) for part in parts]


class Story:
    """A conversation at a provider, and what happens to it."""

    def __init__(self, server: WireServer, provider: Provider, client: sennit.Client) -> None:
        self.server, self.provider, self.client = server, provider, client
        self.model = iModel(
            provider.model, base_url=f"{server.url}{provider.path}", api_key=KEY, retry=None
        )
        before = client.session("before")
        for text in ("My name is Nora.", "My parrot is called Kiki.", "I bought a kiln."):
            before.add_message("user", text)
            before.add_message("assistant", "I see.")
        before.commit()
        self.session = client.session("now")
        self.branch = self.session.create_branch("main", system="Be kind.")
        self.in_tool = ""
        self.number = 0
        self.before: list[str] = []

    def chat(self) -> Any:
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            if self.in_tool == "steer":
                chat.steer("And be brief.")
            elif self.in_tool == "cancel":
                chat.cancel("now")
            return a + b

        add_tool = Tool(add, needs_approval=self.in_tool in ("approve", "deny"))
        chat = self.session.conversation(
            self.branch,
            model=self.model,
            tools=[add_tool],
            contexts=[MemoryContext(self.client.memory)],
        )
        return chat

    def do(self, act: str) -> None:
        self.number += 1
        number, chat_text = self.number, f"Who am I, question {self.number}?"
        if act == "fork":
            self.branch = self.branch.fork(system=True)
        elif act == "reopen":
            self.session = self.client.session("now")
            self.branch = self.session.get_branch(self.branch.id)
        elif act == "learn":
            other = self.client.session(f"other {number}")
            other.add_message("user", f"I live in house {number}.")
            other.commit()
        else:
            self.in_tool = act if act in ("steer", "approve", "deny", "cancel") else ""
            self.say(act, chat_text)
            self.compare()

    def say(self, act: str, text: str) -> None:
        written, calls = self.provider.whole, "tool" in act or bool(self.in_tool)
        thought = [THOUGHTS[self.provider.model]] if "think" in act else []
        last = [self.provider.text(f"Answer {self.number}.")]
        replies = [numbered([*thought, *last], self.number + 1000)]
        if calls:
            replies.insert(0, numbered([*thought, self.provider.call()], self.number))
        self.server.asked.clear()
        self.server.says(*map(written, replies))
        if act == "fail":
            self.server.says(answer({"error": {"message": "Out of yarn"}}, status=500))
        chat = self.chat()
        if act == "image":
            content = InstructionContent.create(instruction=text, images=[PIXEL])
            result = chat.say(Message(content))
        else:
            result = chat.say(text)
        for call in chat.pending_approvals():
            result = chat.approve(call) if act == "approve" else chat.deny(call, "No.")
        expected = {"fail": "error", "cancel": "cancelled"}.get(act, "stable")
        assert result.stop_reason == expected, (act, result.notices)

    def compare(self) -> None:
        assert self.server.asked
        for asked in self.server.asked:
            now = prefix(self.provider, asked.body)
            assert now[: len(self.before)] == self.before
            self.before = now


@contextmanager
def story(server: WireServer, provider: Provider) -> Iterator[Story]:
    with sennit.open(":memory:", user="ada") as client:
        yield Story(server, provider, client)


PROVIDERS = pytest.mark.parametrize(
    "provider",
    [CHAT, RESPONSES, ANTHROPIC, GOOGLE],
    ids=["chat", "responses", "anthropic", "google"],
)


@PROVIDERS
@pytest.mark.parametrize("act", [act for act in ACTS if act not in ("fork", "reopen", "learn")])
def test_a_request_begins_with_the_one_before(
    server: WireServer, provider: Provider, act: str
) -> None:
    with story(server, provider) as told:
        for step in ("say", act, "say", act, "tool"):
            told.do(step)
        assert "Nora" in "".join(told.before)


@PROVIDERS
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.sampled_from(ACTS), min_size=4, max_size=10))
def test_whatever_happens_a_request_begins_with_the_one_before(
    server: WireServer, provider: Provider, acts: list[str]
) -> None:
    with story(server, provider) as told:
        for act in (*acts, "say"):
            told.do(act)
