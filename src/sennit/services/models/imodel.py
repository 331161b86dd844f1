"""`iModel`: a model by name, with retry, limits and usage.

    model = iModel("openai:gpt-5", temperature=0.2)
    reply = await model.invoke("Hello")

It is a stack of Models. The connection is wrapped, from the inside out, in the timeout, the rate
limit, the circuit breaker, retry, the meter and the hooks. So each attempt has its own timeout,
waits for the rate limit and counts for the breaker; hooks and meter see one call, however many
attempts it took.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from sennit.closing import AsyncClosing
from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.output_schema import ModelSchema
from sennit.services.models.hooks import After, Before, Hooked
from sennit.services.models.lazy import lazy_model
from sennit.services.models.limits import CircuitBreaker, RateLimit, Retry, Timeout
from sennit.services.models.limits.validators import count
from sennit.services.models.params import check_params
from sennit.services.models.protocol import Model, supports_output_schema
from sennit.services.models.reply import Delta, Reply, Usage
from sennit.services.models.request import MessageInput, ModelRequest, ToolInput, model_request
from sennit.services.models.usage import Meter

if TYPE_CHECKING:
    from pydantic import BaseModel

RETRY = Retry()
BREAKER = CircuitBreaker()
TIMEOUT = Timeout()


class iModel(AsyncClosing):
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
        **params: Any,
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
        self._meter = meter or Meter()
        layers = (_timeout(timeout), limits, breaker, retry, self._meter)
        self._model = Hooked(_wrap(self._connection, layers), before, after)

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

    async def invoke(
        self,
        messages: MessageInput | Iterable[MessageInput],
        *,
        tools: Iterable[ToolInput] = (),
        output: type[BaseModel] | ModelSchema | Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Reply:
        """Return the reply to a text, to Messages, or to chat messages as dicts.

        Raises ModelError, and ValidationError for an invalid request.
        """
        if output is not None and not await supports_output_schema(self):
            raise ValidationError(
                f"Model {self.name!r} does not support structured output; leave output= out."
            )
        request = model_request(messages, tools=tools, output=output, **params)
        return await self.ask(request)

    async def ask(self, request: ModelRequest) -> Reply:
        """Return the whole reply; raises ModelError, ValidationError, or a hook's exception."""
        return await self._model.ask(self._with_defaults(request))

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Stream the reply as deltas, Finished last; leaving the block early stops the model.

        Raises as `ask` does, on entering or in the middle.
        """
        return self._model.stream(self._with_defaults(request))

    async def ready(self) -> None:
        """Connect now rather than on the first call; connection errors are raised by that call."""
        await self._connection.ready()

    async def aclose(self) -> None:
        """Close the model's connections; it stays usable."""
        await self._connection.aclose()

    def _with_defaults(self, request: ModelRequest) -> ModelRequest:
        params = check_params(request.params)
        return replace(request, params={**self._params, **params}) if self._params else request

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


def _wrap(
    model: Model, layers: Iterable[Timeout | RateLimit | CircuitBreaker | Retry | Meter | None]
) -> Model:
    for layer in layers:
        model = model if layer is None else layer.around(model)
    return model


def _timeout(timeout: Timeout | float | None) -> Timeout | None:
    if timeout is None or isinstance(timeout, Timeout):
        return timeout or Timeout(seconds=None)
    return Timeout(seconds=timeout)
