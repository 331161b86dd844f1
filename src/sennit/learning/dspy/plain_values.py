"""Values of a program as plain JSON data.

A program's values may be anything. JSON values stay unchanged; a pydantic model or a dataclass
becomes a dict of its fields, an enum its value, and dates, times and bytes become the text that
DSPy sends for them, so a reopened session sends the same prompts. Anything else becomes `str` of
it, and text that cannot be stored is repaired: no value makes a turn fail.

An image is stored as the text that DSPy sends for it, from which DSPy builds a content block again.
For people, search and training exports the block is replaced by its type, such as "[image]", and
images with a URL become images of the instruction.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from sennit.errors import ValidationError
from sennit.learning.dspy.dspy_imports import BLOCK_END, BLOCK_START
from sennit.messages.image_url import check_image_url

_MAX_DEPTH = 40
_BLOCK_PATTERN = re.compile(f"{re.escape(BLOCK_START)}(.*?){re.escape(BLOCK_END)}", re.DOTALL)
_SERIALIZED_TYPES = (date, time, timedelta, bytes)  # a datetime is a date


def plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a turn as plain data."""
    return {repair_text(str(name)): _to_plain(value, 0) for name, value in values.items()}


def _to_plain(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):  # before str, of which an enum may be a subclass
        return _to_plain(value.value, depth + 1)
    if isinstance(value, str):
        return repair_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
        return _to_text(value)
    if isinstance(value, (BaseModel, *_SERIALIZED_TYPES)) or (
        is_dataclass(value) and not isinstance(value, type)
    ):
        return _to_plain(_serialize(value), depth + 1)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {repair_text(str(name)): _to_plain(item, depth + 1) for name, item in items}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_to_plain(item, depth + 1) for item in cast("list[Any]", value)]
    return _to_text(value)


def _serialize(value: Any) -> Any:
    try:
        if isinstance(value, BaseModel):
            return value.model_dump(mode="json", fallback=_to_text)
        return to_jsonable_python(value, fallback=_to_text)
    except Exception:  # a custom serializer may fail
        return _to_text(value)


def _to_text(value: Any) -> str:
    try:
        return repair_text(str(value))
    except Exception:  # a custom __str__ may fail
        return f"<{type(value).__name__}>"


def repair_text(value: str) -> str:
    """Return the text with lone surrogates and NUL replaced, so it can be stored."""
    if value.isascii():
        return value.replace("\x00", "\ufffd") if "\x00" in value else str(value)
    repaired = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return repaired.replace("\x00", "\ufffd")


def fields_as_text(fields: Mapping[str, Any]) -> str:
    """Return fields as readable text: a single value alone, several with their names."""
    if len(fields) == 1:
        return _as_text(next(iter(fields.values())))
    return "\n\n".join(f"{name}: {_as_text(value)}" for name, value in fields.items())


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def without_blocks(value: Any) -> Any:
    """Return plain data with each block replaced by its text, or its type, such as "[image]"."""
    if isinstance(value, str):
        return _BLOCK_PATTERN.sub(_describe_match, value) if BLOCK_START in value else value
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: without_blocks(item) for name, item in fields.items()}
    if isinstance(value, list):
        return [without_blocks(item) for item in cast("list[Any]", value)]
    return value


def image_urls(value: Any) -> list[str]:
    """Return the URLs of the images in plain data, in order, without embedded (data:) images."""
    return [url for text in _texts(value) for url in _urls_in_text(text)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(cast("Mapping[str, Any]", value).values()))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)


def _urls_in_text(text: str) -> Iterator[str]:
    for match in _BLOCK_PATTERN.finditer(text) if BLOCK_START in text else ():
        for block in _parse_blocks(match) or ():
            image = block.get("image_url")
            url = cast("dict[str, Any]", image).get("url") if isinstance(image, dict) else None
            if isinstance(url, str) and _is_image_url(url):
                yield url


def _is_image_url(url: str) -> bool:
    try:
        check_image_url(url)
    except ValidationError:
        return False
    return True


def _describe_match(match: re.Match[str]) -> str:
    blocks = _parse_blocks(match)
    if blocks is None:
        return match[0]  # ordinary text with the same markers
    return " ".join(_describe_block(block) for block in blocks)


def _describe_block(block: dict[str, Any]) -> str:
    kind = str(block.get("type", "block"))
    if kind == "text":
        return str(block.get("text", ""))
    return f"[{kind.removeprefix('input_').removesuffix('_url')}]"


def _parse_blocks(match: re.Match[str]) -> list[dict[str, Any]] | None:
    try:
        blocks = json.loads(match[1])
    except ValueError:
        return None
    if not isinstance(blocks, list) or not all(
        isinstance(block, dict) for block in cast("list[Any]", blocks)
    ):
        return None
    return cast("list[dict[str, Any]]", blocks)
