"""The embedded model, which needs no network, key or server.

`LocalModel()` runs SmolLM2-135M, which is good for demonstrations only; pass the path of a larger
GGUF file for real work. All LocalModel objects of a process with the same file share one engine,
which runs requests in order of arrival.

Inference runs on the engine's thread; here its events become deltas on the caller's event loop.
Leaving the `stream` block returns at once, and the engine stops at its next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from sennit.errors import MissingExtraError, ModelError
from sennit.numbers import count
from sennit.services.local.engine import (
    DEFAULT_CONTEXT_TOKENS,
    Engine,
    EngineJob,
    JobEnded,
    JobEvent,
    context_of,
    engine_of,
)
from sennit.services.local.request import body_of
from sennit.services.local.tool_prompt import FormReader
from sennit.services.local.weights import find
from sennit.services.models.limits.timeout import Deadline
from sennit.services.models.protocol import BlockingModel
from sennit.services.models.reply import (
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    Reply,
    ReplyAssembler,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest


class LocalModel(BlockingModel):
    """A language model inside this process; see the Model protocol.

    `path` is a GGUF file, or the name of a downloaded one; by default SmolLM2-135M.
    `threads` and `context` are fixed by the first use of a file in the process.
    """

    streams = True
    supports_output_schema = True

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        name: str = "local",
        threads: int | None = None,
        context: int | None = None,
    ) -> None:
        self._path = path
        self.name = name
        """The default name for registration."""
        for value, option in ((threads, "threads"), (context, "context")):
            if value is not None:
                count(value, option)
        self._threads = threads
        self._context = context

    @property
    def window(self) -> int:
        """The context size in tokens, prompt and reply together."""
        if self._context is not None:
            return self._context
        try:
            return context_of(find(self._path)) or DEFAULT_CONTEXT_TOKENS
        except ModelError:  # raised again by the first call
            return DEFAULT_CONTEXT_TOKENS

    async def aask(self, request: ModelRequest) -> Reply:
        """Return the whole reply.

        Raises ModelError, MissingExtraError without `sennit[local]`, ValidationError for an
        invalid request.
        """
        assembly = ReplyAssembler()
        async with self.stream(request) as deltas:
            async for delta in deltas:
                assembly.feed(delta)
        return assembly.reply()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Stream the reply as deltas; leaving the block stops the model. Raises as `aask` does."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[JobEvent] = asyncio.Queue()
        job = EngineJob(
            body_of(request),
            lambda event: loop.call_soon_threadsafe(events.put_nowait, event),
        )
        deadline = Deadline(self.name, request.params.get("timeout"))
        engine = self._engine()
        engine.submit(job)
        try:
            yield _deltas(events, _ChunkReader(request, engine.file.stem), deadline)
        finally:
            job.stop()

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of `text`; loads the model if needed, and does not queue."""
        return self._engine().count_tokens(text)

    def _engine(self) -> Engine:
        return engine_of(find(self._path), threads=self._threads, context=self._context)


def check(path: str | Path | None = None) -> Path:
    """Return the path of the weights if they and the engine are installed; loads neither.

    Raises MissingExtraError without the engine, ModelError without the weights.
    """
    if find_spec("xllamacpp") is None:
        raise MissingExtraError.of("The local model", "local")
    return find(path)


async def _deltas(
    events: asyncio.Queue[JobEvent], reader: _ChunkReader, deadline: Deadline
) -> AsyncIterator[Delta]:
    """Yield the deltas of one reply, read from the engine's events."""
    while not isinstance(event := await deadline.within(events.get()), JobEnded):
        for delta in reader.deltas(event):
            yield delta
    if event.error is not None:
        raise event.error
    for delta in reader.end():
        yield delta


class _ChunkReader:
    """A parser of the chunks of one reply."""

    def __init__(self, request: ModelRequest, model: str) -> None:
        self._form_reader = (
            FormReader(answers_in_json=request.output is not None) if request.tools else None
        )
        self._model = model
        self._reason: FinishReason | None = None
        self._usage = Usage()

    def deltas(self, chunk: Mapping[str, Any]) -> Iterable[Delta]:
        """Return the deltas of a chunk."""
        if usage := chunk.get("usage"):
            self._usage = _usage(usage)
        for choice in chunk.get("choices") or ():
            if reason := choice.get("finish_reason"):
                self._reason = "length" if reason == "length" else "stop"
            delta = cast("Mapping[str, Any]", choice.get("delta") or {})
            if reasoning := delta.get("reasoning_content"):
                yield ReasoningDelta(reasoning)
            if text := delta.get("content"):
                yield from self._form_reader.feed(text) if self._form_reader else [TextDelta(text)]

    def end(self) -> Iterable[Delta]:
        """Return the remaining deltas after the last chunk; raises ModelError if incomplete."""
        reason = self._reason
        if reason is None:
            raise ModelError("The local model ended without a finish reason.", kind="malformed")
        if self._form_reader:
            yield from self._form_reader.end(reason)
            reason = self._form_reader.reason(reason)
        yield Finished(reason, self._usage, self._model)


def _usage(counts: Mapping[str, Any]) -> Usage:
    details = cast("Mapping[str, Any]", counts.get("prompt_tokens_details") or {})
    return Usage(
        input_tokens=counts.get("prompt_tokens", 0),
        output_tokens=counts.get("completion_tokens", 0),
        cached_tokens=details.get("cached_tokens", 0),
    )
