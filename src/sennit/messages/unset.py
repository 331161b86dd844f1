"""`Unset`: the value of a field that was not given.

It differs from None, which a tool may well return. An enum member is a singleton that survives
copy and pickle, and type checkers narrow `x is Unset` as they do `x is None`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias, TypeVar


class UnsetType(Enum):
    """The type of `Unset`, which is its only value."""

    UNSET = "Unset"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "Unset"

    __str__ = __repr__


Unset: Final = UnsetType.UNSET

_T = TypeVar("_T")
MaybeUnset: TypeAlias = _T | UnsetType


def or_unset(value: _T | None) -> MaybeUnset[_T]:
    """Return `value`, or Unset for None."""
    return Unset if value is None else value
