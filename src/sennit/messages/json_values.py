"""JSON values that a message may hold, validated.

Every content and metadata is validated here on creation, so that every message can be stored in
every database. Lists and dicts are deep-copied (a frozen content must not change through a list
that the caller still has), common Python values are converted to JSON, and values that JSON or a
database cannot represent are refused, with their path: NaN, integers beyond 64 bits, NUL, lone
surrogates, objects, and nesting deeper than MAX_DEPTH.
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

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.messages.unset import Unset

MAX_DEPTH = 100
_MAX_KEY_CHARS = 40  # of a path, which is built for every entry
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def validate_text(value: Any, name: str) -> str:
    """Return a string that every store accepts; raises ValidationError naming `name`."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name} must be a string, got {short_repr(value)}.")
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


def replace_invalid(value: str) -> str:
    """Return text that every store accepts, with invalid characters replaced by U+FFFD."""
    if "\0" in value:
        value = value.replace("\0", "�")
    if value.isascii():
        return value
    # A round trip through UTF-16 joins surrogate pairs.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def plain(value: Any, name: str) -> Any:
    """Return a deep copy of `value` as plain JSON data; raises ValidationError with the path."""
    return _plain(value, name, "", 0)


def plain_dict(value: Any, name: str) -> dict[str, Any]:
    """Do as `plain` does, for a value that must be a mapping."""
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"{name} must be a dict, got {short_repr(value)}.")
    return _dict(cast("Mapping[Any, Any]", value), name, 0)


def plain_list(value: Any, name: str) -> list[Any]:
    """Do as `plain` does, for a value that must be a list or tuple."""
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list, got {short_repr(value)}.")
    return _list(cast("list[Any]", value), name, 0)


def _plain(value: Any, path: str, key: str, depth: int) -> Any:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        # Nearly all text is ASCII; the path is only built if needed.
        return value if _is_simple(value) else validate_text(value, path + key)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _integer(value, path + key)
    if kind is float:
        return _number(value, path + key)
    if kind is dict:
        return _dict(value, path + key, depth)
    if kind is list or kind is tuple:
        return _list(value, path + key, depth)
    return _convert(value, path + key, depth)


def _integer(value: int, path: str) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise ValidationError(f"{path} is an integer beyond 64 bits; pass it as a string.")
    return value


def _number(value: float, path: str) -> float:
    if not isfinite(value):
        raise ValidationError(
            f"{path} is {short_repr(value)}, which JSON cannot represent; use None or a string."
        )
    return value


def _list(value: list[Any] | tuple[Any, ...], path: str, depth: int) -> list[Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(path)
    return [_plain(item, path, f"[{index}]", depth + 1) for index, item in enumerate(value)]


def _dict(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise _too_deep(path)
    copied: dict[str, Any] = {}
    for key, item in value.items():
        name = key if type(key) is str and _is_simple(key) else _key(key, path)
        if name in copied:
            raise ValidationError(f"{path} has two keys that are both {short_repr(name)} in JSON.")
        if type(item) is str and _is_simple(item):
            copied[name] = item
        else:
            copied[name] = _plain(item, path, f".{name[:_MAX_KEY_CHARS]}", depth + 1)
    return copied


def _is_simple(value: str) -> bool:
    """Return whether text is obviously valid; other text needs a closer check."""
    return value.isascii() and "\0" not in value


def _key(key: Any, path: str) -> str:
    if type(key) is int:
        return str(_integer(key, f"a key of {path}"))
    if isinstance(key, UUID):
        return str(key)
    if isinstance(key, Enum):
        return _key(key.value, path)
    if isinstance(key, str):
        return validate_text(key, f"a key of {path}")
    raise InvalidTypeError(f"{path} has the key {short_repr(key)}; keys must be strings.")


def _convert(value: Any, path: str, depth: int) -> Any:
    """Convert common Python values to JSON; raises InvalidTypeError for others."""
    if depth >= MAX_DEPTH:
        raise _too_deep(path)
    if value is Unset:
        raise ValidationError(f"{path} is Unset; leave it out, or use None.")
    if isinstance(value, Enum):
        return _plain(value.value, path, "", depth + 1)
    if isinstance(value, (str, int, float)):
        return _plain(_builtin_value(value), path, "", depth)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    if isinstance(value, Mapping):
        return _dict(cast("Mapping[Any, Any]", value), path, depth)
    if isinstance(value, AbstractSet):
        return _list(sorted(cast("AbstractSet[Any]", value), key=repr), path, depth)
    if isinstance(value, type):
        raise _unsupported(value, path)
    if hasattr(value, "model_dump"):
        return _plain(_dump_model(value, path), path, "", depth + 1)
    if dataclasses.is_dataclass(value):
        values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _dict(values, path, depth)
    raise _unsupported(value, path)


def _dump_model(model: Any, path: str) -> Any:
    try:
        return model.model_dump(mode="json")
    except Exception as error:
        raise ValidationError(f"{path} is a model that cannot be dumped: {error}.") from error


def _builtin_value(value: str | int | float) -> str | int | float:
    """Return the built-in value of a subclass instance, ignoring overrides."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _too_deep(path: str) -> ValidationError:
    # The path grows with the depth, so only its beginning is shown.
    return ValidationError(f"{path[:80]}… is nested deeper than {MAX_DEPTH} levels.")


def _unsupported(value: Any, path: str) -> InvalidTypeError:
    return InvalidTypeError(
        f"{path} is {short_repr(value)}, which cannot be stored; use text, numbers, lists, dicts, "
        f"dataclasses or pydantic models."
    )
