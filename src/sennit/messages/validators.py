"""Validators of content fields.

A validator takes a value and the name of its field, and returns the value to store: a copy, or
Unset for None. It raises a ValidationError that names the field for an invalid value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.messages.image_url import image_url
from sennit.messages.json_values import plain_dict, plain_list, validate_text
from sennit.messages.media import media_part, part_record
from sennit.messages.output_schema import as_model, is_model
from sennit.messages.unset import Unset

Check: TypeAlias = Callable[[Any, str], Any]


def words(value: Any, name: str) -> Any:
    """Validate text."""
    return Unset if value is None else validate_text(value, name)


def moment(value: Any, name: str) -> Any:
    """Validate a time as text, or True for now."""
    return value if value is True else words(value, name)


def factory(value: Any, name: str) -> Any:
    """Validate a function that returns a time."""
    if value is None:
        return Unset
    if not callable(value):
        raise InvalidTypeError(
            f"{name} must be a function returning a string, got {short_repr(value)}."
        )
    return value


def items(value: Any, name: str) -> Any:
    """Validate a list of plain data."""
    return Unset if value is None else plain_list(value, name)


def tool_schemas(value: Any, name: str) -> Any:
    """Validate a list of pydantic model classes and JSON schemas."""
    if value is None:
        return Unset
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of schemas, got {short_repr(value)}.")
    schemas = cast("list[Any]", value)
    return [
        item if is_model(item) else plain_dict(item, f"{name}[{index}]")
        for index, item in enumerate(schemas)
    ]


def response_model(value: Any, name: str) -> Any:
    """Validate a pydantic model class or a JSON schema."""
    if value is None:
        return Unset
    # A class without a JSON schema raises when the message is rendered.
    return value if is_model(value) else as_model(value, name)


def images(value: Any, name: str) -> Any:
    """Validate a list of images: URLs, bytes or Paths."""
    if value is None:
        return Unset
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of URLs, got {short_repr(value)}.")
    return [image_url(image) for image in cast("list[Any]", value)]


def files(value: Any, name: str) -> Any:
    """Validate a list of files and recordings: parts, their records, Paths or URLs."""
    records = media(value, name)
    if records is not Unset and any(record["type"] == "image" for record in records):
        raise ValidationError(f"{name} must not have an ImagePart; pass it in images.")
    return records


def media(value: Any, name: str) -> Any:
    """Validate a list of pictures, files and recordings."""
    if value is None:
        return Unset
    if not isinstance(value, (list, tuple)):
        raise InvalidTypeError(f"{name} must be a list of files, got {short_repr(value)}.")
    return [part_record(media_part(item)) for item in cast("list[Any]", value)] or Unset


def image_detail(value: Any, name: str) -> Any:
    """Validate the detail level of images."""
    if value is None:
        return Unset
    if value not in ("low", "high", "auto"):
        raise ValidationError(f"{name} must be 'low', 'high' or 'auto', got {short_repr(value)}.")
    return value


def arguments(value: Any, name: str) -> Any:
    """Validate a dict of plain data."""
    return Unset if value is None else plain_dict(value, name)
