"""The base class of model wrappers.

Whatever wraps a stream enters what is below with `async with`, in the task that entered it, and
hands out an iterator with no cleanup of its own. So leaving the block early stops the model at
once, and the next delta may be awaited in another task than the one that opened the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Finished, Reply
from sennit.services.models.request import ModelRequest


class ModelWrapper:
    """A model around another, as it is; subclasses change what they are about."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The name of the model below."""
        return self._model.name

    @property
    def window(self) -> int | None:
        """The context window of the wrapped model."""
        return self._model.window

    @property
    def streams(self) -> bool:
        """True if the model below streams."""
        return self._model.streams

    @property
    def shapes_output(self) -> bool:
        """True if the model below can be held to a schema."""
        return self._model.shapes_output

    async def ask(self, request: ModelRequest) -> Reply:
        """The whole reply; raises ModelError."""
        return await self._model.ask(request)

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The reply as deltas; raises ModelError."""
        return self._model.stream(request)


class ObservedStream:
    """Deltas passed on unchanged, telling how they ended: finished, or failed."""

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
