"""HTTP client of one provider model, built on pydantic-ai.

Only `Model.request` and `Model.request_stream` are used. The import takes a second or two, so only
`providers.model` imports this module, and late. Exceptions are raised unchanged: `failure_of`
classifies one, and `providers.model` decides what the caller sees.

pydantic-ai drops unsupported settings with a warning or silently: `temperature` of reasoning
models, `seed` where the provider has none. Here they raise before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from inspect import signature
from json import JSONDecodeError
from typing import Any, cast, get_args

import pydantic

from sennit.errors import MissingExtraError, ModelErrorKind, ValidationError
from sennit.messages.codec import dumps
from sennit.services.models.providers.files import FileInput
from sennit.services.models.providers.items import mapping
from sennit.services.models.providers.replies.anthropic import AnthropicReader
from sennit.services.models.providers.replies.chat import ChatReader
from sennit.services.models.providers.replies.google import GoogleReader
from sennit.services.models.providers.replies.reader import ReplyReader
from sennit.services.models.providers.replies.responses import ResponsesReader
from sennit.services.models.providers.translate import (
    items_message,
    layer_messages,
    layer_parameters,
)
from sennit.services.models.providers.workarounds import (
    API,
    ReplyEvents,
    pass_json_through,
    whole_reply,
)
from sennit.services.models.reply import Delta, Reply, ReplyAssembler
from sennit.services.models.request import ModelRequest

try:
    from httpx2 import AsyncClient, TimeoutException, TransportError
    from pydantic_ai import exceptions, messages
    from pydantic_ai.models import (
        KnownModelName,
        Model,
        ModelRequestParameters,
        create_async_httpx2_client,
        infer_model,
    )
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.settings import ModelSettings
except ImportError as error:
    raise MissingExtraError.of("Asking a provider's model", "models") from error

_SETTING_NAMES: Mapping[str, str] = {"stop": "stop_sequences"}
_THINKING: Mapping[str, Any] = {"off": False}
_SAMPLING_SETTINGS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_CONTEXT_EXCEEDED = re.compile(
    r"(exceed|maximum|too long|larger).{0,80}context|context.{0,40}(exceed|too long)"
    r"|prompt is too long|input token count",
    re.IGNORECASE | re.DOTALL,
)
_NOT_JSON = "Expected a JSON response"
_MAX_CONTINUATIONS = 10
"""How often a reply that its provider pauses is continued."""
_READERS: Mapping[API, type[ReplyReader]] = {
    "chat": ChatReader,
    "responses": ResponsesReader,
    "anthropic": AnthropicReader,
    "google": GoogleReader,
}
_ERROR_KINDS: Sequence[tuple[type[Exception], ModelErrorKind]] = (
    (exceptions.ModelContextWindowExceededError, "context"),
    (exceptions.ModelAuthenticationError, "auth"),
    (exceptions.ModelNotFoundError, "not_found"),
    (exceptions.ModelRequestRejectedError, "bad_request"),
    (exceptions.ModelRateLimitError, "rate_limit"),
    (exceptions.ModelQuotaExceededError, "rate_limit"),
    (exceptions.ModelUnavailableError, "overloaded"),
    (exceptions.ModelServerError, "overloaded"),
    (exceptions.ModelTimeoutError, "timeout"),
    (exceptions.ModelConnectionError, "network"),
    (exceptions.UnexpectedModelBehavior, "malformed"),
    (exceptions.UserError, "bad_request"),
    (TimeoutException, "timeout"),
    (TransportError, "network"),
    (JSONDecodeError, "malformed"),
    (UnicodeDecodeError, "malformed"),
    (pydantic.ValidationError, "malformed"),
    (ValueError, "bad_request"),
    # Raised inside pydantic-ai when a response does not have the documented shape.
    (AttributeError, "malformed"),
    (LookupError, "malformed"),
    (TypeError, "malformed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """The model and its base URL, without the key, so that it is safe to show."""

    kind: str
    """The provider's name in pydantic-ai."""
    model: str
    """The name of the model at the provider."""
    base_url: str | None = None
    """The URL of the API; None for the provider's own."""
    fetch_images: bool = False
    """Whether image URLs may be fetched on this machine if the provider does not fetch them."""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request in pydantic-ai's types."""

    messages: list[messages.ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """The content of a pydantic-ai exception, with secrets not yet redacted."""

    kind: ModelErrorKind
    message: str
    status: int | None = None
    retry_after: float | None = None


class ProviderClient:
    """A provider's model and its HTTP client; bound to the event loop that first uses it."""

    def __init__(self, endpoint: ModelEndpoint, api_key: str | None) -> None:
        self._http_client = create_async_httpx2_client()
        # When a loop shuts down, asyncio closes its open async generators: the last moment at
        # which the connections can still be closed.
        self._closer = _closing(self._http_client)
        self._model = _create_model(endpoint, api_key, self._http_client)
        self._api: API = pass_json_through(self._model, endpoint.kind)
        self._is_chat_api = self._api == "chat"
        self._provider = endpoint.kind
        self._has_base_url = endpoint.base_url is not None
        self._is_openai = endpoint.kind.startswith("openai") and not self._has_base_url
        self._accepted = FileInput(
            endpoint.kind,
            cast("Mapping[str, Any]", self._model.profile),
            is_own_server=self._has_base_url,
            fetch_images=endpoint.fetch_images,
        )

    @property
    def is_closed(self) -> bool:
        """True if the connections are closed."""
        return self._http_client.is_closed

    async def close_with_loop(self) -> None:
        """Close the connections when the running event loop ends; does not yield to it."""
        await anext(self._closer)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._closer.aclose()

    def key_in_use(self) -> str | None:
        """Return the API key in use, also from the environment; None if the SDK hides it."""
        key = getattr(getattr(self._model, "client", None), "api_key", None)
        return key if isinstance(key, str) else None

    @property
    def address(self) -> str | None:
        """The server's URL without its query, which may contain a key; None if unknown."""
        url = self._model.base_url
        return None if url is None else url.partition("?")[0].rstrip("/")

    @property
    def window(self) -> int | None:
        """The context window in tokens; None if pydantic-ai does not list the model."""
        return self._model.context_window

    @property
    def supports_output_schema(self) -> bool:
        """True if the provider can enforce a JSON schema."""
        return bool(self._model.profile.get("supports_json_schema_output"))

    def prepare(self, request: ModelRequest, params: Mapping[str, Any]) -> ProviderRequest:
        """Translate a request; raises ValidationError if the model does not support it."""
        if request.output is not None and not self.supports_output_schema:
            raise ValidationError(
                "this model does not support structured output; describe the format in the prompt."
            )
        _ = request.forced  # raises for an unknown tool; pydantic-ai would only warn
        settings = self._settings(params) | self._cache_settings(request, params)
        if unsupported := sorted(
            self._ignored_settings(settings, params.get("reasoning")) & settings.keys()
        ):
            name = "stop" if unsupported[0] == "stop_sequences" else unsupported[0]
            raise ValidationError(
                f"this model does not support the parameter {name!r}; leave it out."
            )
        try:
            model_messages = list(layer_messages(request.messages, self._provider, self._accepted))
        except (AttributeError, LookupError, TypeError) as error:
            raise ValidationError(f"a message is not a chat message: {error!r}") from error
        return ProviderRequest(
            model_messages, cast("ModelSettings", settings), layer_parameters(request)
        )

    def _settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params under pydantic-ai's names, with the SDK's own retries disabled."""
        settings: dict[str, Any] = {"max_retries": 0}
        for name, value in params.items():
            if name not in ("reasoning", "prompt_cache"):
                settings[_SETTING_NAMES.get(name, name)] = value
        if (effort := params.get("reasoning")) is not None:
            settings.update(self._reasoning(effort))
        if settings.get("parallel_tool_calls") and self._unsupported("parallel_tool_calls"):
            # Such a provider always allows parallel calls.
            del settings["parallel_tool_calls"]
        return settings

    def _cache_settings(self, request: ModelRequest, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for the provider's prompt cache.

        For Anthropic they mark the end of the instructions and of the prompt. Writing to its cache
        costs more than sending, so a single question is not marked. OpenAI gets a key that all
        requests of a conversation share, by which it sends them to the machine with the cache.
        """
        said = sum(message.get("role") != "system" for message in request.messages)
        marks = params.get("prompt_cache", said > 1 or bool(request.tools))
        if self._provider == "anthropic" and marks:
            return {"anthropic_cache_instructions": marks, "anthropic_cache_messages": marks}
        if self._is_openai and params.get("prompt_cache") is not False:
            return {"openai_prompt_cache_key": _beginning_key(request)}
        return {}

    def _reasoning(self, effort: str) -> dict[str, Any]:
        profile = self._model.profile
        if effort == "off" and profile.get("thinking_always_enabled"):
            raise ValidationError("this model cannot turn reasoning 'off'; use 'low'.")
        if profile.get("supports_thinking"):
            return {"thinking": _THINKING.get(effort, effort)}
        if effort == "off" and not (self._is_chat_api and self._has_base_url):
            return {}
        if self._is_chat_api:  # pydantic-ai has no profile of it; the server decides
            return {"openai_reasoning_effort": "none" if effort == "off" else effort}
        raise ValidationError(f"this model does not reason; leave out reasoning={effort!r}.")

    def _unsupported(self, name: str) -> bool:
        unsupported: Iterable[str] = self._model.unsupported_settings
        profile_unsupported = cast(
            "Iterable[str]", self._model.profile.get("openai_unsupported_model_settings", ())
        )
        return name in unsupported or name in profile_unsupported

    def _ignored_settings(self, settings: Mapping[str, Any], effort: str | None) -> set[str]:
        """Return the settings that pydantic-ai would drop from the request."""
        # The timeout is also enforced here, and max_retries is set by `_settings`.
        enforced_here = ("timeout", "max_retries")
        ignored = {
            name for name in settings if name not in enforced_here and self._unsupported(name)
        }
        profile = cast("Mapping[str, Any]", self._model.profile)
        if profile.get("anthropic_disallows_sampling_settings"):
            ignored.update(_SAMPLING_SETTINGS)
        if profile.get("openai_supports_reasoning") and not _reasoning_is_off(profile, effort):
            ignored.update(_SAMPLING_SETTINGS)
        return ignored

    async def ask(self, request: ProviderRequest) -> Reply:
        """Return the whole reply."""
        reader, assembly, sent = self._reader(), ReplyAssembler(), request
        body: Any = None
        for _ in range(_MAX_CONTINUATIONS):
            response = await self._model.request(sent.messages, sent.settings, sent.parameters)
            body, events = whole_reply(response)
            for event in events:
                _feed(assembly, reader.event(event))
            if body is not None:
                _feed(assembly, reader.whole(body))
            if not reader.is_paused:
                break
            sent = _continued(request, reader)
        _feed(assembly, reader.end(whole=body is not None))
        return assembly.reply()

    @asynccontextmanager
    async def stream(self, request: ProviderRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Stream the reply as deltas."""
        async with AsyncExitStack() as stack:
            events = await stack.enter_async_context(self._open(request))
            yield self._deltas(request, events, stack)

    def _open(self, request: ProviderRequest) -> AbstractAsyncContextManager[ReplyEvents]:
        context: Any = self._model.request_stream(
            request.messages, request.settings, request.parameters
        )
        return context

    async def _deltas(
        self, request: ProviderRequest, events: ReplyEvents, stack: AsyncExitStack
    ) -> AsyncIterator[Delta]:
        reader = self._reader()
        for _ in range(_MAX_CONTINUATIONS):
            async for event in events.read():
                for delta in reader.event(event):
                    yield delta
            if not reader.is_paused:
                break
            events = await stack.enter_async_context(self._open(_continued(request, reader)))
        for delta in reader.end():
            yield delta

    def _reader(self) -> ReplyReader:
        return _READERS[self._api](self._provider, getattr(self._model, "base_url", None) or "")


def _continued(request: ProviderRequest, reader: ReplyReader) -> ProviderRequest:
    """Return the request with a paused reply at its end."""
    container = mapping(reader.details.get("container")).get("id")
    paused = items_message(reader.items() or (), container)
    reader.continue_with_next()
    return replace(request, messages=[*request.messages, paused])


def _feed(assembly: ReplyAssembler, deltas: Iterable[Delta]) -> None:
    for delta in deltas:
        assembly.feed(delta)


def _beginning_key(request: ModelRequest) -> str:
    """Return a digest of a prompt up to its first message that is not the system's."""
    beginning: list[Any] = []
    for message in request.messages:
        beginning.append(message)
        if message.get("role") != "system":
            break
    return f"sennit-{blake2b(dumps(beginning), digest_size=12).hexdigest()}"


async def _closing(client: AsyncClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await client.aclose()


def _create_model(endpoint: ModelEndpoint, api_key: str | None, client: AsyncClient) -> Model:
    provider_class = infer_provider_class(endpoint.kind)
    options: dict[str, Any] = {"api_key": api_key, "http_client": client}
    if endpoint.base_url is not None:
        if "base_url" not in signature(provider_class).parameters:
            raise ValidationError(
                f"{endpoint.kind!r} does not support base_url; use 'openai:{endpoint.model}' for "
                f"an OpenAI-compatible server."
            )
        options["base_url"] = endpoint.base_url
    provider = provider_class(**options)
    return infer_model(f"{endpoint.kind}:{endpoint.model}", provider_factory=lambda _: provider)


def _reasoning_is_off(profile: Mapping[str, Any], effort: str | None) -> bool:
    efforts = profile.get("openai_reasoning_efforts")
    supports_none = (
        profile.get("openai_supports_reasoning_effort_none")
        if efforts is None
        else "none" in efforts
    )
    if not supports_none:
        return False
    return effort == "off" or (effort is None and not profile.get("thinking_enabled_by_default"))


def known_models() -> list[tuple[str, str]]:
    """Return the providers and names of the models that pydantic-ai lists."""
    names = get_args(getattr(KnownModelName, "__value__", KnownModelName))
    pairs = (str(name).partition(":") for name in names)
    return [(provider, model) for provider, _, model in pairs if model]


def failure_of(error: BaseException) -> ProviderFailure:
    """Extract the failure from a pydantic-ai exception or its cause."""
    kind, message = _kind(error), _provider_message(error)
    # Providers have no codes for these, only messages.
    if kind == "bad_request" and _CONTEXT_EXCEEDED.search(message):
        kind = "context"
    if kind == "failed" and message.startswith(_NOT_JSON):
        kind = "malformed"
    status = getattr(error, "status_code", None)
    return ProviderFailure(kind, message, status, getattr(error, "retry_after", None))


def _kind(error: BaseException) -> ModelErrorKind:
    if getattr(error, "status_code", None) == 408:
        return "timeout"
    cause: BaseException | None = error
    while cause is not None:
        for type_, kind in _ERROR_KINDS:
            if isinstance(cause, type_):
                return kind
        cause = cause.__cause__
    return "bad_request" if 400 <= (getattr(error, "status_code", None) or 0) < 500 else "failed"


def _provider_message(error: BaseException) -> str:
    """Return the message in the response body, or else that of the exception."""
    body = getattr(error, "body", None)
    for source in (body, *(_field_values(body, "error"))):
        for message in _field_values(source, "message"):
            if isinstance(message, str) and message:
                return message
    return str(error) or type(error).__name__


def _field_values(mapping: Any, name: str) -> list[Any]:
    return [mapping[name]] if isinstance(mapping, dict) and name in mapping else []
