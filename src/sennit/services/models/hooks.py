"""Hooks before and after each model call.

Hooks are the user's own code and part of the call. What one raises goes to whoever asked, as it is,
with a note of where it came from; it is not taken for a failure of the model and not tried again.
Hooks run once per call, however often it was tried. `after` gets whole replies only: when
streaming, just before the end is handed on, and not at all if the stream failed or was left early.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from sennit.errors import InvalidTypeError, shown
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
        request = await self._prepared(request)
        reply = await self._model.ask(request)
        await self._answered(request, reply)
        return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        request = await self._prepared(request)
        async with self._model.stream(request) as deltas:
            if not self._after:
                yield deltas
            else:
                yield _Assembled(deltas, lambda reply: self._answered(request, reply))

    async def _prepared(self, request: ModelRequest) -> ModelRequest:
        for hook in self._before:
            given = await self._run("before", hook, request)
            if given is None:
                continue
            if not isinstance(given, ModelRequest):
                raise InvalidTypeError(
                    f"A before hook returns a ModelRequest, or None to leave the request "
                    f"unchanged; {_name(hook)} returned {shown(given)}."
                )
            request = given
        return request

    async def _answered(self, request: ModelRequest, reply: Reply) -> None:
        for hook in self._after:
            await self._run("after", hook, request, reply)

    async def _run(self, when: str, hook: Callable[..., Any], *args: object) -> object:
        try:
            given = hook(*args)
            return await given if isawaitable(given) else given
        except Exception as error:
            error.add_note(f"Raised by the {when} hook {_name(hook)} of model {self.name!r}.")
            raise


class _Assembled:
    """Deltas passed on unchanged, and put together; the whole is told before the end is."""

    __slots__ = ("_assembly", "_next", "_whole")

    def __init__(
        self, deltas: AsyncIterator[Delta], whole: Callable[[Reply], Awaitable[None]]
    ) -> None:
        self._next = deltas.__anext__
        self._whole = whole
        self._assembly = ReplyAssembler()

    def __aiter__(self) -> _Assembled:
        return self

    async def __anext__(self) -> Delta:
        delta = await self._next()
        self._assembly.feed(delta)
        if isinstance(delta, Finished):
            await self._whole(self._assembly.reply())
        return delta


def _hooks(given: object, when: str) -> tuple[Any, ...]:
    hooks = (given,) if callable(given) else tuple(cast("Iterable[object]", given))
    for hook in hooks:
        if not callable(hook):
            raise InvalidTypeError(f"A hook is a function; {when}= was given {shown(hook)}.")
    return hooks


def _name(hook: object) -> str:
    return repr(getattr(hook, "__qualname__", None) or type(hook).__qualname__)
