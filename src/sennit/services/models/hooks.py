"""Hooks before and after each model call.

Hooks are user code. An exception of a hook reaches the caller unchanged, with a note naming the
hook; it does not count as a failure of the model and is not retried. Hooks run once per call,
however many attempts it took. `after` receives whole replies only: when streaming, just before the
last delta, and not at all if the stream failed or was left early.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from sennit.errors import InvalidTypeError, short_repr
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Finished, Reply, ReplyAssembler
from sennit.services.models.request import ModelRequest
from sennit.services.models.wrapper import ModelWrapper

Before: TypeAlias = Callable[[ModelRequest], ModelRequest | Awaitable[ModelRequest | None] | None]
After: TypeAlias = Callable[[ModelRequest, Reply], object]


class Hooked(ModelWrapper):
    """A model with hooks around each call."""

    def __init__(
        self,
        model: Model,
        before: Before | Iterable[Before] = (),
        after: After | Iterable[After] = (),
    ) -> None:
        super().__init__(model)
        self._before: tuple[Before, ...] = _hooks(before, "before")
        self._after: tuple[After, ...] = _hooks(after, "after")

    async def ask(self, request: ModelRequest) -> Reply:
        request = await self._run_before(request)
        reply = await self._model.ask(request)
        await self._run_after(request, reply)
        return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        request = await self._run_before(request)
        async with self._model.stream(request) as deltas:
            if not self._after:
                yield deltas
            else:
                yield _AssemblingDeltas(deltas, lambda reply: self._run_after(request, reply))

    async def _run_before(self, request: ModelRequest) -> ModelRequest:
        for hook in self._before:
            result = await self._call_hook("before", hook, request)
            if result is None:
                continue
            if not isinstance(result, ModelRequest):
                raise InvalidTypeError(
                    f"A before hook returns a ModelRequest, or None to leave the request "
                    f"unchanged; {_name(hook)} returned {short_repr(result)}."
                )
            request = result
        return request

    async def _run_after(self, request: ModelRequest, reply: Reply) -> None:
        for hook in self._after:
            await self._call_hook("after", hook, request, reply)

    async def _call_hook(self, when: str, hook: Callable[..., Any], *args: object) -> object:
        try:
            result = hook(*args)
            return await result if isawaitable(result) else result
        except Exception as error:
            error.add_note(f"Raised by the {when} hook {_name(hook)} of model {self.name!r}.")
            raise


class _AssemblingDeltas:
    """Deltas passed through unchanged; the whole reply goes to `on_reply` before the last one."""

    __slots__ = ("_assembly", "_next", "_on_reply")

    def __init__(
        self, deltas: AsyncIterator[Delta], on_reply: Callable[[Reply], Awaitable[None]]
    ) -> None:
        self._next = deltas.__anext__
        self._on_reply = on_reply
        self._assembly = ReplyAssembler()

    def __aiter__(self) -> _AssemblingDeltas:
        return self

    async def __anext__(self) -> Delta:
        delta = await self._next()
        self._assembly.feed(delta)
        if isinstance(delta, Finished):
            await self._on_reply(self._assembly.reply())
        return delta


def _hooks(value: object, when: str) -> tuple[Any, ...]:
    hooks = (value,) if callable(value) else tuple(cast("Iterable[object]", value))
    for hook in hooks:
        if not callable(hook):
            raise InvalidTypeError(f"A hook is a function; {when}= was given {short_repr(hook)}.")
    return hooks


def _name(hook: object) -> str:
    return repr(getattr(hook, "__qualname__", None) or type(hook).__qualname__)
