"""A server whose model says what a test scripts, and Anthropic's official client pointed at it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anthropic import Anthropic

from sennit.testing import ScriptedModel
from tests.http_server import Running, serving
from tests.openai_client import Chat
from tests.openai_client import client as openai_client


class Messages(Chat):
    """The server, asked through Anthropic's client; `ask` still asks through OpenAI's."""

    def __init__(self, server: Running, anthropic: Anthropic, openai: Any, model: Any) -> None:
        super().__init__(server, openai, model)
        self.anthropic: Any = anthropic

    def create(self, *messages: Any, **more: Any) -> Any:
        fields = {"model": "sage", "max_tokens": 1000, "messages": list(messages), **more}
        return self.anthropic.messages.create(**fields)


@contextmanager
def served(
    *replies: Any, store: str | Path = ":memory:", key: str = "none", **more: Any
) -> Generator[Messages]:
    """A server whose model says these things, and the official client pointed at it."""
    serve = {name: more.pop(name) for name in ("limits", "tokens") if name in more}
    model = ScriptedModel(replies, name="sage", **more)
    with (
        serving(store, models=[model], **serve) as server,
        Anthropic(base_url=server.url, api_key=key, max_retries=0) as anthropic,
        openai_client(server) as openai,
    ):
        yield Messages(server, anthropic, openai, model)
