"""Hops of four common paths: the files, functions and calls of ours that one operation passes.

Each path runs once to load what is imported late, then once more while a profile
hook counts. `python -m scripts.hops` prints the table.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sennit
from sennit.testing import ScriptedModel, ToolCall

SOURCE = str(Path(sennit.__file__).parent)


@dataclass(slots=True)
class Hops:
    """Calls of our own functions while a path ran."""

    calls: int = 0
    functions: set[CodeType] = field(default_factory=set[CodeType])

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}


_current: Hops | None = None


def _profile(frame: FrameType, event: str, _argument: Any) -> None:
    if _current and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
        _current.calls += 1
        _current.functions.add(frame.f_code)


@contextmanager
def traced() -> Generator[Hops]:
    """Count our calls in every thread that was started under the profile hook."""
    global _current
    _current = hops = Hops()
    try:
        yield hops
    finally:
        _current = None


def append(folder: Path) -> Hops:
    """The second message of a session, on SQLite."""
    with sennit.open(str(folder / "append.db")) as client:
        session = client.session("hops")
        session.add_message("user", "One")
        session.add_message("user", "Two")
        with traced() as hops:
            session.add_message("user", "Three")
    return hops


def streamed_turn(folder: Path) -> Hops:
    """A streamed turn with one tool call, on SQLite."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def turn(session: sennit.Session) -> None:
        replies = [[ToolCall("add", {"a": 1, "b": 2})], "Three."]
        conversation = session.conversation(
            session.default_branch, model=ScriptedModel(replies), tools=[add]
        )
        session.add_message("user", "Add one and two.")
        async with conversation.stream() as pieces:
            async for _ in pieces:
                pass

    with sennit.open(str(folder / "turn.db")) as client:
        session = client.session("hops")
        asyncio.run(turn(session))
        with traced() as hops:
            asyncio.run(turn(session))
    return hops


def commit(folder: Path) -> Hops:
    """A commit of one message, with rules."""
    with sennit.open(str(folder / "commit.db")) as client:
        session = client.session("hops")
        session.add_message("user", "I live in Lisbon and I prefer tea.")
        session.commit()
        session.add_message("user", "I live in Porto and I prefer coffee.")
        with traced() as hops:
            session.commit()
    return hops


def completion(folder: Path) -> Hops:
    """A chat completion that continues a conversation."""
    from starlette.testclient import TestClient

    from sennit.server.app import create_app
    from sennit.server.settings import ServerSettings

    model = ScriptedModel(["First.", "Second.", "Third."])
    settings = ServerSettings(url=str(folder / "server.db"), models=(model,))
    messages: list[dict[str, str]] = []
    hops = Hops()
    with TestClient(create_app(settings), base_url="http://127.0.0.1:8765") as http:
        for number in range(3):
            messages.append({"role": "user", "content": f"Question {number}"})
            body = {"model": model.name, "messages": messages}
            with traced() as hops:
                answer = http.post("/v1/chat/completions", json=body)
            messages.append(answer.json()["choices"][0]["message"])
    return hops


PATHS: dict[str, Callable[[Path], Hops]] = {
    "the next `add_message`, SQLite": append,
    "a streamed turn with a tool call, SQLite": streamed_turn,
    "`commit()` of one message, rules": commit,
    "a chat completion that continues a conversation": completion,
}


def main() -> None:
    """Print a row per path."""
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    print("| path | files | functions | calls |\n|---|--:|--:|--:|")
    for name, path in PATHS.items():
        with tempfile.TemporaryDirectory() as folder:
            hops = path(Path(folder))
        print(f"| {name} | {len(hops.files)} | {len(hops.functions)} | {hops.calls:,} |")


if __name__ == "__main__":
    main()
