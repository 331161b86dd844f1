"""Pile: items by id, each once, in insertion order.

The items are in a dict keyed by `id.int`. The first access by position builds a Progression of the
ids, as a dict has no random access. From then on the progression is a prefix of the dict's keys:
removals update it, and additions are appended on the next access by position.

Thread safety: adding is one atomic dict operation without a lock, which would double its cost.
Removals and the order share a lock, which is never held while a hook or an overridable method runs,
so it cannot deadlock with a caller's locks. Iteration goes over a snapshot.

A subclass guards every change by overriding `add`, `remove` and `clear`; other methods call these.
`_insert` and `_discard` change the pile without checks. A Flow sets `_on_add` (called before an
item is added) and `_on_remove` (called before items are removed); either may refuse by raising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from threading import RLock
from typing import Any, Final, Generic, TypeVar, cast, overload
from uuid import UUID

from sennit.containers.element import Element, Ref, key_of, uid_of
from sennit.containers.progression import Progression
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, short_repr

T = TypeVar("T", bound=Element)
D = TypeVar("D")

_MISSING: Final = cast(Any, object())


class Pile(Element, Generic[T]):
    """An ordered set of elements by id, with O(1) add, get, `in` and remove."""

    __slots__ = (
        "_item_type",
        "_items",
        "_lock",
        "_on_add",
        "_on_remove",
        "_order",
        "_revision",
    )

    def __init__(
        self,
        items: Iterable[T] = (),
        *,
        item_type: type[T] | None = None,
        id: UUID | str | None = None,
        created_at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise ExistsError for a duplicate id, InvalidTypeError for an item of a wrong type."""
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self._item_type = _validate_item_type(item_type)
        self._items: dict[int, T] = {}
        self._order: Progression | None = None
        self._lock = RLock()
        self._on_add: Callable[[T], None] | None = None
        self._on_remove: Callable[[Sequence[T]], None] | None = None
        self._revision = 0
        self._items = self._validate(items)

    @property
    def revision(self) -> int:
        """A counter of removals; additions do not change it."""
        return self._revision

    def __repr__(self) -> str:
        return f"{type(self).__name__}(len={len(self)}, id={str(self._id)!r})"

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """Iterate over a snapshot of the items."""
        return iter(list(self._items.values()))

    def __contains__(self, ref: object) -> bool:
        """Return whether the id, element or UUID string is here; False for anything else."""
        return (ref.int if type(ref) is UUID else key_of(ref)) in self._items

    def keys(self) -> list[UUID]:
        """Return the ids of the items, in order."""
        return [item.id for item in self]

    @overload
    def get(self, ref: Ref) -> T: ...
    @overload
    def get(self, ref: Ref, default: D) -> T | D: ...
    def get(self, ref: Ref, default: Any = _MISSING) -> Any:
        """Return the item with an id, or the default; raises NotFoundError without one."""
        uid = ref if type(ref) is UUID else uid_of(ref)
        item = self._items.get(uid.int, default)
        if item is _MISSING:
            raise self._not_found(uid)
        return item

    def pick(self, ids: Iterable[UUID]) -> list[T]:
        """Return the items with these ids, in this order; raises NotFoundError."""
        items = self._items
        try:
            return [items[uid.int] for uid in ids]
        except KeyError as error:
            raise self._not_found(UUID(int=error.args[0])) from None

    @overload
    def __getitem__(self, key: UUID | str | int) -> T: ...
    @overload
    def __getitem__(self, key: Callable[[T], object]) -> Pile[T]: ...
    @overload
    def __getitem__(self, key: slice | Progression | list[Any] | tuple[Any, ...]) -> Pile[T]: ...
    def __getitem__(self, key: Any) -> T | Pile[T]:
        """Return one item by id or index, or a pile selected by a slice, ids or a predicate.

        Raises NotFoundError for an id that is not here, OutOfRangeError for an index past either
        end, InvalidTypeError for any other key.
        """
        if type(key) is UUID and (item := self._items.get(key.int)) is not None:
            return item
        if isinstance(key, (UUID, str)):
            return self.get(key)
        if isinstance(key, int):
            return self._at(key)
        if isinstance(key, slice):
            return self._pile_of(self._at(cast("slice[Any, Any, Any]", key)))
        if isinstance(key, (Progression, list, tuple)):
            return self._pile_of(self.get(ref) for ref in cast(Iterable[Ref], key))
        if callable(key) and not isinstance(key, Element):
            return self._pile_of(item for item in self if key(item))
        raise InvalidTypeError(
            f"A pile cannot be indexed with {key!r}; use a UUID or UUID string, an int, a slice, "
            "a Progression or list of ids, or a predicate; for an element, use get(element)."
        )

    def add(self, item: T) -> None:
        """Add an item at the end; raises ExistsError when its id is taken, InvalidTypeError."""
        if not isinstance(item, self._item_type):
            raise self._wrong_type(item)
        if self._on_add is not None:
            if item in self:
                raise _duplicate_error(item)
            self._on_add(item)
        if not self._insert(item):
            raise _duplicate_error(item)

    def remove(self, ref: Ref) -> T:
        """Remove and return the item with an id; raises NotFoundError."""
        item = self.get(ref)
        if self._on_remove is not None:
            self._on_remove((item,))
        if self._discard(item) is None:
            raise self._not_found(item.id)
        return item

    def clear(self) -> None:
        """Remove all items."""
        if self._on_remove is not None:
            self._on_remove(list(self))
        with self._lock:
            self._items.clear()
            self._order = None
            self._revision += 1

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end, all or none; raises as add does."""
        added: list[T] = []
        try:
            for item in self._validate(items).values():
                self.add(item)
                added.append(item)
        except BaseException:
            for item in reversed(added):
                self.remove(item)
            raise

    def include(self, item: T) -> bool:
        """Add an item unless its id is present; return whether it was added."""
        if not isinstance(item, self._item_type):
            raise self._wrong_type(item)
        if item in self:
            return False
        try:
            self.add(item)
        except ExistsError:
            if item in self:  # another thread added it first
                return False
            raise
        return True

    def exclude(self, ref: Ref) -> bool:
        """Remove the item with an id if it is present; return whether it was."""
        return self.pop(ref, None) is not None

    @overload
    def pop(self, ref: Ref) -> T: ...
    @overload
    def pop(self, ref: Ref, default: D) -> T | D: ...
    def pop(self, ref: Ref, default: Any = _MISSING) -> Any:
        """Remove and return an item, or return the default; raises NotFoundError without one."""
        uid = uid_of(ref)
        if default is not _MISSING and uid not in self:
            return default
        return self.remove(uid)

    def _insert(self, item: T) -> bool:
        """Add an item without checks or hooks; return False if its id is taken."""
        key = item._id.int
        return key not in self._items and self._items.setdefault(key, item) is item

    def _discard(self, ref: Ref) -> T | None:
        """Remove an item without hooks and return it; None if it is not present."""
        uid = uid_of(ref)
        with self._lock:
            item = self._items.pop(uid.int, None)
            if item is not None:
                self._revision += 1
                if self._order is not None and uid in self._order:
                    self._order.remove(uid)
        return item

    @overload
    def _at(self, index: int) -> T: ...
    @overload
    def _at(self, index: slice) -> list[T]: ...
    def _at(self, index: int | slice) -> T | list[T]:
        with self._lock:
            order = self._sync_order()
            if isinstance(index, int):
                return self._items[order[index].int]
            return [self._items[uid.int] for uid in order[index]]

    def _sync_order(self) -> Progression:
        items = self._items
        if self._order is None:
            self._order = Progression()
        while missing := len(items) - len(self._order):
            try:
                newest = list(islice(reversed(items.values()), missing))
            except RuntimeError:  # the dict grew while it was read: another thread added one
                continue
            if len(items) - len(self._order) == missing:  # else it grew just before
                self._order.extend(reversed(newest))
        return self._order

    def _validate(self, items: Iterable[T]) -> dict[int, T]:
        if not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"Expected an iterable of items, got {short_repr(items)}.")
        fresh: dict[int, T] = {}
        for item in items:
            if not isinstance(item, self._item_type):
                raise self._wrong_type(item)
            key = item._id.int
            if key in fresh or key in self._items:
                raise _duplicate_error(item)
            fresh[key] = item
        return fresh

    def _pile_of(self, items: Iterable[T]) -> Pile[T]:
        chosen: Pile[T] = Pile()
        chosen._item_type = self._item_type
        chosen._items = {item._id.int: item for item in items}
        return chosen

    def _not_found(self, uid: UUID) -> NotFoundError:
        return NotFoundError(f"No item {str(uid)!r} among the {len(self)} of this pile.")

    def _wrong_type(self, item: object) -> InvalidTypeError:
        wanted = self._item_type.__name__
        return InvalidTypeError(f"This pile takes items of type {wanted}, got {item!r}.")

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        # A copy belongs to no flow and shares no dict; a lock cannot be pickled.
        attributes, slots = super().__getstate__()
        slots |= {"_items": dict(self._items), "_order": None, "_on_add": None, "_on_remove": None}
        del slots["_lock"]
        return attributes, slots

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        super().__setstate__(state)
        self._lock = RLock()


def _validate_item_type(item_type: object) -> type[Element]:
    if item_type is None:
        return Element
    if isinstance(item_type, type) and issubclass(item_type, Element):
        return item_type
    raise InvalidTypeError(f"item_type must be a subclass of Element, got {item_type!r}.")


def _duplicate_error(item: Element) -> ExistsError:
    return ExistsError(f"{item!r} is already here; use include() to add it only when missing.")
