"""Access control: the grants of a branch.

A branch to which grants were given may use the registered services (`resources`) and output
schemas (`capabilities`) in them and nothing else, also when the program passes the object itself;
an empty set allows nothing. Such a branch is fenced. On a branch to which none were ever given, an
object that the program passes is its own grant, and a registered name is still refused. Grants are
written by the program that creates, forks or grants; nothing that is stored in a message, imported
or said by a model is ever read as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from sennit.errors import AccessError, InvalidTypeError, ValidationError, shown
from sennit.messages.json_values import text
from sennit.messages.output_schema import is_model, model_name

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model

ALL = "*"
"""Stands for every registered service, or every output schema."""

Names: TypeAlias = AbstractSet[str] | Sequence[str]
Resources: TypeAlias = Names | Literal["*"]
Capabilities: TypeAlias = "AbstractSet[str | Model] | Sequence[str | Model] | Literal['*']"


@dataclass(frozen=True, slots=True)
class Grants:
    """The names a branch may use."""

    resources: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    fenced: bool = True
    """False if no grants were ever given; both sets are empty then."""

    @classmethod
    def given(cls, resources: Any, capabilities: Any) -> Grants:
        """Grants from what a program gave; never given if both are None, else None is empty."""
        if resources is None and capabilities is None:
            return NEVER_GIVEN
        return cls(resource_names(resources), capability_names(capabilities))

    @classmethod
    def stored(
        cls, resources: frozenset[str] | None, capabilities: frozenset[str] | None
    ) -> Grants:
        """Grants from the columns of a branch; if both are missing, none were ever given."""
        if resources is None and capabilities is None:
            return NEVER_GIVEN
        return cls(resources or frozenset(), capabilities or frozenset())

    @property
    def columns(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        """The resources and capabilities as they are stored; None if none were ever given."""
        return (self.resources, self.capabilities) if self.fenced else (None, None)

    def check(self, branch: str, needs: Needs) -> None:
        """Raise AccessError, naming what is missing and what is allowed, unless all is granted."""
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
            told = f"its {what} are {sorted(allowed)}. {way_out}."
        else:
            told = f"it was granted no {what}. {way_out}, or pass the object instead of its name."
        raise AccessError(f"Branch {branch!r} may not use {names}; {told}")

    def allow_service(self, name: str) -> bool:
        """Tell if a registered service may be used."""
        return ALL in self.resources or name in self.resources

    def plus(self, more: Grants) -> Grants:
        """These grants and more; none given to a branch that has none leaves it so."""
        return Grants(
            self.resources | more.resources,
            self.capabilities | more.capabilities,
            self.fenced or more.fenced,
        )

    def minus(self, less: Grants) -> Grants:
        """These grants without some; a branch that never had any is fenced from then on.

        Raises ValidationError for single names where all ("*") were granted.
        """
        _refuse_one_of_all("resources", self.resources, less.resources)
        _refuse_one_of_all("capabilities", self.capabilities, less.capabilities)
        return Grants(
            self.resources - less.resources,
            self.capabilities - less.capabilities,
            self.fenced or less.fenced,
        )


NEVER_GIVEN = Grants(fenced=False)
"""The grants of a branch to which none were ever given."""
NO_GRANTS = Grants()
"""The grants of a branch that may use nothing."""
_NONE: frozenset[str] = frozenset()


class Needs(msgspec.Struct, frozen=True):
    """The names that something needs granted.

    Those that were passed as objects are granted by being passed, unless the branch is fenced.
    """

    resources: frozenset[str] = _NONE
    capabilities: frozenset[str] = _NONE
    passed_resources: frozenset[str] = _NONE
    passed_capabilities: frozenset[str] = _NONE


def resource_names(given: Any) -> frozenset[str]:
    """The names in a set of services, or all of them for "*"; None means none."""
    return _names(given, "resources")


def capability_names(given: Any) -> frozenset[str]:
    """The names in a set of output schemas, given by name or as model classes, or all for "*".

    None means none.
    """
    return _names(given, "capabilities")


def _refuse_one_of_all(what: str, granted: frozenset[str], less: frozenset[str]) -> None:
    if ALL in granted and less and ALL not in less:
        raise ValidationError(
            f"All {what} are granted, so {sorted(less)} cannot be revoked alone; "
            f"revoke {what}='*' first, then grant those that may stay."
        )


def _names(given: Any, what: str) -> frozenset[str]:
    if given is None:
        return frozenset()
    if given == ALL:
        return frozenset({ALL})
    if isinstance(given, str):
        raise InvalidTypeError(
            f"{what} must be a set of names, got {shown(given)}; write {{{shown(given)}}}."
        )
    if not isinstance(given, (set, frozenset, list, tuple)):
        raise InvalidTypeError(f"{what} must be a set of names, got {shown(given)}.")
    return frozenset(_name(one, what) for one in cast("Iterable[Any]", given))


def _name(given: Any, what: str) -> str:
    name = model_name(given) if is_model(given) else text(given, f"a name in {what}")
    if not name:
        raise ValidationError(f"A name in {what} must not be empty.")
    return name
