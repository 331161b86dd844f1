"""`iModel`: a model by name, with retry, limits, hooks and usage.

    model = iModel("openai:gpt-5", temperature=0.2)
    reply = await model.invoke("Hello")

A call runs the `before` hooks, then attempts until one succeeds or the retry policy gives up. Each
attempt passes the circuit breaker, waits for the rate limit and has its own timeout. The meter and
the `after` hooks see the whole reply, once per call; of a stream, just before its last delta, and
not at all if it failed or was left early. A stream is retried only before its first delta, because
no text may be repeated.

Hooks are user code: their exceptions reach the caller unchanged, with a note naming the hook, and
are neither retried nor counted as failures of the model.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar, Unpack, cast, overload

from sennit import clock
from sennit.closing import AsyncClosing, Closing
from sennit.errors import InvalidTypeError, ModelError, SennitError, ValidationError, short_repr
from sennit.messages.output_schema import ModelSchema, as_model
from sennit.numbers import count
from sennit.services.models.lazy import lazy_model
from sennit.services.models.limits.circuit_breaker import Circuit, CircuitBreaker, CircuitCall
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.models.limits.retry import Attempts, Retry
from sennit.services.models.limits.timeout import Deadline, Timeout
from sennit.services.models.params import ModelDefaults, ModelParams, check_params
from sennit.services.models.protocol import BlockingModel, Model, supports_output_schema
from sennit.services.models.reply import Delta, Finished, Reply, ReplyAssembler, Usage
from sennit.services.models.request import MessageInput, ModelRequest, ToolInput, model_request
from sennit.services.models.usage import Meter, UsageRecord

if TYPE_CHECKING:
    from pydantic import BaseModel

Before: TypeAlias = Callable[[ModelRequest], ModelRequest | Awaitable[ModelRequest | None] | None]
After: TypeAlias = Callable[[ModelRequest, Reply], object]
OutputSchema: TypeAlias = ModelSchema | Mapping[str, Any]
"""A schema of structured output that is no class: its output is plain data."""
_Messages: TypeAlias = MessageInput | Iterable[MessageInput]
_Finish: TypeAlias = Callable[[Reply], Awaitable[None]]
_M = TypeVar("_M", bound="BaseModel")
_T = TypeVar("_T")

RETRY = Retry()
BREAKER = CircuitBreaker()
TIMEOUT = Timeout()
_NO_RETRY = Retry(attempts=1)
_NO_BREAKER = CircuitBreaker(failures=sys.maxsize)


class iModel(BlockingModel, Closing, AsyncClosing):
    """A language model under a name.

    Args:
        model: "provider:model", "local", "local:/path/to/weights.gguf", a Path to weights, or any
            object that is a Model.
        name: The name for registration, by default the model's own.
        base_url: The server's URL, by default the provider's own.
        api_key: The API key, by default the one in the environment.
        window: The context window in tokens, if the provider does not say.
        fetch_images: Whether image URLs may be fetched from this machine for a provider that does
            not fetch them itself (Google); otherwise they are rejected.
        retry: The retry policy; None for no retries.
        limits: The rate limit; share one among models of the same account.
        breaker: The circuit breaker; None for none.
        timeout: The timeout of each attempt; a number is seconds for the whole reply.
        before: One or more functions that receive each request and may return another.
        after: One or more functions that receive each request with its reply.
        meter: The usage counter; share one to count several models together.
        params: Default parameters of requests: see PARAMS.

    Raises ValidationError for an invalid name, or an unknown parameter; other problems (no key,
    no such model) raise ModelError on the first call.
    """

    def __init__(
        self,
        model: str | Path | Model,
        *,
        name: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        window: int | None = None,
        fetch_images: bool = False,
        retry: Retry | None = RETRY,
        limits: RateLimit | None = None,
        breaker: CircuitBreaker | None = BREAKER,
        timeout: Timeout | float | None = TIMEOUT,
        before: Before | Iterable[Before] = (),
        after: After | Iterable[After] = (),
        meter: Meter | None = None,
        **params: Unpack[ModelDefaults],
    ) -> None:
        if window is not None:
            count(window, "window")
        self._params = check_params(params)
        self._connection = lazy_model(
            model,
            name=name,
            base_url=base_url,
            api_key=api_key,
            window=window,
            fetch_images=fetch_images,
        )
        self._before: tuple[Before, ...] = _hooks(before, "before")
        self._after: tuple[After, ...] = _hooks(after, "after")
        self._meter = meter or Meter()
        self._retry = retry or _NO_RETRY
        self._circuit = Circuit(self.name, breaker or _NO_BREAKER)
        self._limits = limits
        self._timeout = timeout if isinstance(timeout, Timeout) else Timeout(seconds=timeout)

    @property
    def name(self) -> str:
        """The name for registration."""
        return self._connection.name

    @property
    def window(self) -> int | None:
        """The context window in tokens; None if unknown."""
        return self._connection.window

    @property
    def streams(self) -> bool:
        """True if it can stream."""
        return self._connection.streams

    @property
    def supports_output_schema(self) -> bool:
        """True if it supports structured output."""
        return self._connection.supports_output_schema

    @property
    def usage(self) -> Usage:
        """The usage of all calls so far."""
        return self._meter.total

    @overload
    async def invoke(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput] = (),
        output: None = None,
        **params: Unpack[ModelParams],
    ) -> Reply: ...
    @overload
    async def invoke(
        self, messages: _Messages, *, output: type[_M], **params: Unpack[ModelParams]
    ) -> Reply[_M]: ...
    @overload
    async def invoke(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput],
        output: type[_M],
        **params: Unpack[ModelParams],
    ) -> Reply[_M | None]: ...
    @overload
    async def invoke(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput] = (),
        output: OutputSchema,
        **params: Unpack[ModelParams],
    ) -> Reply[Any]: ...
    async def invoke(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput] = (),
        output: type[BaseModel] | OutputSchema | None = None,
        **params: Unpack[ModelParams],
    ) -> Reply[Any]:
        """Return the reply to a text, to Messages, or to chat messages as dicts.

        With an `output` schema, the reply's `output` is an instance of the class, or plain data for
        other schemas; None if the reply calls tools instead. For `params` see PARAMS. Raises
        ModelError, ValidationError for an invalid request, OutputError for a reply that does not
        match the schema.
        """
        if output is not None and not await supports_output_schema(self):
            raise ValidationError(
                f"Model {self.name!r} does not support structured output; leave output= out."
            )
        request = model_request(messages, tools=tools, output=output, **params)
        reply = await self.aask(request)
        if output is None or (reply.calls and not reply.text):
            return reply
        from sennit.messages.output_validation import validate_output  # late: slow to import

        return replace(reply, output=validate_output(reply.text, as_model(output, "output")))

    @overload
    def invoke_sync(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput] = (),
        output: None = None,
        **params: Unpack[ModelParams],
    ) -> Reply: ...
    @overload
    def invoke_sync(
        self, messages: _Messages, *, output: type[_M], **params: Unpack[ModelParams]
    ) -> Reply[_M]: ...
    @overload
    def invoke_sync(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput],
        output: type[_M],
        **params: Unpack[ModelParams],
    ) -> Reply[_M | None]: ...
    @overload
    def invoke_sync(
        self,
        messages: _Messages,
        *,
        tools: Iterable[ToolInput] = (),
        output: OutputSchema,
        **params: Unpack[ModelParams],
    ) -> Reply[Any]: ...
    def invoke_sync(self, messages: _Messages, **options: Any) -> Reply[Any]:
        """`invoke` for programs without an event loop."""
        from sennit.blocking import run_blocking  # late: slow to import

        return run_blocking(self.invoke(messages, **options), "await invoke()")

    async def aask(self, request: ModelRequest) -> Reply:
        """Return the whole reply; raises ModelError, ValidationError, or a hook's exception."""
        request, finish = await self._start_call(request)
        attempts = Attempts(self._retry)
        while True:
            try:
                async with self._attempt(request) as attempt:
                    reply = await attempt.within(self._connection.aask(request))
                    attempt.succeed(reply.usage)
                break
            except ModelError as error:
                failure = error
            await attempts.wait_after(failure)
        await finish(reply)
        return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Stream the reply as deltas, Finished last; leaving the block early stops the model.

        Raises as `aask` does, on entering or in the middle.
        """
        request, finish = await self._start_call(request)
        attempts = Attempts(self._retry)
        while True:
            async with AsyncExitStack() as stack:
                try:
                    attempt = await stack.enter_async_context(self._attempt(request))
                    entering = stack.enter_async_context(self._connection.stream(request))
                    raw_deltas = await attempt.within(entering)
                    deltas = _CallDeltas(raw_deltas, attempt, finish, bool(self._after))
                    await deltas.fetch_first()
                except ModelError as error:
                    failure = error
                else:
                    yield deltas
                    return
            await attempts.wait_after(failure)

    async def _start_call(self, request: ModelRequest) -> tuple[ModelRequest, _Finish]:
        """Return the request to send, after the `before` hooks, and what a whole reply is for."""
        params = check_params(request.params)
        if self._params:
            request = replace(request, params={**self._params, **params})
        for hook in self._before:
            result = await self._call_hook("before", hook, request)
            if isinstance(result, ModelRequest):
                request = result
            elif result is not None:
                raise InvalidTypeError(
                    f"A before hook returns a ModelRequest, or None to leave the request "
                    f"unchanged; {_name(hook)} returned {short_repr(result)}."
                )
        at, began = clock.now_us(), clock.monotonic()

        async def finish(reply: Reply) -> None:
            seconds = clock.monotonic() - began
            started_at = clock.to_datetime(at)
            self._meter.add(UsageRecord(self.name, reply.model, reply.usage, seconds, started_at))
            for hook in self._after:
                await self._call_hook("after", hook, request, reply)

        return request, finish

    @asynccontextmanager
    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[_Attempt]:
        with self._circuit.call() as call:
            deadline = self._timeout.deadline(self.name, request.params)
            if self._limits is None:
                yield _Attempt(call, deadline)
                return
            async with self._limits.place(self._limits.estimate(request)) as record_usage:
                yield _Attempt(call, deadline, record_usage)

    async def _call_hook(self, when: str, hook: Callable[..., Any], *args: object) -> object:
        try:
            result = hook(*args)
            return await result if isawaitable(result) else result
        except Exception as error:
            error.add_note(f"Raised by the {when} hook {_name(hook)} of model {self.name!r}.")
            raise

    def ready(self) -> SennitError | None:
        """`aready` for programs without an event loop."""
        from sennit.blocking import refuse_running_loop  # late: slow to import

        refuse_running_loop("await aready()")
        return self._connection.connect()

    async def aready(self) -> SennitError | None:
        """Connect now rather than on the first call.

        Return the error that the call would raise, such as a missing API key, or None.
        """
        return await self._connection.aready()

    def close(self) -> None:
        """`aclose` for programs without an event loop."""
        from sennit.blocking import run_blocking  # late: slow to import

        run_blocking(self.aclose(), "await aclose()")

    async def aclose(self) -> None:
        """Close the model's connections; it stays usable."""
        await self._connection.aclose()

    def __repr__(self) -> str:
        return f"iModel({self.name!r})"

    def __copy__(self) -> Self:
        return self  # a service, not a value: copies of its users share it

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise InvalidTypeError(
            f"{self!r} holds connections and possibly an API key and cannot be pickled; pass its "
            f"name and create it again."
        )


