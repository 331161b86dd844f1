"""Provider models: looked up by name, called over HTTP.

`connect("openai:gpt-5")` returns a Model. Invariants:

- The API key comes from the caller or the environment. No repr, pickle or log contains it, and it
  is redacted from provider messages, because error texts often quote it.
- Every failure becomes a ModelError whose kind says who has to act. The original exception is its
  `__cause__`, unless it quotes a key.
- Nothing is retried here: retrying is the caller's decision.
- One HTTP client per event loop, reused across calls. A client is bound to the loop it first ran
  on; it is closed when that loop ends, or by `aclose`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar
from weakref import finalize

from sennit.closing import AsyncClosing
from sennit.errors import (
    MissingExtraError,
    ModelError,
    ModelErrorKind,
    SennitError,
    ValidationError,
    short_repr,
)
from sennit.messages.image_url import http_host
from sennit.services.models.limits.timeout import Deadline
from sennit.services.models.names import nearest_known
from sennit.services.models.params import check_params
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest

if TYPE_CHECKING:
    from sennit.services.models.providers.client import (
        ModelEndpoint,
        ProviderClient,
        ProviderRequest,
    )

_T = TypeVar("_T")
_Key: TypeAlias = Callable[[], str | None]
"""A closure around an API key, so that no repr or pickle contains it."""

PROVIDERS: Mapping[str, str] = {
    "openai": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "google": "google",
    "ollama": "ollama",
    "alibaba": "alibaba",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "heroku": "heroku",
    "moonshotai": "moonshotai",
    "nebius": "nebius",
    "openrouter": "openrouter",
    "ovhcloud": "ovhcloud",
    "sambanova": "sambanova",
    "together": "together",
    "vercel": "vercel",
    "vllm": "vllm",
    "zai": "zai",
}
"""Provider names, mapped to pydantic-ai's names."""

_AUTHORITY_END = re.compile(r"[/?#]")
_OLLAMA_URL = "http://localhost:11434/v1"
_QUOTED_VARIABLE = re.compile(r"`([A-Z][A-Z0-9_]+)`")
_SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)S?$")
_LOOKS_SECRET = re.compile(r"\b(?:sk|pk|gsk|xai|AIza)[-_][\w*.-]{6,}|(?<=Bearer )\S+")
_MIN_SECRET_LENGTH = 6
_MAX_MESSAGE_LENGTH = 600
_HINTS: Mapping[ModelErrorKind, str] = {
    "auth": " Check the key and what it may be used for.",
    "not_found": " Check the model's name and the base_url.",
    "context": " Shorten the conversation.",
}


def connect(
    spec: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    window: int | None = None,
    fetch_images: bool = False,
) -> ProviderModel:
    """Return the model named by `spec`, "provider:model"; nothing is sent before the first call.

    Args:
        spec: Such as "openai:gpt-5", "anthropic:claude-opus-5", "google:gemini-2.5-flash" or
            "ollama:qwen3". With `base_url`, "openai:name" is any OpenAI-compatible server.
        base_url: The server's URL, if not the provider's own.
        api_key: The API key; by default the provider's environment variable is read.
        window: The context window in tokens, if it is not known from the model's name.
        fetch_images: Whether image URLs may be fetched from this machine for a provider that does
            not fetch them itself.

    Raises:
        ModelError: kind "not_found" for an unknown provider, "auth" without a key.
        ValidationError: `spec` or `base_url` is invalid.
        MissingExtraError: the provider packages are not installed.
    """
    provider, name = _parse_spec(spec)
    try:
        from sennit.services.models.providers.client import ModelEndpoint
    except ImportError as error:
        raise MissingExtraError.of(f"Model {spec!r}", "models") from error
    if provider == "ollama" and base_url is None and not os.environ.get("OLLAMA_BASE_URL"):
        base_url = _OLLAMA_URL
    endpoint = ModelEndpoint(
        kind=PROVIDERS[provider],
        model=name,
        base_url=_checked_url(base_url),
        fetch_images=fetch_images,
    )
    return ProviderModel(spec, endpoint, api_key, window)


