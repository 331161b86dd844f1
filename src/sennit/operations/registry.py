"""The registry of operations.

An operation is a function of a session, a branch and parameters. What it needs of the branch's
grants is said here, where it is registered, and checked before it runs, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import Signature, isawaitable, signature
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError, short_repr
from sennit.messages.json_values import validate_text
from sennit.operations.communicate import communicate
from sennit.operations.generate import generate
from sennit.operations.operate import operate
from sennit.operations.parse import parse
from sennit.operations.react import react
from sennit.sessions.grants import Capabilities, Resources, capability_names, resource_names

if TYPE_CHECKING:
    from sennit.operations.context import OperationContext

Run: TypeAlias = Callable[..., Any]
"""A function, async or not, of an OperationContext and the parameters by name."""


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An operation, and what it needs."""

    name: str
    run: Run
    required_resources: frozenset[str] = frozenset()
    """The services it always uses; those named in its parameters come on top."""
    required_capabilities: frozenset[str] = frozenset()
    """The output schemas it always asks for."""
    needs_model: bool = False
    """Whether a model is chosen for it where its parameters name none."""
    takes: Signature | None = field(init=False, repr=False, compare=False)
    """What it can be called with; None if it does not say."""

    def __post_init__(self) -> None:
        try:
            takes = signature(self.run)
        except (TypeError, ValueError):  # some functions written in C do not say
            takes = None
        object.__setattr__(self, "takes", takes)

    def check_params(self, context: OperationContext, params: Mapping[str, Any]) -> None:
        """Raise InvalidTypeError unless it can be called with these."""
        if self.takes is None:
            return
        try:
            self.takes.bind(context, **params)
        except TypeError as error:
            raise InvalidTypeError(f"Operation {self.name!r}: {error}.") from error

    async def call(self, context: OperationContext, params: Mapping[str, Any]) -> Any:
        """Run the operation and return its result."""
        result = self.run(context, **params)
        return await result if isawaitable(result) else result


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

    def register(
        self,
        name: str,
        run: Run,
        *,
        required_resources: Resources | None = None,
        required_capabilities: Capabilities | None = None,
        replace: bool = False,
    ) -> OperationSpec:
        """Register `async def run(where, **params)`; raises ExistsError if the name is taken.

        `where` is an OperationContext. A branch must have been granted what is required, and every
        service (`imodel`, `tools`) and `response_model` among the parameters. Doing it again
        changes nothing.
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
        """Take an operation out and give it back; raises NotFoundError."""
        with self._lock:
            spec = self.get(name)
            del self._specs[name]
        return spec

    def get(self, name: str) -> OperationSpec:
        """The operation with that name; raises NotFoundError, naming those that come near."""
        spec = self._specs.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if spec is None:
            matches = get_close_matches(str(name), self.list_names(), n=3)
            suggestion = f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""
            raise NotFoundError(
                f"No operation {short_repr(name)}; there are: {', '.join(self.list_names())}."
                f"{suggestion}"
            )
        return spec

    def has(self, name: str) -> bool:
        """Return whether an operation has that name."""
        return name in self._specs

    def list_names(self) -> list[str]:
        """All names, the built-in ones first."""
        return list(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names as they stand now."""
        return iter(self.list_names())

    def __len__(self) -> int:
        return len(self._specs)

    def __bool__(self) -> bool:
        """An empty registry is one too."""
        return True

    def __repr__(self) -> str:
        return f"OperationRegistry({', '.join(map(repr, self.list_names()))})"
