"""Progression: an ordered list of ids, which may repeat.

Conversations are trimmed at both ends and pruned in between, so removing an id must not shift the
rest. The ids are in slots, and a removed id leaves a hole. Three rules keep that cheap:

- All slots before `_start` are holes; the slot at `_start` and the last slot never are. Between
  them are `_holes` more; `_gaps` lists these in order as long as that is cheap, else it is None.
- `_first_slots` maps each id to its first slot, `_repeats` each repeated id to all its slots.
- When more than half of the slots are holes, the list is compacted, so a removal costs O(1)
  amortized. `_gaps` converts an index to a slot; without it, the list is compacted first.

Not thread-safe: share one between threads under a lock of your own, as a session does.

A subclass that stores its ids elsewhere overrides `__len__`, `__iter__`, `__contains__`, `index`,
`append`, `_extend`, `_at`, `_drop`, `_delete` and `_rewrite`. All other methods use these, and call
`_admit` before they add anything.
"""

from __future__ import annotations

import operator
from abc import ABCMeta
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, TypeVar, cast, overload
from uuid import UUID

from sennit.containers.element import Element, Ref, checked_name, key_of, uid_of, uids_of
from sennit.errors import (
    InvalidTypeError,
    NotFoundError,
    OutOfRangeError,
    ValidationError,
    short_repr,
)

if TYPE_CHECKING:
    from sennit.containers.pile import Pile

_T = TypeVar("_T", bound=Element)

_HOLE: Final = UUID(int=0)  # known by identity: the nil UUID of a caller is another object
_MIN_HOLES_TO_COMPACT: Final = 32
_MAX_GAPS: Final = 1024  # inserting into a longer sorted list costs more than finding out later


