"""Sync and async versions of one implementation.

A planned method returns what to write, and has two versions: one waits for the store, the other
awaits a group commit. Other blocking methods run in a worker thread for async callers.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from sennit.sessions.plan import Plan

_S = TypeVar("_S")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def planned(make: Callable[Concatenate[_S, _P], Plan[_R]]) -> Callable[Concatenate[_S, _P], _R]:
    """Turn a method that returns a plan into one that carries it out, with its result.

    `make` is called under the lock of the session.
    """

    @wraps(make)
    def write(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self.lock:
            plan = make(self, *args, **kwargs)
            return plan.session._repository.write(plan)

    setattr(write, "plan", make)  # noqa: B010 - functions have no such attribute for type checkers
    return write


def async_method(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]:
    """Return an async version of `method`.

    It submits the plan of a planned method; concurrent calls share one group commit. Any other
    method runs in a worker thread, looked up by name, so that overrides in subclasses apply.
    """
    name = method.__name__
    make: Callable[..., Plan[_R]] | None = getattr(method, "plan", None)

    @wraps(method)
    async def wrapper(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if make is not None:
            with self.lock:
                plan = make(self, *args, **kwargs)
            return await plan.session._repository.submit(plan)
        import asyncio  # slow to import; only async callers need it

        return await asyncio.to_thread(getattr(self, name), *args, **kwargs)

    wrapper.__name__ = f"a{name}"
    wrapper.__doc__ = f"`{name}` for async callers."
    return wrapper
