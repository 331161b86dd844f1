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
    """Return an async version of `method` that runs it in a worker thread.

    It looks the method up by name, so overrides in subclasses apply.
    """
    name = method.__name__

    @wraps(method)
    async def wrapper(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        import asyncio  # slow to import; only async callers need it

        return await asyncio.to_thread(getattr(self, name), *args, **kwargs)

    wrapper.__name__ = f"a{name}"
    wrapper.__doc__ = f"`{name}` for async callers."
    return wrapper
