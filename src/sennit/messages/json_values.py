"""JSON values that a message may hold, validated.

Every content and metadata passes through here when it is made, so that each message that exists can
be stored, in memory and on every database alike. Lists and dicts are copied all the way down (a
frozen content must not change through a list someone kept), the usual Python values become their
JSON form, and what JSON or a database would lose or refuse is refused now, by name and place:
NaN, integers past 64 bits, NUL, lone surrogates, objects, and nesting deeper than MAX_DEPTH.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.messages.unset import Unset

MAX_DEPTH = 100
_SHOWN_KEY = 40  # a place is made for every entry, so a long key must not be copied into each
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def text(value: Any, name: str) -> str:
    """`value` as a string that every store can hold; raises a ValidationError naming `name`."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name} must be a string, got {shown(value)}.")
        value = str.__str__(value)
    if "\0" in value:
        raise ValidationError(
            f"{name} contains a NUL character at position {value.index(chr(0))}; remove it."
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValidationError(
                f"{name} contains the lone surrogate {value[error.start]!r} at position "
                f"{error.start}; decode the text with errors='replace' first."
            ) from error
    return value


def readable(said: str) -> str:
    """`said` as text that every store can hold: what none can is replaced by a mark."""
    if "\0" in said:
        said = said.replace("\0", "�")
    if said.isascii():
        return said
    # By way of UTF-16, where the two halves of a character become whole again.
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def plain(value: Any, name: str) -> Any:
    """A deep copy of `value` as plain JSON data; raises a ValidationError naming the place."""
    return _plain(value, name, "", 0)


def plain_dict(value: Any, name: str) -> dict[str, Any]:
    """Like `plain`, for a value that must be a mapping."""
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"{name} must be a dict, got {shown(value)}.")
    return _dict(cast("Mapping[Any, Any]", value), name, 0)


def plain_list(value: Any, name: str) -> list[Any]:
    """Like `plain`, for a value that must be a list or tuple."""
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list, got {shown(value)}.")
    return _list(cast("list[Any]", value), name, 0)


def _plain(value: Any, place: str, key: str, depth: int) -> Any:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        # Nearly all text is ASCII; the name of the place is only built when it is needed.
        return value if _is_simple(value) else text(value, place + key)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _integer(value, place + key)
    if kind is float:
        return _number(value, place + key)
    if kind is dict:
        return _dict(value, place + key, depth)
    if kind is list or kind is tuple:
        return _list(value, place + key, depth)
    return _converted(value, place + key, depth)


def _integer(value: int, place: str) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise ValidationError(f"{place} is an integer beyond 64 bits; pass it as a string.")
    return value


def _number(value: float, place: str) -> float:
    if not isfinite(value):
        raise ValidationError(
            f"{place} is {shown(value)}, which JSON cannot represent; use None or a string."
        )
    return value


def _list(value: list[Any] | tuple[Any, ...], place: str, depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(place)
    return [_plain(item, place, f"[{index}]", depth + 1) for index, item in enumerate(value)]


def _dict(value: Mapping[Any, Any], place: str, depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(place)
    copied: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str and _is_simple(key) else _key(key, place)
        if name in copied:
            raise ValidationError(f"{place} has two keys that are both {shown(name)} in JSON.")
        if type(item) is str and _is_simple(item):
            copied[name] = item
        else:
            copied[name] = _plain(item, place, f".{name[:_SHOWN_KEY]}", depth + 1)
    return copied


def _is_simple(value: str) -> bool:
    """Return whether any store can hold it, as nearly all texts; others are looked at more
    closely.
    """
    return value.isascii() and "\0" not in value


def _key(key: Any, place: str) -> str:
    if type(key) is int:
        return str(_integer(key, f"a key of {place}"))
    if isinstance(key, UUID):
        return str(key)
    if isinstance(key, Enum):
        return _key(key.value, place)
    if isinstance(key, str):
        return text(key, f"a key of {place}")
    raise InvalidTypeError(f"{place} has the key {shown(key)}; keys must be strings.")


def _converted(value: Any, place: str, depth: int) -> Any:
    """The JSON form of the usual Python values that are not JSON themselves."""
    if depth >= MAX_DEPTH:
        raise _too_deep(place)
    if value is Unset:
        raise ValidationError(f"{place} is Unset; leave it out, or use None.")
    if isinstance(value, Enum):
        return _plain(value.value, place, "", depth + 1)
    if isinstance(value, (str, int, float)):
        return _plain(_bare(value), place, "", depth)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    if isinstance(value, Mapping):
        return _dict(cast("Mapping[Any, Any]", value), place, depth)
    if isinstance(value, AbstractSet):
        return _list(sorted(cast("AbstractSet[Any]", value), key=repr), place, depth)
    if isinstance(value, type):
        raise _not_plain(value, place)
    if hasattr(value, "model_dump"):
        return _plain(_dumped(value, place), place, "", depth + 1)
    if dataclasses.is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _dict(named, place, depth)
    raise _not_plain(value, place)


def _dumped(model: Any, place: str) -> Any:
    try:
        return model.model_dump(mode="json")
    except Exception as error:
        raise ValidationError(f"{place} is a model that cannot be dumped: {error}.") from error


def _bare(value: str | int | float) -> str | int | float:
    """The value of a subclass's instance, whatever the subclass overrides."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _too_deep(place: str) -> ValidationError:
    # The place itself grows with the depth: its beginning says enough.
    return ValidationError(f"{place[:80]}… is nested deeper than {MAX_DEPTH} levels.")


def _not_plain(value: Any, place: str) -> InvalidTypeError:
    return InvalidTypeError(
        f"{place} is {shown(value)}, which cannot be stored; use text, numbers, lists, dicts, "
        f"dataclasses or pydantic models."
    )
