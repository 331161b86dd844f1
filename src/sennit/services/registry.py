"""The registry of models and tools by name.

Models and tools share one namespace because grants name both: a branch that may use "search" may
use whatever is registered under that name. So a name refers to one service until it is
unregistered or replaced, and a tool is registered under the name by which a model calls it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import RLock
from types import MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.messages.json_values import validate_text
from sennit.services.tools.backend import ToolBackend
from sennit.services.tools.tool import Tool

if TYPE_CHECKING:
    from sennit.services.models.imodel import iModel
    from sennit.services.models.protocol import Model

Service: TypeAlias = "Model | Tool"
ToolSource: TypeAlias = "str | Tool | Callable[..., object]"
"""A registered name, a tool, or a typed function."""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_M = TypeVar("_M", bound="Model")
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class _Entry:
    service: Service
    registered: object
    """The object that was registered, before it was wrapped or renamed."""

    def is_registered_from(self, service: object) -> bool:
        # Each lookup of a bound method creates a new object, which compares equal.
        same = isinstance(service, MethodType) and service == self.registered
        return same or service is self.registered or service is self.service


class ServiceRegistry:
    """Models and tools by name. Safe to use from many threads."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._provider_models: dict[str, iModel] = {}
        self._lock = RLock()

    @overload
    def register(
        self, service: Tool[_P, _R], name: str | None = None, *, replace: bool = False
    ) -> Tool[_P, _R]: ...
    @overload
    def register(self, service: _M, name: str | None = None, *, replace: bool = False) -> _M: ...
    @overload
    def register(
        self,
        service: Callable[_P, Awaitable[_R]],
        name: str | None = None,
        *,
        replace: bool = False,
    ) -> Tool[_P, _R]: ...
    @overload
    def register(
        self, service: Callable[_P, _R], name: str | None = None, *, replace: bool = False
    ) -> Tool[_P, _R]: ...
    def register(self, service: Any, name: str | None = None, *, replace: bool = False) -> Service:
        """Register a model, a tool or a typed function, which becomes a tool; returns the service.

        The name defaults to that of the model, tool or function. Registering the same object again
        changes nothing. Raises ExistsError if another service has the name, unless `replace` is
        True.
        """
        return self._register([(name, service)], replace)[0]

    def register_all(
        self, services: Iterable[Service | Callable[..., object]], *, replace: bool = False
    ) -> list[Service]:
        """Register several services under their own names: all of them, or none."""
        return self._register([(None, service) for service in services], replace)

    def _register(self, services: Iterable[tuple[str | None, Any]], replace: bool) -> list[Service]:
        new: dict[str, _Entry] = {}
        with self._lock:
            registered = [
                self._add_entry(service, name, new, replace) for name, service in services
            ]
            self._entries.update(new)
        return registered

    def _add_entry(
        self, service: Any, name: str | None, new: dict[str, _Entry], replace: bool
    ) -> Service:
        """Validate a service and add it to `new`, or return the one already registered."""
        entry = _entry(service, name)
        key = entry.service.name if name is None else name
        existing = new.get(key) or (None if replace else self._entries.get(key))
        if existing is None:
            new[key] = entry
            return entry.service
        if existing.is_registered_from(service):
            return existing.service
        raise ExistsError(
            f"{key!r} is already the name of {short_repr(existing.service)}; give another with "
            f"name=, or register it with replace=True."
        )

    def unregister(self, name: str) -> Service:
        """Remove a service and return it; raises NotFoundError."""
        with self._lock:
            service = self.get(name)
            del self._entries[name]
            return service

    def get(self, name: str) -> Service:
        """Return a service by name; raises NotFoundError that suggests similar names."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                raise self._not_found(name)
            return entry.service

    def model(self, name: str) -> Model:
        """Return a model by name; raises NotFoundError, or InvalidTypeError if it is a tool."""
        service = self.get(name)
        if isinstance(service, Tool):
            raise InvalidTypeError(f"{name!r} is a tool; a model is needed here.")
        return service

    def provider_model(self, spec: str) -> Model:
        """Return the model for a provider string such as "openai:gpt-5" or "local".

        Only for strings from the program itself: names in requests, stored data and replies must
        be looked up with `model`. The same string returns the same model each time, and nothing is
        registered. Raises NotFoundError.
        """
        from sennit.services.models.imodel import iModel  # late: slow to import

        with self._lock:
            if spec not in self._provider_models:
                try:
                    self._provider_models[spec] = iModel(spec)
                except ValidationError as error:
                    registered = f"{self._not_found(spec)} " if self._entries else ""
                    raise NotFoundError(f"{registered}{error}") from None
            return self._provider_models[spec]

    def tool(self, name: str) -> Tool:
        """Return a tool by name; raises NotFoundError, or InvalidTypeError if it is a model."""
        service = self.get(name)
        if not isinstance(service, Tool):
            raise InvalidTypeError(f"{name!r} is a model; a tool is needed here.")
        return service

    def name_of(self, service: object) -> str | None:
        """Return the name under which a model, tool or function is registered, or None.

        Of several names its own comes first, then the oldest.
        """
        with self._lock:
            own_name = getattr(service, "name", None) or getattr(service, "__name__", None)
            for name in (own_name, *self._entries):
                entry = self._entries.get(name) if isinstance(name, str) else None
                if entry is not None and entry.is_registered_from(service):
                    return name
            return None

    def as_tool(self, tool: str | Tool | Callable[..., object]) -> Tool:
        """Return the tool for a registered name, a Tool or a typed function.

        A registered tool keeps the name under which it is registered.
        """
        name = tool if isinstance(tool, str) else self.name_of(tool)
        if isinstance(tool, str) or name is not None:
            return self.tool(name or "")
        return cast("Tool", tool) if isinstance(tool, Tool) else Tool(tool)

    def has(self, name: str) -> bool:
        """Return whether a service has that name."""
        return name in self

    def list_names(self) -> list[str]:
        """Return all names in order of registration."""
        with self._lock:
            return list(self._entries)

    def _not_found(self, name: object) -> NotFoundError:
        names = list(self._entries)
        return NotFoundError(
            f"No service {short_repr(name)}; there are: {listed(names)}.{did_you_mean(name, names)}"
        )

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over a snapshot of the names."""
        return iter(self.list_names())

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        """Return True, also for an empty registry."""
        return True

    def __repr__(self) -> str:
        return f"ServiceRegistry({', '.join(map(repr, self.list_names()))})"


