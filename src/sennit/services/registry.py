"""The registry of models and tools by name.

Models and tools stand side by side because grants name them alike: a branch that may use "search"
may use whatever is registered under it. So a name means one thing until it is taken out or replaced
on purpose, and a tool is registered under the very name a model calls it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import RLock
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError, shown
from sennit.messages.json_values import text
from sennit.services.tools.backend import ToolBackend
from sennit.services.tools.tool import Tool

if TYPE_CHECKING:
    from sennit.services.models.protocol import Model

Service: TypeAlias = "Model | Tool"
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class _Entry:
    service: Service
    given: object
    """What was registered, before it was wrapped or renamed."""

    def came_from(self, given: object) -> bool:
        # A bound method is another object each time it is looked up, yet equal.
        same = isinstance(given, MethodType) and given == self.given
        return same or given is self.given or given is self.service


class ServiceRegistry:
    """Models and tools by name. Safe to use from many threads."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._connected: dict[str, Model] = {}
        self._lock = RLock()

    @overload
    def register(
        self, service: Tool, name: str | None = None, *, replace: bool = False
    ) -> Tool: ...
    @overload
    def register(
        self, service: Model, name: str | None = None, *, replace: bool = False
    ) -> Model: ...
    @overload
    def register(
        self, service: Callable[..., Any], name: str | None = None, *, replace: bool = False
    ) -> Tool: ...
    def register(self, service: Any, name: str | None = None, *, replace: bool = False) -> Service:
        """Register a model, a tool or a typed function, which becomes a tool; gives what it became.

        Its name is the one given, else the model's or the function's own. Doing it again changes
        nothing. Raises ExistsError if another service has the name, unless it is to `replace` it.
        """
        return self._register([(name, service)], replace)[0]

    def register_all(self, services: Iterable[Any], *, replace: bool = False) -> list[Service]:
        """Register several services under their own names: all of them, or none."""
        return self._register([(None, service) for service in services], replace)

    def _register(self, named: Iterable[tuple[str | None, Any]], replace: bool) -> list[Service]:
        new: dict[str, _Entry] = {}
        with self._lock:
            kept = [self._place(service, name, new, replace) for name, service in named]
            self._entries.update(new)
        return kept

    def _place(
        self, given: Any, name: str | None, new: dict[str, _Entry], replace: bool
    ) -> Service:
        """Put a service among the new ones, checked; gives the one that is or will be there."""
        entry = _entry(given, name)
        key = entry.service.name if name is None else name
        there = new.get(key) or (None if replace else self._entries.get(key))
        if there is None:
            new[key] = entry
            return entry.service
        if there.came_from(given):
            return there.service
        raise ExistsError(
            f"{key!r} is already the name of {shown(there.service)}; give another with name=, or "
            f"register it with replace=True."
        )

    def unregister(self, name: str) -> Service:
        """Take a service out and give it back; raises NotFoundError."""
        with self._lock:
            found = self.get(name)
            del self._entries[name]
            return found

    def get(self, name: str) -> Service:
        """The service with that name; raises NotFoundError, naming those that come near."""
        with self._lock:
            found = self._entries.get(name)
            if found is None:
                raise self._missing(name)
            return found.service

    def model(self, name: str) -> Model:
        """The model with that name; raises NotFoundError, or InvalidTypeError if it is a tool."""
        found = self.get(name)
        if isinstance(found, Tool):
            raise InvalidTypeError(f"{name!r} is a tool; a model is needed here.")
        return found

    def provider_model(self, spec: str) -> Model:
        """The model that a provider string names, such as "openai:gpt-5" or "local".

        Only for strings that the program itself passes: those in requests, stored data and answers
        of models are looked up with `model`. The same string gives the same model each time, and
        nothing is registered. Raises NotFoundError.
        """
        from sennit.services.models.imodel import iModel  # with all that models need: late

        with self._lock:
            if spec not in self._connected:
                try:
                    self._connected[spec] = iModel(spec)
                except ValidationError as error:
                    raise NotFoundError(f"{self._missing(spec)} {error}") from None
            return self._connected[spec]

    def tool(self, name: str) -> Tool:
        """The tool with that name; raises NotFoundError, or InvalidTypeError if it is a model."""
        found = self.get(name)
        if not isinstance(found, Tool):
            raise InvalidTypeError(f"{name!r} is a model; a tool is needed here.")
        return found

    def name_of(self, service: object) -> str | None:
        """The name under which a model, a tool or a function is registered; None if it is not.

        Of several its own comes first, then the oldest.
        """
        with self._lock:
            own = getattr(service, "name", None) or getattr(service, "__name__", None)
            for name in (own, *self._entries):
                entry = self._entries.get(name) if isinstance(name, str) else None
                if entry is not None and entry.came_from(service):
                    return name
            return None

    def as_tool(self, tool: str | Tool | Callable[..., Any]) -> Tool:
        """The tool behind a registered name, a Tool or a typed function, which becomes one.

        One that is registered goes by the name under which it is.
        """
        name = tool if isinstance(tool, str) else self.name_of(tool)
        if isinstance(tool, str) or name is not None:
            return self.tool(name or "")
        return tool if isinstance(tool, Tool) else Tool(tool)

    def has(self, name: str) -> bool:
        """Return whether a service has that name."""
        return name in self

    def list_names(self) -> list[str]:
        """All names, in the order in which they came."""
        with self._lock:
            return list(self._entries)

    def _missing(self, name: object) -> NotFoundError:
        from difflib import get_close_matches  # takes long, and only an error needs it

        names = list(self._entries)
        near = get_close_matches(str(name), names, n=3)
        meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        there = ", ".join(map(repr, names[:20])) or "none yet"
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        return NotFoundError(f"No service {shown(name)}; there are: {there}{more}.{meant}")

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names as they stand now."""
        return iter(self.list_names())

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        """An empty registry is one too."""
        return True

    def __repr__(self) -> str:
        return f"ServiceRegistry({', '.join(map(repr, self.list_names()))})"


def registry_of(services: Any) -> ServiceRegistry:
    """The registry given, or a new one for None; raises InvalidTypeError for anything else."""
    if services is None:
        return ServiceRegistry()
    if not isinstance(services, ServiceRegistry):
        raise InvalidTypeError(f"services must be a ServiceRegistry, got {shown(services)}.")
    return services


def _entry(given: Any, name: str | None) -> _Entry:
    """Return the service to register: a tool under its registered name, or a model."""
    from sennit.services.models.protocol import is_model  # with all that models need: late

    if isinstance(given, Tool):
        renamed = name is not None and name != given.name
        return _Entry(given.with_options(name) if renamed else given, given)
    if is_model(given):
        _check_name(given.name if name is None else name)
        return _Entry(given, given)
    if isinstance(given, type) or not (callable(given) or isinstance(given, ToolBackend)):
        raise InvalidTypeError(
            f"A service is a model, a Tool or a typed function, got {shown(given)}; for a class, "
            f"pass an instance."
        )
    return _Entry(Tool(cast("Callable[..., Any]", given), name), given)


def _check_name(name: Any) -> None:
    """A model's name may be any sensible text; "*" stands for all services."""
    sound = text(name, "a service's name")
    if not sound.strip() or sound == "*" or len(sound) > _MAX_NAME or not sound.isprintable():
        raise ValidationError(
            f"{shown(name)} cannot be the name of a service: it must be 1 to {_MAX_NAME} printable "
            f"characters, and not '*'; give another with name=."
        )
