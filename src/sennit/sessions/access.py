"""Who may use what: the grants of a branch.

A branch may use the services (`resources`) and output schemas (`capabilities`) it was granted, and
nothing else; an empty set allows nothing. Grants are written by the program that creates, forks or
grants; nothing stored in a message or said by a model is ever read as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from sennit.errors import AccessError, InvalidTypeError, ValidationError, shown
from sennit.messages.models import is_model, model_name
from sennit.messages.plain import text

if TYPE_CHECKING:
    from sennit.messages.models import Model

ALL = "*"
"""Stands for every registered service."""

Names: TypeAlias = AbstractSet[str] | Sequence[str]
Resources: TypeAlias = Names | Literal["*"]
Capabilities: TypeAlias = "AbstractSet[str | Model] | Sequence[str | Model]"


@dataclass(frozen=True, slots=True)
class Grants:
    """The names a branch may use."""

    resources: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()

    def check(self, branch: str, resources: Iterable[str], capabilities: Iterable[str]) -> None:
        """Raise AccessError, naming what is missing and what is allowed, unless all is granted."""
        if ALL not in self.resources:
            _check(branch, "resources", resources, self.resources)
        _check(branch, "capabilities", capabilities, self.capabilities)

    def allow_service(self, name: str) -> bool:
        """Whether a service may be used."""
        return ALL in self.resources or name in self.resources

    def plus(self, more: Grants) -> Grants:
        """These and more."""
        return Grants(self.resources | more.resources, self.capabilities | more.capabilities)

    def minus(self, less: Grants) -> Grants:
        """These without some; single services cannot be taken out of all."""
        if ALL in self.resources and less.resources and ALL not in less.resources:
            raise ValidationError(
                f"All services are granted, so {sorted(less.resources)} cannot be revoked alone; "
                f"revoke resources='*' first, then grant those that may stay."
            )
        return Grants(self.resources - less.resources, self.capabilities - less.capabilities)


NO_GRANTS = Grants()


def resource_names(given: Any) -> frozenset[str]:
    """The names in a set of services, or all of them for "*"; None means none."""
    if given == ALL:
        return frozenset({ALL})
    return _names(given, "resources")


def capability_names(given: Any) -> frozenset[str]:
    """The names in a set of output schemas, given by name or as model classes; None means none."""
    return _names(given, "capabilities")


def _names(given: Any, what: str) -> frozenset[str]:
    if given is None:
        return frozenset()
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


def _check(branch: str, what: str, wanted: Iterable[str], allowed: frozenset[str]) -> None:
    if missing := sorted(set(wanted) - allowed):
        names = ", ".join(map(repr, missing))
        raise AccessError(
            f"Branch {branch!r} may not use {names}; its {what} are {sorted(allowed)}. "
            f"Grant it with branch.grant({what}={{{names}}})."
        )
