"""Values of a program as plain JSON data.

A program's values may be anything. What JSON can say stays as it is; a pydantic model or a
dataclass becomes its fields, an enum its value, and dates, times and bytes become the text that
DSPy sends for them, so a session that is opened again sends the same prompts. Anything else is kept
as the text it shows. Text that no file could hold is mended: a value is never a reason to lose a
turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_DEEPEST = 40
_WRITTEN = (date, time, timedelta, bytes)  # a datetime is a date


def plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a turn as plain data."""
    return {mended(str(name)): _plain(value, 0) for name, value in values.items()}


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):  # before its text, which names the member
        return _plain(value.value, depth + 1)
    if isinstance(value, str):
        return mended(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _DEEPEST:
        return _shown(value)
    if isinstance(value, (BaseModel, *_WRITTEN)) or (
        is_dataclass(value) and not isinstance(value, type)
    ):
        return _plain(_dumped(value), depth + 1)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {mended(str(name)): _plain(one, depth + 1) for name, one in items}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one, depth + 1) for one in cast("list[Any]", value)]
    return _shown(value)


def _dumped(value: Any) -> Any:
    try:
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json", fallback=_shown)
        return to_jsonable_python(value, fallback=_shown)
    except Exception:  # a serializer of its own may fail
        return _shown(value)


def _shown(value: Any) -> str:
    try:
        return mended(str(value))
    except Exception:  # not even that
        return f"<{type(value).__name__}>"


def mended(value: str) -> str:
    """Text that can be stored: no lone surrogates, no NUL."""
    if value.isascii():
        return value.replace("\x00", "\ufffd") if "\x00" in value else str(value)
    mended = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return mended.replace("\x00", "\ufffd")


def spoken(fields: Mapping[str, Any]) -> str:
    """The fields as someone would read them: one alone bare, several under their names."""
    if len(fields) == 1:
        return _said(next(iter(fields.values())))
    return "\n\n".join(f"{name}: {_said(value)}" for name, value in fields.items())


def _said(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
