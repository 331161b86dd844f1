"""`sennit chat` with a model that says what the test wants; run as a program by the tests.

    python scripted_chat.py [--session NAME] [--commit] [--no-memory] [--held PIPE]
        [--stuck PIPE] [--connecting PIPE] [--replay HOW] [--yes] [--no-tools] STORE [REPLY …]

A reply that ends in "…" is never finished: the model says it and then hangs. One that begins with
"→" calls the tool `note` with the rest; it asks first, and writes to STORE.notes. With --stuck the
tool hangs once it has written, and opens the named pipe PIPE to say so. The reply
"what you said" repeats what the model was asked last, contexts and all. Commits take until somebody
opens the named pipe PIPE.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import sennit
from sennit import Tool
from sennit.cli.chat.conversation import ChatOptions
from sennit.cli.chat.run import run
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall, faults


class Hanging:
    """Says all of it but the end."""

    def __init__(self, model: ScriptedModel, connecting: str | None = None) -> None:
        self.name, self._connecting = model.name, connecting
        self.streams, self.supports_output_schema = True, False
        self._model = model

    @property
    def window(self) -> int | None:
        """Known once it is connected, which takes until somebody opens the named pipe."""
        if self._connecting is not None:
            Path(self._connecting).read_bytes()
            self._connecting = None
        return self._model.window

    async def aask(self, request: ModelRequest) -> Reply:
        return await self._model.aask(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with self._model.stream(request) as deltas:
            yield _until_the_dots(deltas)


async def _until_the_dots(deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    async for delta in deltas:
        yield delta
        if getattr(delta, "text", "").endswith("…"):
            await asyncio.Event().wait()


def scripted(reply: str) -> Any:
    """A reply as the model takes it."""
    if reply == "what you said":
        return lambda request: str(request.messages[-1]["content"])
    return [ToolCall("note", {"text": reply[1:]})] if reply[0] == "→" else reply


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--session", default="chat")
    parser.add_argument("--commit", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--held")
    parser.add_argument("--stuck")
    parser.add_argument("--connecting")
    parser.add_argument("--replay", default="never")
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("--no-tools", action="store_true")
    parser.add_argument("store")
    parser.add_argument("replies", nargs="*")
    given = parser.parse_args()
    store = given.store
    model = Hanging(
        ScriptedModel([scripted(one) for one in given.replies], chunk=5), given.connecting
    )

    def note(text: str) -> str:
        """Write something down."""
        with open(f"{store}.notes", "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        if given.stuck is not None:
            Path(given.stuck).write_bytes(b"")
            Event().wait()
        return "written"

    def wait(_: str) -> None:
        if given.held is not None:
            Path(given.held).read_bytes()

    with faults.arm("memory.commit: thought", wait), sennit.open(store) as client:
        tool = Tool(note, needs_approval=not given.yes, replay=given.replay)
        tools = () if given.no_tools else (tool,)
        partner = ChatOptions(model=model, tools=tools, use_memory=not given.no_memory)
        sys.exit(run(client, partner, name=given.session, commit=given.commit))