def _parse_spec(spec: str) -> tuple[str, str]:
    if not isinstance(spec, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(
            f"A model is named by text like 'openai:gpt-5', got {short_repr(spec)}."
        )
    provider, colon, name = spec.partition(":")
    if not colon or not name.strip():
        raise ValidationError(f"A model is named 'provider:model', got {short_repr(spec)}.")
    if provider not in PROVIDERS:
        raise ModelError(
            f"There is no provider {short_repr(provider)}; there are {', '.join(PROVIDERS)}. For "
            f"an OpenAI-compatible server, use 'openai:{name}' with base_url.",
            kind="not_found",
        )
    return provider, name


def _checked_url(url: str | None) -> str | None:
    if url is None:
        return None
    if "@" in _AUTHORITY_END.split(url.partition("//")[2], 1)[0]:  # not shown: it holds a secret
        raise ValidationError("base_url must not contain credentials; pass them as api_key.")
    if http_host(url) is None:
        raise ValidationError(f"base_url must be an http(s) URL, got {short_repr(url)}.")
    return url


class ProviderModel(AsyncClosing):
    """A model of a provider; created by `connect`.

    Safe to use from any number of tasks, threads and asyncio event loops.
    """

    streams = True

    def __init__(
        self, name: str, endpoint: ModelEndpoint, api_key: str | None, window: int | None
    ) -> None:
        self.name = name
        """The name given to `connect`."""
        self._endpoint = endpoint
        self._lock = Lock()
        self._clients: dict[asyncio.AbstractEventLoop, ProviderClient] = {}
        # A loop may outlive the model by far, such as that of blocking calls.
        finalize(self, _close_clients, self._clients).atexit = False
        self._key: _Key = lambda: api_key
        # Created now to raise setup errors early; the first loop that calls takes it.
        self._spare: ProviderClient | None = self._create_client()
        # The environment may change before the next loop needs the key.
        key_in_use = api_key or self._spare.key_in_use()
        self._key = lambda: key_in_use
        self.window = window or self._spare.window
        """The context window in tokens; None if unknown."""
        self.supports_output_schema = self._spare.supports_output_schema
        """True if it supports structured output."""

    def __repr__(self) -> str:
        return f"<ProviderModel {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} holds an API key and cannot be pickled; connect again instead.")

    async def aask(self, request: ModelRequest) -> Reply:
        """Return the whole reply; raises ModelError, or ValidationError if not supported."""
        call = await self._call(request)
        return await call.run(call.client.ask(call.request))

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Stream the reply as deltas; leaving the block early closes the connection."""
        call = await self._call(request)
        context = call.client.stream(call.request)
        raw_deltas = await call.run(context.__aenter__())
        try:
            async with aclosing(call.deltas(raw_deltas)) as deltas:
                yield deltas
        finally:
            await call.translate_errors(context.__aexit__(None, None, None))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the model stays usable."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def close_everywhere(self) -> None:
        """Close the connections of all event loops, each on its own loop, without waiting."""
        with self._lock:
            clients = dict(self._clients)
            self._clients.clear()
        _close_clients(clients)

    async def _call(self, request: ModelRequest) -> _Call:
        params = check_params(request.params)
        client = await self._loop_client()
        try:
            provider_request = client.prepare(request, params)
        except ValidationError as error:
            raise type(error)(f"Model {self.name!r}: {error}") from None
        return _Call(self.name, client, provider_request, params, self._key)

    async def _loop_client(self) -> ProviderClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [other for other in self._clients if other.is_closed()]:
                del self._clients[other]
            client = self._clients.get(loop)
            if client is not None and not client.is_closed:
                return client
            spare, self._spare = self._spare, None
            client = self._clients[loop] = spare or self._create_client()
        await client.close_with_loop()
        return client

    def _create_client(self) -> ProviderClient:
        from sennit.services.models.providers.client import ProviderClient, failure_of

        try:
            return ProviderClient(self._endpoint, self._key())
        except SennitError:
            raise
        except ImportError as error:
            raise MissingExtraError.of(f"Model {self.name!r}", "models") from error
        except Exception as error:
            secrets = _secret_values(self._key, {})
            model_error = _setup_error(self.name, failure_of(error).message, secrets)
            is_told = model_error.kind == "auth" or _quotes_secret(error, secrets)
            model_error.__cause__ = None if is_told else error
        raise model_error


def _close_clients(clients: Mapping[asyncio.AbstractEventLoop, ProviderClient]) -> None:
    """Close the connections of a model that is no longer used, each on its own loop."""
    for loop, client in clients.items():
        with suppress(RuntimeError):  # the loop has ended, and closed them
            loop.call_soon_threadsafe(_close_soon, client)


def _close_soon(client: ProviderClient) -> None:
    task = asyncio.ensure_future(client.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_closing: set[asyncio.Future[None]] = set()  # a loop refers to its tasks only weakly


def _setup_error(name: str, message: str, secrets: Iterable[str]) -> ModelError:
    """Return the error for missing configuration, usually the API key."""
    variables = _QUOTED_VARIABLE.findall(message)
    names = " or ".join(variables)
    if any("KEY" in variable or "TOKEN" in variable for variable in variables):
        hint = nearest_known(name, same_digits=True)
        return ModelError(
            f"Model {name!r} needs an API key: set {names}, or pass api_key.{hint}", kind="auth"
        )
    if variables:
        return ModelError(f"Model {name!r} needs {names} to be set.", kind="bad_request")
    return ModelError(f"Model {name!r} cannot be set up: {_redact(message, secrets)}")


class _Call:
    """One running request: its deadline, and the secrets to redact from its errors."""

    def __init__(
        self,
        name: str,
        client: ProviderClient,
        request: ProviderRequest,
        params: Mapping[str, Any],
        key: _Key,
    ) -> None:
        self.client = client
        self.request = request
        self._name = name
        self._key = key
        self._headers: Mapping[str, str] = params.get("extra_headers") or {}
        self._deadline = Deadline(name, params.get("timeout"))

    async def run(self, awaitable: Awaitable[_T]) -> _T:
        """Await before the deadline, and translate exceptions."""
        return await self._deadline.within(self.translate_errors(awaitable))

    async def deltas(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        """Yield the deltas, all within the deadline of the request."""
        while delta := await self._deadline.next_delta(self.translate_errors(anext(deltas, None))):
            yield delta

    async def translate_errors(self, awaitable: Awaitable[_T]) -> _T:
        """Return the result of `awaitable`; any exception becomes a ModelError."""
        try:
            return await awaitable
        except ModelError as error:
            failure = ModelError(f"Model {self._name!r}: {error}", kind=error.kind)
        except Exception as error:
            failure = self._provider_error(error)
        # Outside the except clauses: inside, Python would set __context__, which may hold secrets.
        raise failure

    def _provider_error(self, error: Exception) -> ModelError:
        from sennit.services.models.providers.client import failure_of

        details, secrets = failure_of(error), _secret_values(self._key, self._headers)
        status = "" if details.status is None else f" ({details.status})"
        message, hint = _redact(details.message, secrets), self._hint(details.kind)
        stop = "." if hint and not message.endswith((".", "!", "?")) else ""
        model_error = ModelError(
            f"Model {self._name!r} failed{status}: {message}{stop}{hint}",
            kind=details.kind,
            status=details.status,
            retry_after=details.retry_after,
        )
        if not _quotes_secret(error, secrets):
            model_error.__cause__ = error
        return model_error

    def _hint(self, kind: ModelErrorKind) -> str:
        if kind == "network" and (address := self.client.address) is not None:
            return f" Check that a server answers at {address}."
        nearest = nearest_known(self._name) if kind == "not_found" else ""
        return f"{_HINTS.get(kind, '')}{nearest}"


def _secret_values(key: _Key, headers: Mapping[str, str]) -> list[str]:
    """Return the strings to redact: the key, header values and secrets in the environment."""
    environment_secrets = (
        value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)
    )
    candidates = (key() or "", *headers.values(), *environment_secrets)
    return [secret for secret in candidates if len(secret) >= _MIN_SECRET_LENGTH]


def _redact(text: str, secrets: Iterable[str]) -> str:
    """Return `text` on one line, with secrets replaced and its length limited."""
    for secret in secrets:
        text = text.replace(secret, "***")
    text = " ".join(_LOOKS_SECRET.sub("***", text).split())
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}…"


def _quotes_secret(error: BaseException | None, secrets: Sequence[str]) -> bool:
    """Return whether a traceback of `error` would show a secret."""
    while error is not None:
        message = str(error)
        if _LOOKS_SECRET.search(message) or any(secret in message for secret in secrets):
            return True
        error = error.__cause__ or error.__context__
    return False
