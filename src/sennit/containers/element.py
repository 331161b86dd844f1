"""Element: the base of stored objects, with an id, a creation time and metadata.

Two elements are equal if their ids are. The creation time is an int of microseconds, converted to a
datetime on access. Metadata is read-only, and all elements without any share one empty mapping, so
that a million messages do not need a million empty dicts.

`uuid.UUID` hashes and compares in Python code, several times slower than an int. Dicts in this
package are therefore keyed by `uid.int`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias, cast
from uuid import UUID

from sennit.clock import from_datetime, from_iso, now_us, to_datetime
from sennit.errors import CodecError, InvalidTypeError, ValidationError, listed, short_repr
from sennit.ids import new_id

_KEYS = frozenset({"id", "created_at", "metadata"})
_KINDS: dict[str, type[Element]] = {}
"""The element types that from_dict can build, by the key that identifies their dicts."""
NO_METADATA: Mapping[str, Any] = MappingProxyType({})
_State: TypeAlias = tuple[dict[str, Any] | None, dict[str, Any]]


class Element:
    """Something with an id, a creation time and read-only metadata; equality goes by id."""

    __slots__ = ("__weakref__", "_created", "_id", "_metadata")

    def __init_subclass__(cls, *, key: str | None = None, **given: Any) -> None:
        """Register the type for `from_dict`; `key` occurs only in dicts of this type."""
        super().__init_subclass__(**given)
        if key is not None:
            _KINDS[key] = cls

    def __init__(
        self,
        *,
        id: UUID | str | None = None,
        created_at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Take an ISO string as a time, too.

        Raises ValidationError for a string that is no UUID or a datetime without time zone.
        """
        self._id = new_id() if id is None else _as_uuid(id)
        if isinstance(created_at, str):
            created_at = from_iso(created_at)
        self._created = now_us() if created_at is None else from_datetime(created_at)
        self._metadata = NO_METADATA if metadata is None else read_only(metadata)

    @property
    def id(self) -> UUID:
        """The id, by default a new UUIDv7."""
        return self._id

    @property
    def created_at(self) -> datetime:
        """The creation time, as an aware UTC datetime."""
        return to_datetime(self._created)

    @property
    def created_us(self) -> int:
        """The creation time in microseconds since 1970."""
        return self._created

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata, read-only."""
        return self._metadata

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Element:
        """Return the element in a dict: a Message if `Message.to_dict` wrote it, else an Element.

        Only types already defined are considered; nothing is imported. Raises CodecError for wrong
        keys, and InvalidTypeError on a subclass that has no dict form.
        """
        if cls is not Element:
            raise InvalidTypeError(
                f"A {cls.__name__} cannot be created from a dict; use its constructor."
            )
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CodecError(f"A stored element is a dict, got {short_repr(data)}.")
        for key, kind in _KINDS.items():
            if key in data:
                return kind.from_dict(data)
        if wrong := (data.keys() - _KEYS) | ({"id", "created_at"} - data.keys()):
            raise CodecError(
                f"A stored element has wrong or missing keys: {listed(wrong)}; expected "
                f"{listed(_KEYS)}, and for some kinds {listed(_KINDS)}."
            )
        created_at = from_iso(data["created_at"])
        return Element(id=data["id"], created_at=created_at, metadata=data.get("metadata"))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Element):
            return self._id.int == other._id.int
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._id.int)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={str(self._id)!r})"

    def __getstate__(self) -> _State:
        # A mapping proxy can be neither pickled nor deep-copied; a dict can.
        attributes, slots = cast(_State, object.__getstate__(self))
        return attributes, slots | {"_metadata": dict(self._metadata)}

    def __setstate__(self, state: _State) -> None:
        attributes, slots = state
        for name, value in slots.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_metadata", read_only(slots["_metadata"]))
        if attributes:
            self.__dict__.update(attributes)


Ref: TypeAlias = UUID | str | Element
"""A reference to an element: itself, its id, or its id as a string."""


def uid_of(ref: Ref) -> UUID:
    """Return the id of a reference; raises ValidationError or InvalidTypeError."""
    return ref.id if isinstance(ref, Element) else _as_uuid(ref)


def uids_of(refs: Iterable[Ref]) -> list[UUID]:
    """Return the ids of references, in order; raises as uid_of does, or for no iterable."""
    if isinstance(refs, str) or not isinstance(refs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"Expected an iterable of ids, got {refs!r}; put it in a list.")
    return [ref if type(ref) is UUID else uid_of(ref) for ref in refs]


def key_of(ref: object) -> int | None:
    """Return the int of the id of a reference; None for anything else."""
    if isinstance(ref, UUID):
        return ref.int
    if isinstance(ref, Element):
        return ref.id.int
    if isinstance(ref, str):
        try:
            return UUID(ref).int
        except ValueError:
            return None
    return None


def checked_name(name: object) -> str | None:
    """Return a name that is None or a non-empty string; raises ValidationError."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise InvalidTypeError(f"A name must be a string or None, got {short_repr(name)}.")
    if not name:
        raise ValidationError("A name must not be empty; leave it out (None) for no name.")
    return name


def _as_uuid(value: object) -> UUID:
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str):
        raise InvalidTypeError(f"Expected a UUID or a UUID string as id, got {short_repr(value)}.")
    try:
        return UUID(value)
    except ValueError:
        raise ValidationError(
            f"{short_repr(value)} is not a UUID; use one like "
            "'0190a5c2-7e4b-7c1d-8f2a-3b4c5d6e7f80'."
        ) from None


def read_only(metadata: object) -> Mapping[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InvalidTypeError(
            f"Metadata must be a mapping such as a dict, got {short_repr(metadata)}."
        )
    copied = dict(cast(Mapping[str, Any], metadata))
    return MappingProxyType(copied) if copied else NO_METADATA
