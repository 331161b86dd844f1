"""`sennit chat` with a model that says what the test wants; run as a program by the tests.

    python scripted_chat.py STORE [REPLY …]

A reply that ends in "…" is never finished: the model says it and then hangs. One that begins with
"→" calls the tool `note` with the rest; it asks first, and writes to STORE.notes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import sennit
from sennit import Tool
from sennit.cli.chat import start
from sennit.cli.talk import Partner
from sennit.services.reply import Delta, Reply
from sennit.services.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall


class Hanging:
    """Says all of it but the end."""

    def __init__(self, model: ScriptedModel) -> None:
        self.name, self.window = model.name, model.window
        self.streams, self.shapes_output = True, False
        self._model = model

    async def ask(self, request: ModelRequest) -> Reply:
        return await self._model.ask(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with self._model.stream(request) as deltas:
            yield _until_the_dots(deltas)


async def _until_the_dots(deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    async for delta in deltas:
        yield delta
        if getattr(delta, "text", "").endswith("…"):
            await asyncio.Event().wait()


if __name__ == "__main__":
    store, *replies = sys.argv[1:]
    script = [[ToolCall("note", {"text": one[1:]})] if one[0] == "→" else one for one in replies]
    model = Hanging(ScriptedModel(script, chunk=5))

    def note(text: str) -> str:
        """Write something down."""
        with open(f"{store}.notes", "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        return "written"

    with sennit.open(store) as client:
        sys.exit(start(client, Partner(model=model, tools=(Tool(note, needs_approval=True),))))
