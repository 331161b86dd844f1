"""Access control: the grants of a branch.

A branch with grants is fenced: it may use the registered services (`resources`) and output schemas
(`capabilities`) they name and nothing else, even if the program passes the object itself; an empty
set allows nothing. On a branch that never had grants, an object that the program passes is its own
grant, and a registered name is still refused. Only the program grants, by creating, forking or
granting: no message, import or model output is ever read as a grant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from sennit.errors import AccessError, InvalidTypeError, ValidationError, listed, short_repr
from sennit.messages.json_values import validate_text
from sennit.messages.output_schema import is_model, model_name

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model
    from sennit.sessions.branch import Branch

ALL = "*"
"""The wildcard for every registered service, or every output schema."""

Names: TypeAlias = AbstractSet[str] | Sequence[str]
Resources: TypeAlias = Names | Literal["*"]
Capabilities: TypeAlias = "AbstractSet[str | Model] | Sequence[str | Model] | Literal['*']"


@dataclass(frozen=True, slots=True)
class Grants:
    """The services and output schemas that a branch may use."""

    resources: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    fenced: bool = True
    """False if no grants were ever set; both sets are empty then."""

    @classmethod
    def given(cls, resources: Any, capabilities: Any) -> Grants:
        """Return grants from arguments; unfenced if both are None, else None means empty."""
        if resources is None and capabilities is None:
            return UNFENCED
        return cls(resource_names(resources), capability_names(capabilities))

    @classmethod
    def stored(
        cls, resources: frozenset[str] | None, capabilities: frozenset[str] | None
    ) -> Grants:
        """Return grants from the columns of a branch; unfenced if both are None."""
        if resources is None and capabilities is None:
            return UNFENCED
        return cls(resources or frozenset(), capabilities or frozenset())

    @property
    def columns(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        """The columns of resources and capabilities; None if unfenced."""
        return (self.resources, self.capabilities) if self.fenced else (None, None)

    def check(self, branch: str, needs: Needs) -> None:
        """Raise AccessError unless all needs are granted."""
        resources, capabilities = needs.resources, needs.capabilities
        if self.fenced:
            resources |= needs.passed_resources
            capabilities |= needs.passed_capabilities
        self._check(branch, "resources", resources, self.resources)
        self._check(branch, "capabilities", capabilities, self.capabilities)

    def _check(
        self, branch: str, what: str, wanted: frozenset[str], allowed: frozenset[str]
    ) -> None:
        missing = sorted(wanted - allowed)
        if not missing or ALL in allowed:
            return
        names = ", ".join(map(repr, missing))
        way_out = f"Grant it with branch.grant({what}={{{names}}})"
        if self.fenced:
            reason = f"its {what} are {listed(allowed)}. {way_out}."
        else:
            reason = f"it was granted no {what}. {way_out}, or pass the object instead of its name."
        raise AccessError(f"Branch {branch!r} may not use {names}; {reason}")

    def allow_service(self, name: str) -> bool:
        """Return whether a registered service may be used."""
        return ALL in self.resources or name in self.resources

    def plus(self, more: Grants) -> Grants:
        """Return the union of both grants; fenced if either is."""
        return Grants(
            self.resources | more.resources,
            self.capabilities | more.capabilities,
            self.fenced or more.fenced,
        )

    def minus(self, less: Grants) -> Grants:
        """Return these grants without `less`; fenced if either is.

        Raises ValidationError for single names where all ("*") were granted.
        """
        _check_revocable("resources", self.resources, less.resources)
        _check_revocable("capabilities", self.capabilities, less.capabilities)
        return Grants(
            self.resources - less.resources,
            self.capabilities - less.capabilities,
            self.fenced or less.fenced,
        )


UNFENCED = Grants(fenced=False)
"""The grants of a branch that never had any."""
NO_GRANTS = Grants()
"""The grants of a branch that may use nothing."""
_NONE: frozenset[str] = frozenset()


class Needs(msgspec.Struct, frozen=True):
    """The names that a call needs to be granted.

    Objects that were passed need a grant only on a fenced branch.
    """

    resources: frozenset[str] = _NONE
    capabilities: frozenset[str] = _NONE
    passed_resources: frozenset[str] = _NONE
    passed_capabilities: frozenset[str] = _NONE


def resource_names(names: Any) -> frozenset[str]:
    """Return the names of services as a set, {"*"} for "*"; None means none."""
    return _names(names, "resources")


def capability_names(names: Any) -> frozenset[str]:
    """Return the names of output schemas or model classes as a set, {"*"} for "*".

    None means none.
    """
    return _names(names, "capabilities")


def _check_revocable(what: str, granted: frozenset[str], less: frozenset[str]) -> None:
    if ALL in granted and less and ALL not in less:
        raise ValidationError(
            f"All {what} are granted, so {listed(less)} cannot be revoked alone; "
            f"revoke {what}='*' first, then grant those that may stay."
        )


def _names(names: Any, what: str) -> frozenset[str]:
    if names is None:
        return frozenset()
    if names == ALL:
        return frozenset({ALL})
    if isinstance(names, str):
        raise InvalidTypeError(
            f"{what} must be a set of names, got {short_repr(names)}; write "
            f"{{{short_repr(names)}}}."
        )
    if not isinstance(names, (set, frozenset, list, tuple)):
        raise InvalidTypeError(f"{what} must be a set of names, got {short_repr(names)}.")
    return frozenset(_name(item, what) for item in cast("Iterable[Any]", names))


def _name(item: Any, what: str) -> str:
    name = model_name(item) if is_model(item) else validate_text(item, f"a name in {what}")
    if not name:
        raise ValidationError(f"A name in {what} must not be empty.")
    return name


def check_access(branch: Branch, needs: Needs) -> None:
    """Raise AccessError unless every need is granted to a branch, or passed as an object."""
    branch._grants.check(branch.name, needs)  # pyright: ignore[reportPrivateUsage]