class Progression(Element):
    """Ordered ids with O(1) `in` and cheap removal anywhere; equal if its own id is."""

    __slots__ = (
        "_first_slots",
        "_gaps",
        "_guard",
        "_holes",
        "_memo",
        "_name",
        "_repeats",
        "_revision",
        "_slots",
        "_start",
    )

    _slots: list[UUID]
    _first_slots: dict[int, int]
    _repeats: dict[int, deque[int]]
    _start: int
    _holes: int
    _gaps: list[int] | None

    def __init__(
        self,
        order: Iterable[Ref] = (),
        name: str | None = None,
        *,
        id: UUID | str | None = None,
        created_at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise ValidationError for an empty name or an entry that is no id."""
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self._name = checked_name(name)
        self._guard: Callable[[Sequence[UUID]], None] | None = None
        self._revision = 0
        self._memo: object = None
        self._reset()
        self._store(uids_of(order))

    @property
    def name(self) -> str | None:
        """The name given on creation, if any."""
        return self._name

    @property
    def revision(self) -> int:
        """A counter of changes other than appends; if equal, the earlier ids are unchanged."""
        return self._revision

    def __repr__(self) -> str:
        named = "" if self._name is None else f"{self._name!r}, "
        return f"{type(self).__name__}({named}len={len(self)}, id={str(self._id)!r})"

    def __len__(self) -> int:
        return len(self._slots) - self._start - self._holes

    def __iter__(self) -> Iterator[UUID]:
        """Iterate over a snapshot of the ids."""
        return iter(self._live())

    def __reversed__(self) -> Iterator[UUID]:
        """Iterate backwards over a snapshot of the ids."""
        return reversed(list(self))

    def __contains__(self, ref: object) -> bool:
        """Return whether the id, element or UUID string stands here; False for anything else."""
        return (ref.int if type(ref) is UUID else key_of(ref)) in self._first_slots

    def index(self, ref: Ref, start: int = 0, stop: int | None = None) -> int:
        """Return the first index of an id in [start, stop); raises NotFoundError."""
        uid = uid_of(ref)
        bounds = self._slice_range(slice(start, stop))
        low, high = bounds.start, bounds.stop
        if uid.int in self._first_slots:
            self._ensure_gaps()
            for slot in self._slots_of(uid.int):
                if low <= (index := self._index_of(slot)) < high:
                    return index
        raise _not_found(uid)

    def count(self, ref: Ref) -> int:
        """Return the number of occurrences of an id."""
        key = uid_of(ref).int
        return sum(uid.int == key for uid in self) if ref in self else 0

    @overload
    def __getitem__(self, key: SupportsIndex) -> UUID: ...
    @overload
    def __getitem__(self, key: slice) -> list[UUID]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> UUID | list[UUID]:
        """Return the id at an index, or the ids in a slice; raises OutOfRangeError."""
        if not isinstance(key, slice):
            return self._at(self._position(key))
        indices = self._slice_range(key)
        if len(indices) * 8 < len(self):  # the last ten of a long history: do not copy it all
            return [self._at(index) for index in indices]
        return list(self)[key]

    @overload
    def __setitem__(self, key: SupportsIndex, value: Ref) -> None: ...
    @overload
    def __setitem__(self, key: slice, value: Iterable[Ref]) -> None: ...
    def __setitem__(self, key: SupportsIndex | slice, value: Any) -> None:
        """Replace the id at an index, or those in a slice; raises OutOfRangeError."""
        if isinstance(key, slice):
            self._replace_slice(key, uids_of(value))
        else:
            index = self._position(key)
            self._replace_slice(slice(index, index + 1), [uid_of(value)])

    def __delitem__(self, key: SupportsIndex | slice) -> None:
        """Remove the id at an index, or those in a slice; raises OutOfRangeError."""
        if not isinstance(key, slice):
            self._delete(self._position(key))
        elif removed := self._slice_range(key):
            order = list(self)
            del order[key]
            self._rewrite(order, min(removed[0], removed[-1]))

    def __iadd__(self, refs: Iterable[Ref]) -> Self:
        self.extend(refs)
        return self

    def append(self, ref: Ref) -> None:
        """Add an id at the end; raises NotFoundError when its flow has no such item."""
        uid = ref if type(ref) is UUID else uid_of(ref)
        self._admit((uid,))
        slots = self._slots
        slot = len(slots)
        if self._first_slots.setdefault(uid.int, slot) != slot:
            self._add_repeat(uid.int, slot)
        slots.append(uid)

    def extend(self, refs: Iterable[Ref]) -> None:
        """Add ids at the end, all or none; raises NotFoundError when its flow lacks one."""
        if uids := uids_of(refs):
            self._admit(uids)
            self._extend(uids)

    def insert(self, index: SupportsIndex, ref: Ref) -> None:
        """Insert an id before an index, clamped as in a list; raises as append does."""
        uid, wanted = uid_of(ref), _as_index(index)
        position = self._slice_range(slice(wanted, wanted)).start
        if position == len(self):
            self.append(uid)
        else:
            self._replace_slice(slice(position, position), [uid])

    def remove(self, ref: Ref) -> None:
        """Remove the first occurrence of an id; raises NotFoundError if there is none."""
        uid = ref if type(ref) is UUID else uid_of(ref)
        if not self._drop(uid):
            raise _not_found(uid)

    def pop(self, index: SupportsIndex = -1) -> UUID:
        """Remove and return the id at an index, by default the last; raises OutOfRangeError."""
        return self._delete(self._position(index))

    def popleft(self) -> UUID:
        """Remove and return the first id; raises OutOfRangeError if empty."""
        return self._delete(self._position(0))

    def clear(self) -> None:
        """Remove all ids."""
        if len(self):
            self._rewrite([], 0)

    def move(self, from_index: SupportsIndex, to_index: SupportsIndex) -> None:
        """Move one id so that it ends up at `to_index`; raises OutOfRangeError."""
        source, target = self._position(from_index), self._position(to_index)
        if source != target:
            order = list(self)
            order.insert(target, order.pop(source))
            self._rewrite(order, min(source, target))

    def swap(self, i: SupportsIndex, j: SupportsIndex) -> None:
        """Exchange the ids at two indices; raises OutOfRangeError."""
        first, second = self._position(i), self._position(j)
        if first != second:
            order = list(self)
            order[first], order[second] = order[second], order[first]
            self._rewrite(order, min(first, second))

    def reverse(self) -> None:
        """Reverse the order."""
        self._rewrite(list(self)[::-1], 0)

    def include(self, refs: Ref | Iterable[Ref]) -> bool:
        """Add the missing ids, once each; return whether any was. An Element is one id."""
        fresh = list({uid.int: uid for uid in _as_uids(refs) if uid not in self}.values())
        if fresh:
            self._admit(fresh)
            self._extend(fresh)
        return bool(fresh)

    def exclude(self, refs: Ref | Iterable[Ref]) -> bool:
        """Remove all occurrences of the ids; return whether any was. An Element is one id."""
        removed = {uid.int: uid for uid in _as_uids(refs) if uid in self}
        if len(removed) > 1:
            first = min(self.index(uid) for uid in removed.values())
            self._rewrite([uid for uid in self if uid.int not in removed], first)
        else:
            for uid in removed.values():
                while self._drop(uid):
                    pass
        return bool(removed)

    def items_of(self, pile: Pile[_T], start: int = 0) -> list[_T]:
        """Return the items of the ids from index `start` on; raises NotFoundError for a missing
        one.
        """
        return pile.pick(self[start:])

    @property
    def memo(self) -> object:
        """A reader's cache for the ids so far; cleared by any change except appends."""
        return self._memo

    @memo.setter
    def memo(self, value: object) -> None:
        self._memo = value

    def _changed(self) -> None:
        """Invalidate caches after any change except an append."""
        self._revision += 1
        self._memo = None

    def _admit(self, ids: Sequence[UUID]) -> None:
        """Raise for ids that may not be added; called before any is."""
        if self._guard is not None:
            self._guard(ids)

    def _extend(self, ids: list[UUID]) -> None:
        """Add admitted ids at the end."""
        self._store(ids)

    def _at(self, index: int) -> UUID:
        """Return the id at an index within range."""
        slot = self._slot_of(index)  # may compact into a new list
        return self._slots[slot]

    def _drop(self, uid: UUID) -> bool:
        """Remove the first occurrence; return False if there is none."""
        slot = self._first_slots.get(uid.int)
        if slot is None:
            return False
        self._vacate(slot)
        return True

    def _delete(self, index: int) -> UUID:
        """Remove and return the id at an index within range."""
        return self._vacate(self._slot_of(index))

    def _rewrite(self, order: list[UUID], first: int) -> None:
        """Replace the order; the entries before `first` are unchanged."""
        self._rebuild(order, first)
        self._changed()

    def _replace_slice(self, key: slice, uids: list[UUID]) -> None:
        old = self._slice_range(key)
        order = list(self)
        replaced = {uid.int for uid in order[key]}
        try:
            order[key] = uids
        except ValueError as error:
            raise ValidationError(f"Cannot assign to {key!r}: {error}.") from None
        if fresh := [uid for uid in uids if uid.int not in replaced]:
            self._admit(fresh)
        if uids or old:
            self._rewrite(order, min(old[0], old[-1]) if old else old.start)

    def _slice_range(self, key: slice) -> range:
        """Return the positions in a slice; raises InvalidTypeError."""
        try:
            return range(len(self))[key]
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"{short_repr(key)} is not a valid slice: {error}.") from error

    def _position(self, index: SupportsIndex) -> int:
        wanted = index if type(index) is int else _as_index(index)
        length = len(self)
        position = wanted + length if wanted < 0 else wanted
        if 0 <= position < length:
            return position
        way_out = f"use {-length} to {length - 1}" if length else "it is empty"
        given = short_repr(wanted)
        raise OutOfRangeError(f"Index {given} is out of range for length {length}; {way_out}.")

    def _reset(self) -> None:
        self._slots = []
        self._first_slots = {}
        self._repeats = {}
        self._start = self._holes = 0
        self._gaps = None

    def _store(self, ids: Sequence[UUID]) -> None:
        set_default = self._first_slots.setdefault
        for slot, uid in enumerate(ids, len(self._slots)):
            if set_default(uid.int, slot) != slot:
                self._add_repeat(uid.int, slot)
        self._slots += ids

    def _add_repeat(self, key: int, slot: int) -> None:
        occurrences = self._repeats.get(key)
        if occurrences is None:
            occurrences = self._repeats[key] = deque((self._first_slots[key],))
        occurrences.append(slot)

    def _slots_of(self, key: int) -> Sequence[int]:
        return self._repeats.get(key) or (self._first_slots[key],)

    def _live(self) -> list[UUID]:
        if self._holes:
            return [uid for uid in self._slots if uid is not _HOLE]
        return self._slots[self._start :]

    def _rebuild(self, order: list[UUID], first: int) -> None:
        if first == 0 or self._start or self._holes:
            self._reset()
            self._store(order)
            return
        for slot in range(len(self._slots) - 1, first - 1, -1):
            self._unindex(self._slots.pop().int, slot)
        self._store(order[first:])

    def _compact(self) -> None:
        self._rebuild(self._live(), 0)

    def _ensure_gaps(self) -> None:
        if self._holes and self._gaps is None:
            self._compact()

    def _slot_of(self, index: int) -> int:
        if not self._holes or index == 0:
            return self._start + index
        if index == len(self) - 1:
            return len(self._slots) - 1
        self._ensure_gaps()
        target = self._start + index
        gaps = self._gaps or ()
        low, high = 0, len(gaps)
        while low < high:  # how many gaps lie before the slot: bisect cannot see the rank
            middle = (low + high) // 2
            if gaps[middle] - middle <= target:
                low = middle + 1
            else:
                high = middle
        return target + low

    def _index_of(self, slot: int) -> int:
        return slot - self._start - (bisect_left(self._gaps, slot) if self._gaps else 0)

    def _unindex(self, key: int, slot: int) -> None:
        occurrences = self._repeats.get(key)
        if occurrences is None:
            del self._first_slots[key]
            return
        if occurrences[-1] == slot:
            occurrences.pop()
        else:
            occurrences.remove(slot)
        self._first_slots[key] = occurrences[0]
        if len(occurrences) == 1:
            del self._repeats[key]

    def _vacate(self, slot: int) -> UUID:
        slots = self._slots
        uid = slots[slot]
        slots[slot] = _HOLE
        self._unindex(uid.int, slot)
        self._changed()
        if slot == len(slots) - 1:
            self._trim_end()
        elif slot == self._start:
            self._advance_start()
        else:
            self._add_gap(slot)
        dead = self._start + self._holes
        if dead > _MIN_HOLES_TO_COMPACT and dead * 2 > len(slots):
            self._compact()
        return uid

    def _trim_end(self) -> None:
        slots = self._slots
        slots.pop()
        while len(slots) > self._start and slots[-1] is _HOLE:
            slots.pop()
            self._holes -= 1
            if self._gaps:
                self._gaps.pop()
        if len(slots) == self._start:
            self._reset()

    def _advance_start(self) -> None:
        slots = self._slots
        start = self._start + 1
        while slots[start] is _HOLE:
            start += 1
        passed = start - self._start - 1
        self._holes -= passed
        if self._gaps:
            del self._gaps[:passed]
        self._start = start

    def _add_gap(self, slot: int) -> None:
        gaps = self._gaps
        if not self._holes:
            self._gaps = [slot]
        elif gaps is not None:
            if slot > gaps[-1]:
                gaps.append(slot)
            elif len(gaps) < _MAX_GAPS:
                insort(gaps, slot)
            else:
                self._gaps = None
        self._holes += 1

    def __getstate__(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        # A copy belongs to no flow and shares no list; its index is built anew.
        attributes, slots = super().__getstate__()
        slots |= {"_slots": self._live(), "_first_slots": {}, "_repeats": {}, "_guard": None}
        return attributes, slots

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        super().__setstate__(state)
        self._rebuild(self._slots, 0)


cast(ABCMeta, MutableSequence).register(Progression)


def _as_index(index: SupportsIndex) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise InvalidTypeError(f"An index must be an int, got {index!r}.") from None


def _as_uids(refs: Ref | Iterable[Ref]) -> list[UUID]:
    if isinstance(refs, (UUID, str, Element)):
        return [uid_of(refs)]
    return uids_of(refs)


def _not_found(uid: UUID) -> NotFoundError:
    return NotFoundError(f"Id {str(uid)!r} is not in this progression; test with `in` first.")
