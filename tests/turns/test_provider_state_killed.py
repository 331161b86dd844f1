"""A program that is killed in a reply goes on, and its provider takes every request."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit.sessions.session import SessionCore
from sennit.testing import faults
from sennit.turns.conversation import ConversationSession
from tests.conversation_fixtures import PLAIN, add
from tests.services.conftest import KEY
from tests.services.models.providers.test_kinds import CHECKS
from tests.services.models.providers.test_provider_state import REASONING, THINKING, say
from tests.services.provider_replies import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Provider
from tests.services.provider_rules import check_chat
from tests.services.wire_server import Step, WireServer, running
from tests.torture.fork_server import ForkServer, Job, Say

pytest_plugins = ("tests.durable",)
PROVIDERS: Mapping[str, tuple[Provider, dict[str, Any], str]] = {
    "anthropic": (ANTHROPIC, THINKING, '"signature": "U0lHTg=="'),
    "google": (GOOGLE, {"text": "Add them.", "thought": True}, '"thoughtSignature": "U0lHMw=="'),
    "responses": (RESPONSES, REASONING, '"encrypted_content": "RU5D"'),
    "chat": (CHAT, {"reasoning_content": "Add them."}, '"reasoning_content": "Add them."'),
}
"""The reasoning of each provider, and what must be in a request that has it."""
# Each child imports the packages of its provider: seconds of work.
MOMENTS = (
    pytest.param("reasoning.delta", marks=pytest.mark.slow),
    pytest.param("message.completed", marks=pytest.mark.slow),
    "tool.started",
    pytest.param("tool.completed", marks=pytest.mark.slow),
)
QUESTIONS = ("1 + 2?", "Sure?")


@dataclass
class Answers:
    """What a provider says to each request: it thinks and calls a tool, then it knows."""

    server: WireServer
    provider: Provider
    reasoning: dict[str, Any]

    replies: int = 0

    def reply(self) -> list[dict[str, Any]]:
        """Return a reply with ids of its own."""
        self.replies += 1
        items = [self.reasoning, self.provider.text("Let me."), self.provider.call()]
        text = json.dumps(items)
        for id in ("rs_1", "msg_1", "fc_1", "call_1", "toolu_1", '"c1'):
            text = text.replace(id, f"{id}{self.replies}")
        return json.loads(text)

    def __iter__(self) -> Iterator[Step]:
        asked = self.server.asked[-1]
        stream = asked.body.get("stream") or "stream" in asked.path
        written = self.provider.streamed if stream else self.provider.whole
        body = json.dumps(asked.body)
        if QUESTIONS[1] in body:
            return iter(written([self._text("Yes.", 3)]))
        # Only a result of the tool is "3".
        known = '"3"' in body or '{"return_value": 3}' in body or '"result": 3' in body
        said = [self._text("It is 3.", 2)] if known else self.reply()
        return iter(written(said))

    def _text(self, text: str, number: int) -> dict[str, Any]:
        item = self.provider.text(text)
        return item | ({"id": f"msg_{number}"} if "id" in item else {})


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with warnings.catch_warnings():  # Python warns of a literal in it when compiling it
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("google.genai.types")
    with running() as server:
        yield server


def talk(session: SessionCore, url: str, name: str) -> ConversationSession:
    provider = PROVIDERS[name][0]
    model = sennit.iModel(provider.model, base_url=url + provider.path, api_key=KEY, retry=None)
    assert isinstance(session, sennit.Session)
    return session.conversation(model=model, tools=[add])


def die_at(job: Job, _: Say) -> None:
    """Ask, and die when an event of a kind was shown."""

    async def watch(chat: ConversationSession) -> None:
        async with chat.events(QUESTIONS[0], streaming_options=PLAIN) as events:
            async for event in events:
                if event.kind == job["moment"]:
                    faults.kill("")

    with sennit.open(job["address"]) as client:
        asyncio.run(watch(talk(client.session("sums"), job["url"], job["provider"])))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_takes_every_request_of_a_program_that_is_killed_and_goes_on(
    wire: WireServer, fork_server: ForkServer, address: str, tmp_path: Path, name: str, moment: str
) -> None:
    provider, reasoning, mark = PROVIDERS[name]
    answers = Answers(wire, provider, reasoning)
    wire.says(answers)
    job = {"address": address, "url": wire.url, "provider": name, "moment": moment}
    died = fork_server.run({"do": "turns.test_provider_state_killed.die_at", **job})
    assert died == (-9, [])
    with sennit.open(address) as client:
        chat = talk(client.session("sums"), wire.url, name)
        chat.resume().raise_for_error()
        say(chat, QUESTIONS[1], stream=True)
        client.export(tmp_path / "sums.zip")
    with sennit.open(tmp_path / "moved.db") as moved:
        moved.import_sessions(tmp_path / "sums.zip")
        say(talk(moved.session("sums"), wire.url, name), QUESTIONS[1], stream=True)
    for asked in wire.asked:
        if provider is CHAT:
            check_chat(asked.body, "deepseek")
        else:
            CHECKS[provider](asked.body)
    assert mark in json.dumps(wire.body)
