"""The registry of operations.

An operation is a function of a session, a branch and parameters. It is registered with the grants
it requires, which are checked before it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Signature, isawaitable, signature
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, overload

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
from sennit.operations.communicate import communicate, generate, parse
from sennit.operations.operate import operate, react
from sennit.sessions.grants import Capabilities, Resources, capability_names, resource_names

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from sennit.operations.context import OperationContext

    T = TypeVar("T", default=Any)
else:  # `default=` came with Python 3.13
    from typing import TypeVar

    T = TypeVar("T")

Run: TypeAlias = Callable[..., Awaitable[T] | T]
"""A function, async or not, of an OperationContext and the parameters by name."""


@dataclass(frozen=True, slots=True)
class OperationSpec(Generic[T]):
    """An operation and its requirements."""

    name: str
    """The name that `conduct` accepts."""
    run: Run[T]
    """The function that runs the operation."""
    required_resources: frozenset[str] = frozenset()
    """The services it always uses, besides those named in its parameters."""
    required_capabilities: frozenset[str] = frozenset()
    """The output schemas it always uses."""
    needs_model: bool = False
    """Whether it uses the branch's only model if its parameters name none."""
    takes: Signature | None = field(init=False, repr=False, compare=False)
    """Its signature; None if it has none."""

    def __post_init__(self) -> None:
        try:
            takes = signature(self.run)
        except (TypeError, ValueError):  # some functions written in C
            takes = None
        object.__setattr__(self, "takes", takes)

    def check_params(self, context: OperationContext, params: Mapping[str, object]) -> None:
        """Raise InvalidTypeError unless it accepts these parameters."""
        if self.takes is None:
            return
        try:
            self.takes.bind(context, **params)
        except TypeError as error:
            raise InvalidTypeError(f"Operation {self.name!r}: {error}.") from error

    async def call(self, context: OperationContext, params: Mapping[str, object]) -> T:
        """Run the operation and return its result."""
        result = self.run(context, **params)
        return await result if isawaitable(result) else cast("T", result)


_BUILT_IN = (
    OperationSpec("generate", generate, needs_model=True),
    OperationSpec("parse", parse),
    OperationSpec("communicate", communicate, needs_model=True),
    OperationSpec("operate", operate, needs_model=True),
    OperationSpec("react", react, needs_model=True),
)


class OperationRegistry:
    """Operations by name; the built-in ones are there from the start."""

    def __init__(self) -> None:
        self._specs = {spec.name: spec for spec in _BUILT_IN}
        self._lock = Lock()

    @overload
    def register(
        self,
        name: str,
        run: Callable[..., Awaitable[T]],
        *,
        required_resources: Resources | None = None,
        required_capabilities: Capabilities | None = None,
        replace: bool = False,
    ) -> OperationSpec[T]: ...
    @overload
    def register(
        self,
        name: str,
        run: Callable[..., T],
        *,
        required_resources: Resources | None = None,
        required_capabilities: Capabilities | None = None,
        replace: bool = False,
    ) -> OperationSpec[T]: ...
    def register(
        self,
        name: str,
        run: Run[Any],
        *,
        required_resources: Resources | None = None,
        required_capabilities: Capabilities | None = None,
        replace: bool = False,
    ) -> OperationSpec:
        """Register `async def run(where, **params)`; raises ExistsError if the name is taken.

        `where` is an OperationContext. A branch needs a grant for everything that is required, and
        for every service (`imodel`, `tools`) and `response_model` among the parameters.
        Registering the same operation again changes nothing.
        """
        if not validate_text(name, "an operation's name"):
            raise ValidationError("An operation's name must not be empty.")
        if not callable(run):
            raise InvalidTypeError(f"An operation is a function, got {short_repr(run)}.")
        spec = OperationSpec(
            name, run, resource_names(required_resources), capability_names(required_capabilities)
        )
        with self._lock:
            if not replace and self._specs.get(name, spec) != spec:
                raise ExistsError(
                    f"{name!r} is already the name of an operation; choose another, or register it "
                    f"with replace=True."
                )
            self._specs[name] = spec
        return spec

    def unregister(self, name: str) -> OperationSpec:
        """Remove an operation and return it; raises NotFoundError."""
        with self._lock:
            spec = self.get(name)
            del self._specs[name]
        return spec

    def get(self, name: str) -> OperationSpec:
        """Return an operation by name; raises NotFoundError that suggests similar names."""
        spec = self._specs.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if spec is None:
            names = self.list_names()
            raise NotFoundError(
                f"No operation {short_repr(name)}; there are: {listed(names)}."
                f"{did_you_mean(name, names)}"
            )
        return spec

    def has(self, name: str) -> bool:
        """Return whether an operation has that name."""
        return name in self._specs

    def list_names(self) -> list[str]:
        """Return all names, the built-in ones first."""
        return list(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        """Iterate over a snapshot of the names."""
        return iter(self.list_names())

    def __len__(self) -> int:
        return len(self._specs)

    def __bool__(self) -> bool:
        """Return True, also for an empty registry."""
        return True

    def __repr__(self) -> str:
        return f"OperationRegistry({', '.join(map(repr, self.list_names()))})"
