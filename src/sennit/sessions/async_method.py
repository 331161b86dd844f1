"""Async versions of blocking methods, run in a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

_S = TypeVar("_S")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def async_method(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]:
    """`method` for async callers: it runs in a worker thread and gives or raises the same.

    What a subclass has in its place runs instead, as it would for anyone else.
    """
    name = method.__name__

    @wraps(method)
    async def twin(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        import asyncio  # takes long, and only async callers need it

        return await asyncio.to_thread(getattr(self, name), *args, **kwargs)

    twin.__name__ = f"a{name}"
    twin.__doc__ = f"`{name}` for async callers."
    return twin
