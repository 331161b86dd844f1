"""A server whose model says what a test scripts, and OpenAI's official client pointed at it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import OpenAI

from sennit.testing import ScriptedModel
from tests.http_server import Running, serving


@contextmanager
def served(*replies: Any, store: str | Path = ":memory:", **more: Any) -> Generator[Chat]:
    """A server whose model says these things, and the official client pointed at it."""
    model = ScriptedModel(replies, name="sage", **more)
    with serving(store, models=[model]) as server, client(server) as openai:
        yield Chat(server, openai, model)


def client(server: Running, key: str = "none") -> Any:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


class Chat:
    def __init__(self, server: Running, openai: OpenAI, model: ScriptedModel) -> None:
        self.server, self.model = server, model
        self.openai: Any = openai

    def ask(self, *messages: Any, **more: Any) -> Any:
        return self.openai.chat.completions.create(model="sage", messages=list(messages), **more)

    def asked(self, number: int = -1) -> list[Any]:
        """What the model was shown."""
        return [dict(one) for one in self.model.requests[number].messages]

    def sessions(self) -> list[Any]:
        return self.server.get("/api/sessions").json()["sessions"]

    def branches(self, session: str) -> list[Any]:
        return self.server.get(f"/api/sessions/{session}").json()["branches"]

    def said(self, session: str, branch: str = "main") -> list[str]:
        path = f"/api/sessions/{session}/branches/{branch}/messages"
        return [one["text"] for one in self.server.get(path).json()["messages"]]
