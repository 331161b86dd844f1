"""Base class of model wrappers.

A wrapper enters the stream of the wrapped model with `async with`, in the task that entered its
own, and returns an iterator without cleanup. So leaving the block early stops the model at once,
and the next delta may be awaited in another task than the one that opened the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Finished, Reply
from sennit.services.models.request import ModelRequest


class ModelWrapper:
    """A model that delegates to another; subclasses override what they change."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self._model.name

    @property
    def window(self) -> int | None:
        """The context window of the wrapped model."""
        return self._model.window

    @property
    def streams(self) -> bool:
        """True if the wrapped model streams."""
        return self._model.streams

    @property
    def supports_output_schema(self) -> bool:
        """True if the wrapped model supports structured output."""
        return self._model.supports_output_schema

    async def ask(self, request: ModelRequest) -> Reply:
        """Return the whole reply; raises ModelError."""
        return await self._model.ask(request)

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Stream the reply as deltas; raises ModelError."""
        return self._model.stream(request)


class ObservedStream:
    """Deltas passed through unchanged; calls `finished` or `failed` at the end."""

    __slots__ = ("_failed", "_finished", "_next")

    def __init__(
        self,
        deltas: AsyncIterator[Delta],
        finished: Callable[[Finished], object],
        failed: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        self._next = deltas.__anext__
        self._finished = finished
        self._failed = failed

    def __aiter__(self) -> ObservedStream:
        return self

    async def __anext__(self) -> Delta:
        try:
            delta = await self._next()
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._failed(error)
            raise
        if isinstance(delta, Finished):
            self._finished(delta)
        return delta
