"""The state of a provider's replies is stored with them, on every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sennit
from sennit.turns.conversation import ConversationSession
from tests.services.models.providers.test_provider_state import (
    REASONING,
    conversation,
    replies,
    say,
    without_defaults,
)
from tests.services.provider_replies import RESPONSES
from tests.services.wire_server import WireServer, running

pytest_plugins = ("tests.durable",)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        yield server


def test_the_state_is_stored_and_survives_a_fork_an_archive_and_another_client(
    wire: WireServer, address: str, tmp_path: Path
) -> None:
    items = replies(wire, RESPONSES, REASONING)
    with sennit.open(address) as client:
        chat = conversation(wire, RESPONSES, client.session("sums"))
        say(chat, "1 + 2?")
        fork = client.session("sums").fork("main", name="other")
        client.export(tmp_path / "sums.zip")
        chats: list[Callable[[], ConversationSession]] = [
            lambda: client.session("sums").conversation(fork, model=chat.request.model)
        ]
        with sennit.open(tmp_path / "moved.db") as moved:
            moved.import_sessions(tmp_path / "sums.zip")
            session = moved.session("sums")
            chats.append(lambda: session.conversation(model=chat.request.model))
            for open_chat in chats:
                say(open_chat(), "And again?")
                sent = [without_defaults(one) for one in RESPONSES.sent(wire.body)]
                assert sent[0] == without_defaults(items[0])
    with sennit.open(address) as client:
        say(conversation(wire, RESPONSES, client.session("sums")), "And again?")
        assert RESPONSES.sent(wire.body)[0]["encrypted_content"] == "RU5D"
