"""Validators of content fields.

A check takes what was given and the field's name, and returns what is kept: a copy of the caller's
own, or Unset for None. It raises a ValidationError that names the field for anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.messages.image_url import check_image_url
from sennit.messages.json_values import plain_dict, plain_list, text
from sennit.messages.output_schema import as_model, is_model
from sennit.messages.unset import Unset

Check: TypeAlias = Callable[[Any, str], Any]


def words(value: Any, name: str) -> Any:
    """Text."""
    return Unset if value is None else text(value, name)


def moment(value: Any, name: str) -> Any:
    """A time as text, or True for now."""
    return value if value is True else words(value, name)


def factory(value: Any, name: str) -> Any:
    """A function that gives a time."""
    if value is None:
        return Unset
    if not callable(value):
        raise InvalidTypeError(f"{name} must be a function returning a string, got {shown(value)}.")
    return value


def items(value: Any, name: str) -> Any:
    """A list of plain data."""
    return Unset if value is None else plain_list(value, name)


def tool_schemas(value: Any, name: str) -> Any:
    """A list of pydantic model classes and JSON schemas."""
    if value is None:
        return Unset
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of schemas, got {shown(value)}.")
    schemas = cast("list[Any]", value)
    return [
        item if is_model(item) else plain_dict(item, f"{name}[{at}]")
        for at, item in enumerate(schemas)
    ]


def response_model(value: Any, name: str) -> Any:
    """A pydantic model class, or a JSON schema."""
    return Unset if value is None else as_model(value, name)


def images(value: Any, name: str) -> Any:
    """A list of http(s) addresses."""
    if value is None:
        return Unset
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of URLs, got {shown(value)}.")
    return [check_image_url(url) for url in cast("list[str]", value)]


def image_detail(value: Any, name: str) -> Any:
    """Validate the detail level of images."""
    if value is None:
        return Unset
    if value not in ("low", "high", "auto"):
        raise ValidationError(f"{name} must be 'low', 'high' or 'auto', got {shown(value)}.")
    return value


def arguments(value: Any, name: str) -> Any:
    """A dict of plain data."""
    return Unset if value is None else plain_dict(value, name)
