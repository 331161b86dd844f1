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
    """A language model. What it raises is a ModelError, whatever went wrong."""

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
        """True if it can answer piece by piece."""
        ...

    @property
    def shapes_output(self) -> bool:
        """True if it can be held to a JSON schema (`ModelRequest.output`)."""
        ...

    async def ask(self, request: ModelRequest) -> Reply:
        """The whole reply; raises ModelError."""
        ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The reply as deltas, Finished last; leaving the block early stops the model.

        Raises ModelError, on entering or in the middle.
        """
        ...


async def shapes_output(model: Model) -> bool:
    """`model.shapes_output`, without holding up the event loop if the model connects to know."""
    ready = getattr(model, "ready", None)
    if ready is not None:
        await ready()
    return model.shapes_output


_MEMBERS = ("name", "window", "streams", "shapes_output", "ask", "stream")


def is_model(value: object) -> TypeGuard[Model]:
    """Return whether `value` is a Model, told without reading its properties.

    Up to Python 3.11 `isinstance` reads them, which would connect a model nobody has asked yet.
    """
    if isinstance(value, type):
        return False
    return _defines_members(type(value)) or all(
        getattr_static(value, member, _MEMBERS) is not _MEMBERS for member in _MEMBERS
    )


@lru_cache(maxsize=64)
def _defines_members(kind: type) -> bool:
    """Return whether a class has all members of a model itself, so that any instance is one."""
    return all(any(member in vars(one) for one in kind.__mro__) for member in _MEMBERS)