def with_provider_model(services: ServiceRegistry, model: Any) -> Any:
    """Return the model for a string that is not registered; anything else is returned unchanged.

    Only for arguments from the program itself; see `ServiceRegistry.provider_model`.
    """
    if isinstance(model, str) and model not in services:
        return services.provider_model(model)
    return model


def close_provider_models(services: ServiceRegistry) -> None:
    """Close the connections of models that the registry made from provider strings."""
    models = list(services._provider_models.values())  # pyright: ignore[reportPrivateUsage]
    if models:
        from sennit.services.models.imodel import close_everywhere

        for model in models:
            close_everywhere(model)


def registry_of(services: Any) -> ServiceRegistry:
    """Return the registry, or a new one for None; raises InvalidTypeError for anything else."""
    if services is None:
        return ServiceRegistry()
    if not isinstance(services, ServiceRegistry):
        raise InvalidTypeError(f"services must be a ServiceRegistry, got {short_repr(services)}.")
    return services


def _entry(service: Any, name: str | None) -> _Entry:
    """Return the service to register: a tool under its registered name, or a model."""
    from sennit.services.models.protocol import is_model  # late: slow to import

    if isinstance(service, Tool):
        renamed = name is not None and name != service.name
        tool = cast("Tool", service)
        return _Entry(tool.with_options(name) if renamed else tool, tool)
    if is_model(service):
        _check_name(service.name if name is None else name)
        return _Entry(service, service)
    if isinstance(service, type) or not (callable(service) or isinstance(service, ToolBackend)):
        raise InvalidTypeError(
            f"A service is a model, a Tool or a typed function, got {short_repr(service)}; for a "
            f"class, pass an instance."
        )
    return _Entry(Tool(cast("Callable[..., Any]", service), name), service)


def _check_name(name: Any) -> None:
    """Raise ValidationError for an invalid name; "*" is reserved for all services."""
    clean = validate_text(name, "a service's name")
    if not clean.strip() or clean == "*" or len(clean) > _MAX_NAME or not clean.isprintable():
        raise ValidationError(
            f"{short_repr(name)} cannot be the name of a service: it must be 1 to {_MAX_NAME} "
            f"printable characters, and not '*'; give another with name=."
        )
