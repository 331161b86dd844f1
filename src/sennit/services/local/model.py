"""The embedded model, which needs no network, key or server.

`LocalModel()` runs SmolLM2-135M, which shows how everything works and knows next to nothing; give
the path of a larger GGUF file for real work. All LocalModel objects of a process that name the same
file share one engine, which takes requests one after another in the order in which they came.

Reading and saying happen on the engine's thread; here they become deltas on the caller's event
loop. Who leaves the `stream` block goes at once, and the engine stops at its next step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from sennit.errors import InvalidTypeError, MissingExtraError, ModelError, ValidationError, shown
from sennit.services.local.engine import (
    CONTEXT,
    Engine,
    EngineJob,
    JobEnded,
    Letter,
    context_of,
    engine_of,
)
from sennit.services.local.request import body_of, timeout_of
from sennit.services.local.tool_prompt import FormReader
from sennit.services.local.weights import find
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


class LocalModel:
    """A language model inside this process; see the Model protocol.

    `path` is a GGUF file, or the name of one that was pulled; without it SmolLM2-135M is used.
    `threads` and `context` are settled by whoever first uses a file.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        name: str = "local",
        threads: int | None = None,
        context: int | None = None,
    ) -> None:
        self._path = path
        self._name = name
        self._threads = _positive(threads, "threads")
        self._context = _positive(context, "context")

    @property
    def name(self) -> str:
        """The default name for registration."""
        return self._name

    @property
    def window(self) -> int:
        """The tokens of a conversation, prompt and answer together."""
        if self._context is not None:
            return self._context
        try:
            return context_of(find(self._path)) or CONTEXT
        except ModelError:  # said when it is asked
            return CONTEXT

    @property
    def streams(self) -> bool:
        """It answers piece by piece."""
        return True

    @property
    def shapes_output(self) -> bool:
        """It can be held to a JSON schema."""
        return True

    async def ask(self, request: ModelRequest) -> Reply:
        """The whole reply.

        Raises ModelError, MissingExtraError without `sennit[local]`, ValidationError for a request
        that makes no sense.
        """
        assembly = ReplyAssembler()
        async with self.stream(request) as deltas:
            async for delta in deltas:
                assembly.feed(delta)
        return assembly.reply()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """The reply as deltas; leaving the block stops the model. Raises as `ask` does."""
        loop = asyncio.get_running_loop()
        letters: asyncio.Queue[Letter] = asyncio.Queue()
        job = EngineJob(
            body_of(request),
            lambda letter: loop.call_soon_threadsafe(letters.put_nowait, letter),
        )
        seconds = timeout_of(request)
        deadline = None if seconds is None else loop.time() + seconds
        engine = self._engine()
        engine.submit(job)
        try:
            yield _Deltas(letters, _Reading(request, engine.file.stem), deadline)
        finally:
            job.stop()

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of `text`; loads the model if needed, and does not queue."""
        return self._engine().count_tokens(text)

    def _engine(self) -> Engine:
        return engine_of(find(self._path), threads=self._threads, context=self._context)


def check(path: str | Path | None = None) -> Path:
    """The weights, if the engine is here too; loads neither.

    Raises MissingExtraError without the engine, ModelError without the weights.
    """
    if find_spec("xllamacpp") is None:
        raise MissingExtraError.of("The local model", "local")
    return find(path)


class _Deltas:
    """The deltas of one answer, as the engine's letters come in."""

    def __init__(
        self, letters: asyncio.Queue[Letter], reading: _Reading, deadline: float | None
    ) -> None:
        self._letters = letters
        self._reading = reading
        self._deadline = deadline
        self._ready: deque[Delta] = deque()
        self._over = False

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            self._open(await self._next())
        return self._ready.popleft()

    def _open(self, letter: Letter) -> None:
        if not isinstance(letter, JobEnded):
            self._ready.extend(self._reading.deltas(letter))
            return
        self._over = True
        if letter.error is not None:
            raise letter.error
        self._ready.extend(self._reading.end())

    async def _next(self) -> Letter:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._letters.get()
        except TimeoutError:
            self._over = True
            raise ModelError(
                "The local model did not finish within the given timeout.", kind="timeout"
            ) from None


class _Reading:
    """Reads the chunks of one answer."""

    def __init__(self, request: ModelRequest, model: str) -> None:
        self._form = (
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
            said = cast("Mapping[str, Any]", choice.get("delta") or {})
            if thought := said.get("reasoning_content"):
                yield ReasoningDelta(thought)
            if text := said.get("content"):
                yield from self._form.feed(text) if self._form else [TextDelta(text)]

    def end(self) -> Iterable[Delta]:
        """Return the deltas left when no more chunks come."""
        reason = self._reason
        if reason is None:
            raise ModelError("The local model ended without a finish reason.", kind="malformed")
        if self._form:
            yield from self._form.end(reason)
            reason = self._form.reason(reason)
        yield Finished(reason, self._usage, self._model)


def _usage(counted: Mapping[str, Any]) -> Usage:
    details = cast("Mapping[str, Any]", counted.get("prompt_tokens_details") or {})
    return Usage(
        input_tokens=counted.get("prompt_tokens", 0),
        output_tokens=counted.get("completion_tokens", 0),
        cached_tokens=details.get("cached_tokens", 0),
    )


def _positive(value: int | None, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"{name} must be a whole number, got {shown(value)}.")
    if value < 1:
        raise ValidationError(f"{name} must be at least 1, got {shown(value)}.")
    return value
