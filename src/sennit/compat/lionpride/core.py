"""Containers with lionpride's further names, such as `to_dict`, `from_dict` and `order`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Self, TypeVar, cast
from uuid import UUID

from sennit.clock import to_iso
from sennit.containers.element import Element
from sennit.containers.flow import Flow as _Flow
from sennit.containers.pile import Pile as _Pile
from sennit.containers.progression import Progression as _Progression
from sennit.errors import CodecError, short_repr

__all__ = ["Element", "Flow", "Pile", "Progression"]

E = TypeVar("E", bound=Element)
P = TypeVar("P", bound=_Progression)


def element_dict(element: Element) -> dict[str, Any]:
    return {
        "id": str(element.id),
        "created_at": to_iso(element.created_us),
        "metadata": dict(element.metadata),
    }


def element_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data.get(key) for key in ("id", "created_at", "metadata")}


def field_of(data: Mapping[str, Any], key: str, kind: type[object]) -> Any:
    """Return a field of a dict; raises CodecError if it is missing or of another type."""
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CodecError(f"A stored element is a dict, got {short_repr(data)}.")
    value = data.get(key)
    if not isinstance(value, kind):
        raise CodecError(
            f"{key!r} of a stored element is a {kind.__name__}, got {short_repr(value)}."
        )
    return value


def _dict_of(element: Element) -> dict[str, Any]:
    to_dict = getattr(element, "to_dict", None)
    return element_dict(element) if to_dict is None else to_dict()


class Flow(_Flow[E, P], key="progressions"):
    """A flow with `to_dict` and `from_dict`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the items and progressions as plain data."""
        return flow_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the flow that `to_dict` wrote; its items are of types already imported."""
        items = cast("Iterable[E]", Pile[Element].from_dict(field_of(data, "items", dict)))
        parts = field_of(data, "progressions", dict)
        progressions = [
            cast("P", Progression.from_dict(part)) for part in field_of(parts, "items", list)
        ]
        return cls(
            items,
            Pile(progressions, **element_fields(parts)),
            data.get("name"),
            **element_fields(data),
        )


def flow_dict(flow: _Flow[Any, Any]) -> dict[str, Any]:
    return {
        **element_dict(flow),
        "name": flow.name,
        "items": _pile_dict(flow.items),
        "progressions": _pile_dict(flow.progressions, progression_dict),
    }


class PileNames(_Pile[E], Generic[E]):
    """Further names of a pile; here apart, as the messages of a session have them, too."""

    def items(self) -> Iterator[tuple[UUID, E]]:
        """Iterate over ids and items."""
        return ((item.id, item) for item in self)

    def is_empty(self) -> bool:
        """Return whether there are no items."""
        return len(self) == 0

    def filter_by_type(self, item_type: type[Any] | Iterable[type[Any]]) -> Pile[E]:
        """Return the items that are instances of one of these types."""
        types = (item_type,) if isinstance(item_type, type) else tuple(item_type)
        return Pile(item for item in self if isinstance(item, types))

    def to_dict(self) -> dict[str, Any]:
        """Return the items in order as plain data."""
        return _pile_dict(self)


class Pile(PileNames[E], key="items"):
    """A pile with `update`, `items`, `is_empty`, `filter_by_type`, `to_dict` and `from_dict`."""

    def update(self, item: E) -> None:
        """Replace the item with the same id, or all of them if it is the last; else NotFoundError.

        It keeps its place in the order.
        """
        self.get(item.id)
        items = [item if old.id == item.id else old for old in self]
        self.clear()
        for each in items:
            self.add(each)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the pile that `to_dict` wrote; its items are of types already imported."""
        items = cast(
            "Iterable[E]", [Element.from_dict(item) for item in field_of(data, "items", list)]
        )
        return cls(items, **element_fields(data))


def _pile_dict(
    pile: _Pile[Any], item_dict: Callable[[Any], dict[str, Any]] = _dict_of
) -> dict[str, Any]:
    return {**element_dict(pile), "items": [item_dict(item) for item in pile]}


class Progression(_Progression, key="order"):
    """A progression with `order`, `to_dict` and `from_dict`."""

    @property
    def order(self) -> list[UUID]:
        """The ids in order, as a copy."""
        return list(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the ids in order as plain data."""
        return progression_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the progression that `to_dict` wrote."""
        return cls(field_of(data, "order", list), data.get("name"), **element_fields(data))


def progression_dict(progression: _Progression) -> dict[str, Any]:
    return {
        **element_dict(progression),
        "name": progression.name,
        "order": [str(uid) for uid in progression],
    }
