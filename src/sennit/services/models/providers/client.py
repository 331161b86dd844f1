"""An HTTP client of one provider model, through pydantic-ai.

Only `Model.request` and `Model.request_stream` are used. The import costs a second or two, so only
`providers.connect` imports this. Whatever is raised comes out as it is: `failure` reads an
exception, `providers` decides what the caller gets to see.

The layer drops some settings with a warning, or with none: `temperature` where a model reasons,
`seed` where a provider has no such thing. Here they are refused before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import signature
from json import JSONDecodeError
from typing import Any, cast

import pydantic

from sennit.errors import ModelErrorKind, ValidationError
from sennit.services.models.providers.pydantic_ai_imports import (
    AsyncClient,
    Model,
    ModelRequestParameters,
    ModelSettings,
    TimeoutException,
    TransportError,
    create_async_httpx2_client,
    exceptions,
    infer_model,
    infer_provider_class,
    messages,
)
from sennit.services.models.providers.translate import (
    deltas,
    has_image_address,
    layer_messages,
    layer_parameters,
    reply,
)
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest

_SETTINGS: Mapping[str, str] = {"stop": "stop_sequences"}
_THINKING: Mapping[str, Any] = {"off": False}
_SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_TOO_LONG = re.compile(
    r"(exceed|maximum|too long|larger).{0,80}context|context.{0,40}(exceed|too long)"
    r"|prompt is too long|input token count",
    re.IGNORECASE | re.DOTALL,
)
_FETCHED_HERE = ("google",)
"""Providers for which the layer fetches the address of an image itself."""
_NOT_JSON = "Expected a JSON response"
_KINDS: Sequence[tuple[type[Exception], ModelErrorKind]] = (
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
    # What the layer trips over when an answer has another shape than the one it was promised.
    (AttributeError, "malformed"),
    (LookupError, "malformed"),
    (TypeError, "malformed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """The model and its base URL, without the key, so that it may be shown."""

    kind: str
    """The name of the provider in the layer."""
    model: str
    base_url: str | None = None
    fetch_images: bool = False
    """Whether the layer may fetch addresses of images that the provider does not fetch itself."""


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request in the layer's words."""

    messages: list[messages.ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


@dataclass(frozen=True, slots=True)
class ProviderFailure:
    """The content of a pydantic-ai exception, not yet safe to show."""

    kind: ModelErrorKind
    said: str
    status: int | None = None
    retry_after: float | None = None


class ProviderClient:
    """A model at its provider, with one HTTP client; it belongs to the event loop that uses it."""

    def __init__(self, address: ModelEndpoint, api_key: str | None) -> None:
        self.client = create_async_httpx2_client()
        self._model = _layer_model(address, api_key, self.client)
        self._chat = address.kind not in ("anthropic", "google", "openai-responses")
        self._elsewhere = address.base_url is not None
        self._sends_addresses = address.kind not in _FETCHED_HERE or address.fetch_images

    def key_in_use(self) -> str | None:
        """The key, also one from the environment, where the provider's SDK tells it."""
        key = getattr(getattr(self._model, "client", None), "api_key", None)
        return key if isinstance(key, str) else None

    @property
    def window(self) -> int | None:
        """The tokens the model takes in, as far as the layer's lists know."""
        return self._model.context_window

    @property
    def shapes_output(self) -> bool:
        """True if the provider holds the model to a JSON schema."""
        return bool(self._model.profile.get("supports_json_schema_output"))

    def asked(self, request: ModelRequest, params: Mapping[str, Any]) -> ProviderRequest:
        """The request in the layer's words; ValidationError for what the model cannot do."""
        if request.output is not None and not self.shapes_output:
            raise ValidationError(
                "this model does not support structured output; describe the format in the prompt."
            )
        _ = request.forced  # raises for a tool that is not there; the layer would only warn
        settings = self._settings(params)
        if refused := sorted(self._ignored(settings, params.get("reasoning")) & settings.keys()):
            name = "stop" if refused[0] == "stop_sequences" else refused[0]
            raise ValidationError(
                f"this model does not support the parameter {name!r}; leave it out."
            )
        try:
            said = list(layer_messages(request.messages))
        except (AttributeError, LookupError, TypeError) as error:
            raise ValidationError(f"a message is not a chat message: {error!r}") from error
        if not self._sends_addresses and has_image_address(said):
            raise ValidationError(
                "this provider does not accept image URLs, so the image would be fetched from this "
                "machine; allow that with fetch_images=True, or use another provider."
            )
        return ProviderRequest(said, cast("ModelSettings", settings), layer_parameters(request))

    def _settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The params under the layer's names. Asking again is not for the SDK to decide."""
        settings: dict[str, Any] = {"max_retries": 0}
        for name, value in params.items():
            if name != "reasoning":
                settings[_SETTINGS.get(name, name)] = value
        if (effort := params.get("reasoning")) is not None:
            settings.update(self._reasoning(effort))
        if settings.get("parallel_tool_calls") and self._unsupported("parallel_tool_calls"):
            # Several at once is what such a provider does anyway.
            del settings["parallel_tool_calls"]
        return settings

    def _reasoning(self, effort: str) -> dict[str, Any]:
        profile = self._model.profile
        if effort == "off" and profile.get("thinking_always_enabled"):
            raise ValidationError("this model cannot turn reasoning 'off'; use 'low'.")
        if profile.get("supports_thinking"):
            return {"thinking": _THINKING.get(effort, effort)}
        if effort == "off" and not (self._chat and self._elsewhere):
            return {}
        if self._chat:  # a model the layer has no profile of; the server knows whether it can
            return {"openai_reasoning_effort": "none" if effort == "off" else effort}
        raise ValidationError(f"this model does not reason; leave out reasoning={effort!r}.")

    def _unsupported(self, name: str) -> bool:
        unsupported: Iterable[str] = self._model.unsupported_settings
        more = cast(
            "Iterable[str]", self._model.profile.get("openai_unsupported_model_settings", ())
        )
        return name in unsupported or name in more

    def _ignored(self, settings: Mapping[str, Any], effort: str | None) -> set[str]:
        """The settings that the layer would leave out of the request."""
        # The time limit is enforced on our side as well, and the other is nobody's wish.
        ours = ("timeout", "max_retries")
        ignored = {name for name in settings if name not in ours and self._unsupported(name)}
        profile = cast("Mapping[str, Any]", self._model.profile)
        if profile.get("anthropic_disallows_sampling_settings"):
            ignored.update(_SAMPLING)
        if profile.get("openai_supports_reasoning") and not _reasoning_is_off(profile, effort):
            ignored.update(_SAMPLING)
        return ignored

    async def ask(self, asked: ProviderRequest) -> Reply:
        """The whole reply."""
        return reply(await self._model.request(asked.messages, asked.settings, asked.parameters))

    @asynccontextmanager
    async def stream(self, asked: ProviderRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """The reply as deltas."""
        streamed = self._model.request_stream(asked.messages, asked.settings, asked.parameters)
        async with streamed as response:
            yield deltas(response)


def _layer_model(address: ModelEndpoint, api_key: str | None, client: AsyncClient) -> Model:
    provider_class = infer_provider_class(address.kind)
    options: dict[str, Any] = {"api_key": api_key, "http_client": client}
    if address.base_url is not None:
        if "base_url" not in signature(provider_class).parameters:
            raise ValidationError(
                f"{address.kind!r} does not support base_url; use 'openai:{address.model}' for an "
                f"OpenAI-compatible server."
            )
        options["base_url"] = address.base_url
    provider = provider_class(**options)
    return infer_model(f"{address.kind}:{address.model}", provider_factory=lambda _: provider)


def _reasoning_is_off(profile: Mapping[str, Any], effort: str | None) -> bool:
    efforts = profile.get("openai_reasoning_efforts")
    can = (
        profile.get("openai_supports_reasoning_effort_none")
        if efforts is None
        else "none" in efforts
    )
    if not can:
        return False
    return effort == "off" or (effort is None and not profile.get("thinking_enabled_by_default"))


def failure(error: BaseException) -> ProviderFailure:
    """Extract the failure from a pydantic-ai exception or its cause."""
    kind, said = _kind(error), _said(error)
    # There are no codes for these, only wordings.
    if kind == "bad_request" and _TOO_LONG.search(said):
        kind = "context"
    if kind == "failed" and said.startswith(_NOT_JSON):
        kind = "malformed"
    status = getattr(error, "status_code", None)
    return ProviderFailure(kind, said, status, getattr(error, "retry_after", None))


def _kind(error: BaseException) -> ModelErrorKind:
    if getattr(error, "status_code", None) == 408:
        return "timeout"
    cause: BaseException | None = error
    while cause is not None:
        for type_, kind in _KINDS:
            if isinstance(cause, type_):
                return kind
        cause = cause.__cause__
    return "bad_request" if 400 <= (getattr(error, "status_code", None) or 0) < 500 else "failed"


def _said(error: BaseException) -> str:
    """The provider's own words where it sent some."""
    body = getattr(error, "body", None)
    for place in (body, *(_values(body, "error"))):
        for said in _values(place, "message"):
            if isinstance(said, str) and said:
                return said
    return str(error) or type(error).__name__


def _values(place: Any, name: str) -> list[Any]:
    return [place[name]] if isinstance(place, dict) and name in place else []
