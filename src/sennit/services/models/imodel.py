"""`iModel`: a model by name, with retry, limits and usage.

    model = iModel("openai:gpt-5", temperature=0.2)
    reply = await model.invoke("Hello")

It is a Model made of Models. Around the connection stand, from the inside out: the timeout, the
rate limit, the breaker, retry, the meter and the hooks. So each try is timed, waits its turn and
counts for the breaker; hooks and the meter see one call, however often it was tried.
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
from sennit.services.models.lazy import connection
from sennit.services.models.limits import CircuitBreaker, RateLimit, Retry, Timeout
from sennit.services.models.limits.validators import count
from sennit.services.models.params import checked_params
from sennit.services.models.protocol import Model, shapes_output
from sennit.services.models.reply import Delta, Reply, Usage
from sennit.services.models.request import ModelRequest, Offered, Said, model_request
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
        name: What it is registered under, if not the model's own name.
        base_url: Another address than the provider's own.
        api_key: The provider's key, if not the one in the environment.
        window: How many tokens it can take in, if the provider does not say.
        fetch_images: Whether addresses of images may be fetched from this machine for a provider
            that does not fetch them itself (Google); otherwise they are refused.
        retry: How to ask again; None never to.
        limits: How fast to ask; share one among models of the same account.
        breaker: When to leave the provider alone; None never to.
        timeout: How long to wait for a try; a number is seconds for the whole answer.
        before: A function, or several, that see each request and may give another.
        after: A function, or several, that see each request with its reply.
        meter: Counts usage; share one to count several models together.
        params: How to answer unless a request says otherwise: see PARAMS.

    Raises ValidationError for a name that cannot be one, or a parameter that does not exist;
    whatever else is wrong (no key, no such model) is a ModelError when it is asked.
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
        self._params = checked_params(params)
        self._connection = connection(
            model,
            name=name,
            base_url=base_url,
            api_key=api_key,
            window=window,
            fetch_images=fetch_images,
        )
        self._meter = meter or Meter()
        layers = (_timeout(timeout), limits, breaker, retry, self._meter)
        self._model = Hooked(_around(self._connection, layers), before, after)

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
        """True if it can answer piece by piece."""
        return self._connection.streams

    @property
    def shapes_output(self) -> bool:
        """True if it can be held to a JSON schema."""
        return self._connection.shapes_output

    @property
    def usage(self) -> Usage:
        """The usage of all calls so far."""
        return self._meter.total

    async def invoke(
        self,
        messages: Said | Iterable[Said],
        *,
        tools: Iterable[Offered] = (),
        output: type[BaseModel] | ModelSchema | Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Reply:
        """The reply to a text, to messages of ours, or to chat messages as dicts.

        Raises ModelError, and ValidationError for a request that makes no sense.
        """
        if output is not None and not await shapes_output(self):
            raise ValidationError(
                f"Model {self.name!r} does not support structured output; leave output= out."
            )
        request = model_request(messages, tools=tools, output=output, **params)
        return await self.ask(request)

    async def ask(self, request: ModelRequest) -> Reply:
        """The whole reply; raises ModelError, ValidationError, or what a hook raises."""
        return await self._model.ask(self._with_defaults(request))

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The reply as deltas, Finished last; leaving the block early stops the model.

        Raises what `ask` does, on entering or in the middle.
        """
        return self._model.stream(self._with_defaults(request))

    async def ready(self) -> None:
        """Connect now, not when it is first asked; what prevents that is said when it is asked."""
        await self._connection.ready()

    async def aclose(self) -> None:
        """Let go of what the model holds open, such as connections; it may be asked again."""
        await self._connection.aclose()

    def _with_defaults(self, request: ModelRequest) -> ModelRequest:
        own = checked_params(request.params)
        return replace(request, params={**self._params, **own}) if self._params else request

    def __repr__(self) -> str:
        return f"iModel({self.name!r})"

    def __copy__(self) -> Self:
        return self  # a service, not a value: copies of what uses it share it

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise InvalidTypeError(
            f"{self!r} holds connections and possibly an API key and cannot be pickled; pass its "
            f"name and create it again."
        )


def _around(
    model: Model, layers: Iterable[Timeout | RateLimit | CircuitBreaker | Retry | Meter | None]
) -> Model:
    for layer in layers:
        model = model if layer is None else layer.around(model)
    return model


def _timeout(given: Timeout | float | None) -> Timeout | None:
    if given is None or isinstance(given, Timeout):
        return given or Timeout(seconds=None)
    return Timeout(seconds=given)
