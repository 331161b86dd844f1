"""Models, tools and their registry with lionpride's names and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, cast

from sennit.errors import InvalidTypeError, ValidationError
from sennit.services.models.imodel import iModel as _iModel
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.models.protocol import Model
from sennit.services.registry import ServiceRegistry as _ServiceRegistry
from sennit.services.tools.tool import Tool as _Tool

__all__ = ["ServiceRegistry", "Tool", "iModel"]

_PROVIDERS = {"gemini": "google"}
_CHAT_ENDPOINTS = (None, "chat/completions", "messages")


class iModel(_iModel):
    """A model by `provider` and `model`; it is registered under the model's name.

    `limit_requests` and `limit_tokens` are per minute. For other options see `sennit.iModel`.
    Raises ValidationError for an `endpoint` other than the provider's chat endpoint.
    """

    def __init__(
        self,
        spec: str | Model | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        endpoint: str | None = None,
        name: str | None = None,
        tags: Iterable[str] = (),
        limit_requests: int | None = None,
        limit_tokens: int | None = None,
        **options: Any,
    ) -> None:
        if spec is None:
            if provider is None or model is None:
                raise InvalidTypeError(
                    "iModel takes provider= and model=, as iModel(provider='openai', "
                    "model='gpt-5'), or 'openai:gpt-5'."
                )
            spec, name = f"{_PROVIDERS.get(provider, provider)}:{model}", name or model
        if endpoint not in _CHAT_ENDPOINTS:
            raise ValidationError(
                f"iModel calls the provider's chat endpoint, got endpoint={endpoint!r}; leave it "
                f"out, or name another provider, such as 'openai-responses'."
            )
        if limit_requests is not None or limit_tokens is not None:
            options["limits"] = RateLimit(
                requests_per_minute=limit_requests, tokens_per_minute=limit_tokens
            )
        super().__init__(spec, name=name, **options)
        self.tags = frozenset(tags)


class Tool(_Tool):
    """A tool that can also be made with `from_function`."""

    @classmethod
    def from_function(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Self:
        """Return the tool for a typed function."""
        return cls(function, name, description)


class ServiceRegistry(_ServiceRegistry):
    """A registry with tags, `count`, `clear` and `get` with a default."""

    def register(
        self, service: Any, name: str | None = None, *, replace: bool = False, update: bool = False
    ) -> Any:
        """Register a model, tool or function; `update` is lionpride's name of `replace`."""
        parent = cast("Any", super())  # its overloads do not accept Any
        return parent.register(service, name, replace=replace or update)

    def get(self, name: Any, default: Any = ...) -> Any:
        """Return a service by name, or the default; raises NotFoundError without one."""
        key = name if isinstance(name, str) else getattr(name, "name", name)
        return super().get(key) if default is ... or self.has(key) else default

    def list_by_tag(self, tag: str) -> list[Any]:
        """Return the services with a tag."""
        return [one for one in map(self.get, self.list_names()) if tag in getattr(one, "tags", ())]

    def count(self) -> int:
        """Return the number of services."""
        return len(self)

    def clear(self) -> None:
        """Remove all services."""
        for name in self.list_names():
            self.unregister(name)
