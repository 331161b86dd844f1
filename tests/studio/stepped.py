"""A model that says one piece when the test says so: what is seen in between can be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from threading import Event

from sennit.services.models.reply import CallDelta, Delta, Finished, Reply, TextDelta, Usage
from sennit.services.models.request import ModelRequest


class SteppedModel:
    """Waits for `say`, `call`, `finish` and `fail` from the test's thread."""

    window = None
    streams = True
    supports_output_schema = False

    def __init__(self, name: str = "stepped") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._asked = Event()

    async def aask(self, request: ModelRequest) -> Reply:
        raise NotImplementedError("the studio streams")

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        self.loop, self._pieces = asyncio.get_running_loop(), asyncio.Queue[Delta | Exception]()
        self.requests.append(request)
        self._asked.set()
        yield self._said(self._pieces)

    async def _said(self, pieces: asyncio.Queue[Delta | Exception]) -> AsyncIterator[Delta]:
        while True:
            piece = await pieces.get()
            if isinstance(piece, Exception):
                raise piece
            yield piece
            if isinstance(piece, Finished):
                return

    def say(self, text: str) -> None:
        self._put(TextDelta(text))

    def call(self, name: str, arguments: str, id: str) -> None:
        self._put(CallDelta(0, id, name, arguments))
        self._end("tool_calls")

    def finish(self) -> None:
        self._end("stop")

    def fail(self, error: Exception) -> None:
        self._put(error)

    def _end(self, reason: str) -> None:
        self._put(Finished(reason, Usage(120, 30), self.name))  # pyright: ignore[reportArgumentType]

    def wait_until_asked(self) -> None:
        """Wait until the next thing it says is heard."""
        assert self._asked.wait(20), "nobody asks the model"

    def _put(self, piece: Delta | Exception) -> None:
        self.wait_until_asked()
        if isinstance(piece, Finished | Exception):
            self._asked.clear()  # before the server hears it: it may ask again at once
        self.loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def forget(self) -> None:
        """Nobody listens to the last answer any more: wait for the next question."""
        self._asked.clear()
