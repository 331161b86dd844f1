"""Models and requests that tests of services share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sennit import ModelError, iModel
from sennit.errors import ModelErrorKind
from sennit.services.models.protocol import Model
from sennit.services.models.reply import (
    Delta,
    Finished,
    Reply,
    ReplyAssembler,
    ReplyText,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest


def request(text: str = "Hello", **params: Any) -> ModelRequest:
    return ModelRequest(messages=[{"role": "user", "content": text}], params=params)


def failure(kind: ModelErrorKind = "overloaded", retry_after: float | None = None) -> ModelError:
    return ModelError(f"It is {kind}.", kind=kind, retry_after=retry_after)


async def streamed(model: Model, asked: ModelRequest | None = None) -> Reply:
    """The reply, put together from the stream."""
    assembly = ReplyAssembler()
    async with model.stream(asked or request()) as deltas:
        async for delta in deltas:
            assembly.feed(delta)
    return assembly.reply()


async def heard(model: Model, deltas: list[Delta]) -> None:
    """Put what a stream says into `deltas`, which keeps it whatever happens."""
    async with model.stream(request()) as told:
        async for delta in told:
            deltas.append(delta)  # noqa: PERF401 - a comprehension would lose it


async def answered(model: Model, way: str, asked: ModelRequest | None = None) -> Reply:
    """The reply, asked for or streamed."""
    if way == "ask":
        return await model.aask(asked or request())
    return await streamed(model, asked)


def only(model: Model, **protections: Any) -> iModel:
    """The model behind these protections, and none of those that an iModel has by default."""
    options: dict[str, Any] = {"retry": None, "breaker": None, "timeout": None, **protections}
    return iModel(model, **options)


class Patient:
    """A model whose every step is a function of the test's; it notes what became of its streams."""

    window = None
    streams = True
    supports_output_schema = False

    def __init__(self, step: Callable[[], Any] = lambda: asyncio.sleep(1), steps: int = 3) -> None:
        self.name = "patient"
        self.step = step
        self.steps = steps
        self.open = 0
        self.most_open = 0
        self.began: list[str] = []

    def _begin(self, request: ModelRequest) -> None:
        self.began.append(str(request.messages[0]["content"]))
        self.open += 1
        self.most_open = max(self.open, self.most_open)

    async def aask(self, request: ModelRequest) -> Reply:
        self._begin(request)
        try:
            for _ in range(self.steps):
                await self.step()
            return Reply((ReplyText("so"),), "stop", Usage(10, 10), self.name)
        finally:
            self.open -= 1

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        self._begin(request)
        try:
            yield self._deltas()
        finally:
            self.open -= 1

    async def _deltas(self) -> AsyncIterator[Delta]:
        for _ in range(self.steps):
            await self.step()
            yield TextDelta("so ")
        yield Finished("stop", Usage(10, 10), self.name)
