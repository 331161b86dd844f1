"""Flow: items stored once, and named progressions over them.

Invariant: every id in a progression is the id of an item, and no two progressions share a name. The
flow enforces it through hooks of its parts, so it also holds for direct changes of these: a
progression calls its guard before it adds an id, the item pile calls `_on_remove` before it removes
an item, and the progression pile calls `_on_add` before it adds a progression.

A progression belongs to one flow at a time, and so does a pile. A pile that is passed in is used as
it is, so that a session can pass piles that guard their own changes.
"""

# A flow sets the hooks of its piles and progressions.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any, Final, Generic, TypeVar, cast, overload
from uuid import UUID

from sennit.containers.element import Element, Ref, checked_name
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError, listed

E = TypeVar("E", bound=Element)
P = TypeVar("P", bound=Progression)
D = TypeVar("D")

_MISSING: Final = cast(Any, object())
_MAX_LISTED: Final = 3  # names or ids in an error message


class Flow(Element, Generic[E, P]):
    """Items, and progressions whose ids all refer to these items."""

    __slots__ = ("_items", "_name", "_named", "_progressions")

    def __init__(
        self,
        items: Iterable[E] | Pile[E] = (),
        progressions: Iterable[P] | Pile[P] = (),
        name: str | None = None,
        *,
        id: UUID | str | None = None,
        created_at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise as add_item and add_progression do, and ValidationError for an empty name."""
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self._name = checked_name(name)
        self._items = items if isinstance(items, Pile) else Pile(items)
        if isinstance(progressions, Pile):
            self._progressions = progressions
        else:
            self._progressions = Pile(progressions, item_type=cast(type[P], Progression))
        self._install_hooks()

    @property
    def name(self) -> str | None:
        """The name given on creation, if any."""
        return self._name

    @property
    def items(self) -> Pile[E]:
        """All items; removing one first removes it from every progression."""
        return self._items

    @property
    def progressions(self) -> Pile[P]:
        """All progressions; adding one checks its name and its ids."""
        return self._progressions

    def __repr__(self) -> str:
        named = "" if self._name is None else f"{self._name!r}, "
        counts = f"items={len(self._items)}, progressions={len(self._progressions)}"
        return f"{type(self).__name__}({named}{counts}, id={str(self._id)!r})"

    def add_item(
        self, item: E, progressions: UUID | str | P | Iterable[UUID | str | P] | None = None
    ) -> None:
        """Add an item, and append it to the progressions named.

        Raises ExistsError when its id is taken, NotFoundError for a progression that is not here.
        """
        targets = self._targets(progressions)
        self._items.add(item)
        try:
            for progression in targets:
                progression.append(item)
        except BaseException:
            self._items.remove(item)
            raise

    def remove_item(self, ref: Ref) -> E:
        """Remove an item from the flow and all progressions; raises NotFoundError."""
        return self._items.remove(ref)

    @overload
    def get_item(self, ref: Ref) -> E: ...
    @overload
    def get_item(self, ref: Ref, default: D) -> E | D: ...
    def get_item(self, ref: Ref, default: Any = _MISSING) -> Any:
        """Return the item with an id, or the default; raises NotFoundError without one."""
        return self._items.get(ref) if default is _MISSING else self._items.get(ref, default)

    def add_progression(self, progression: P) -> None:
        """Add a progression over the items.

        Raises ExistsError when its name or id is taken, NotFoundError when it names ids that are
        not items, ValidationError when it belongs to another flow.
        """
        self._progressions.add(progression)

    def remove_progression(self, ref: UUID | str | P) -> P:
        """Remove and return a progression, by id, name or itself; raises NotFoundError."""
        return self._progressions.remove(self.get_progression(ref))

    @overload
    def get_progression(self, ref: UUID | str | P) -> P: ...
    @overload
    def get_progression(self, ref: UUID | str | P, default: D) -> P | D: ...
    def get_progression(self, ref: UUID | str | P, default: Any = _MISSING) -> Any:
        """Return the progression with a name or id, or the default; raises NotFoundError."""
        progression = self._find(ref)
        if progression is not None:
            return progression
        if default is not _MISSING:
            return default
        raise NotFoundError(f"No progression {ref!r} in this flow; {self._describe_names()}.")

    def clear(self) -> None:
        """Remove all progressions and all items."""
        self._progressions.clear()
        self._items.clear()

    def _targets(self, refs: UUID | str | P | Iterable[UUID | str | P] | None) -> list[P]:
        if refs is None:
            return []
        if isinstance(refs, Iterable) and not isinstance(refs, (str, Progression)):
            return [self.get_progression(ref) for ref in refs]
        return [self.get_progression(cast("UUID | str | P", refs))]

    def _find(self, ref: object) -> P | None:
        if not isinstance(ref, (UUID, str, Progression)):
            raise InvalidTypeError(f"Expected a name, a UUID or a Progression, got {ref!r}.")
        if isinstance(ref, str) and ref in self._named:
            return self._named[ref]
        return self._progressions.get(ref) if ref in self._progressions else None

    def _describe_names(self) -> str:
        return f"it has {listed(self._named, empty='none with a name')}"

    def _install_hooks(self) -> None:
        items, progressions = self._items, self._progressions
        if any((items._on_add, items._on_remove, progressions._on_add, progressions._on_remove)):
            raise ValidationError("A pile belongs to one flow only; pass list(pile) to share it.")
        self._named: dict[str, P] = {}
        adopted: list[P] = []
        try:
            for progression in progressions:
                self._adopt(progression)
                adopted.append(progression)
        except BaseException:
            self._release(adopted)
            raise
        items._on_remove = self._exclude_everywhere
        progressions._on_add = self._adopt
        progressions._on_remove = self._release

    def _adopt(self, progression: P) -> None:
        if not isinstance(progression, Progression):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"Expected a Progression, got {progression!r}.")
        if progression._guard is not None:
            raise ValidationError(
                f"{progression!r} belongs to another flow; remove it there first, "
                "or add a Progression(list(it), name)."
            )
        name = progression.name
        if name is not None and name in self._named:
            raise ExistsError(f"A progression named {name!r} is already in this flow.")
        self._require_items(list(progression))
        progression._guard = self._require_items
        if name is not None:
            self._named[name] = progression

    def _release(self, progressions: Sequence[P]) -> None:
        for progression in progressions:
            progression._guard = None
            if progression.name is not None:
                del self._named[progression.name]

    def _exclude_everywhere(self, items: Sequence[E]) -> None:
        for progression in self._progressions:
            progression.exclude(items)

    def _require_items(self, ids: Sequence[UUID]) -> None:
        missing = [str(uid) for uid in ids if uid not in self._items]
        if missing:
            more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
            raise NotFoundError(
                f"No item {', '.join(missing[:_MAX_LISTED])}{more} in this flow; "
                f"add_item() it first."
            )

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        # A progression belongs to one flow, so even a shallow copy needs its own.
        attributes, slots = super().__getstate__()
        progressions = copy(self._progressions)
        progressions._items = {key: copy(p) for key, p in progressions._items.items()}
        slots |= {"_items": copy(self._items), "_progressions": progressions, "_named": {}}
        return attributes, slots

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        super().__setstate__(state)
        self._install_hooks()