def close_everywhere(model: iModel) -> None:
    """Close the connections of a model on all event loops, without waiting; it stays usable."""
    model._connection.close_everywhere()  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt of a call: the circuit breaker and the rate limit learn how it ended."""

    call: CircuitCall
    deadline: Deadline
    record_usage: Callable[[Usage], None] = lambda _: None

    async def within(self, awaitable: Awaitable[_T]) -> _T:
        try:
            return await self.deadline.within(awaitable)
        except Exception as error:
            self.call.fail(error)
            raise

    def succeed(self, usage: Usage) -> None:
        self.call.succeed()
        self.record_usage(usage)


class _CallDeltas:
    """The deltas of a call, within its deadline; the whole reply is finished before the last one.

    It has no cleanup of its own, so the next delta may be awaited in another task than the one that
    opened the stream, and leaving the block early stops the model at once.
    """

    __slots__ = ("_assembly", "_attempt", "_finish", "_first", "_next")

    def __init__(
        self, deltas: AsyncIterator[Delta], attempt: _Attempt, finish: _Finish, assembles: bool
    ) -> None:
        self._next = deltas.__anext__
        self._attempt = attempt
        self._finish = finish
        self._assembly = ReplyAssembler() if assembles else None
        self._first: Delta | None = None

    async def fetch_first(self) -> None:
        """Fetch the first delta, so that a failure before it can be retried."""
        with suppress(StopAsyncIteration):
            self._first = await self._fetch()

    def __aiter__(self) -> _CallDeltas:
        return self

    async def __anext__(self) -> Delta:
        delta, self._first = self._first, None
        if delta is None:
            delta = await self._fetch()
        if self._assembly is not None:
            self._assembly.feed(delta)
        if isinstance(delta, Finished):
            self._attempt.succeed(delta.usage)
            end = Reply((), delta.reason, delta.usage, delta.model, delta.state)
            await self._finish(end if self._assembly is None else self._assembly.reply())
        return delta

    async def _fetch(self) -> Delta:
        try:
            return await self._attempt.deadline.next_delta(self._next())
        except Exception as error:
            self._attempt.call.fail(error)
            raise


def _hooks(value: object, when: str) -> tuple[Any, ...]:
    hooks = (value,) if callable(value) else tuple(cast("Iterable[object]", value))
    for hook in hooks:
        if not callable(hook):
            raise InvalidTypeError(f"A hook is a function; {when}= was given {short_repr(hook)}.")
    return hooks


def _name(hook: object) -> str:
    return repr(getattr(hook, "__qualname__", None) or type(hook).__qualname__)
