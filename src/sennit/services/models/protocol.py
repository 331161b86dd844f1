"""The Model protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from inspect import getattr_static
from typing import Protocol, TypeGuard, runtime_checkable

from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest


@runtime_checkable
class Model(Protocol):
    """A language model. All its failures raise ModelError."""

    @property
    def name(self) -> str:
        """The default name for registration."""
        ...

    @property
    def window(self) -> int | None:
        """The context window in tokens; None if unknown."""
        ...

    @property
    def streams(self) -> bool:
        """True if it can stream."""
        ...

    @property
    def supports_output_schema(self) -> bool:
        """True if it supports structured output (`ModelRequest.output`)."""
        ...

    async def aask(self, request: ModelRequest) -> Reply:
        """Return the whole reply; raises ModelError."""
        ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Stream the reply as deltas, Finished last; leaving the block early stops the model.

        Raises ModelError, on entering or in the middle.
        """
        ...


class BlockingModel:
    """Mixin with the blocking methods of a model."""

    def ask(self: Model, request: ModelRequest) -> Reply:
        """`aask` for programs without an event loop."""
        from sennit.blocking import run_blocking  # late: slow to import

        return run_blocking(self.aask(request), "await aask()")


async def supports_output_schema(model: Model) -> bool:
    """Return `model.supports_output_schema`, connecting first without blocking the event loop."""
    ready = getattr(model, "aready", None)
    if ready is not None:
        await ready()
    return model.supports_output_schema


_MEMBERS = ("name", "window", "streams", "supports_output_schema", "aask", "stream")


def is_model(value: object) -> TypeGuard[Model]:
    """Return whether `value` is a Model, without reading its properties.

    Up to Python 3.11 `isinstance` reads them, which would connect a lazy model.
    """
    if isinstance(value, type):
        return False
    return _defines_members(type(value)) or all(
        getattr_static(value, member, _MEMBERS) is not _MEMBERS for member in _MEMBERS
    )


@lru_cache(maxsize=64)
def _defines_members(kind: type) -> bool:
    """Return whether a class defines all members of a Model."""
    return all(any(member in vars(base) for base in kind.__mro__) for member in _MEMBERS)
