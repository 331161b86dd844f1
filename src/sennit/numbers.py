"""Validators of numeric options."""

from __future__ import annotations

from math import isnan

from sennit.errors import InvalidTypeError, ValidationError, short_repr


def positive(value: object, name: str) -> None:
    """Raise ValidationError unless `value` is a number above zero."""
    if not _number(value, name, "a number above 0") > 0:
        raise ValidationError(f"{name} must be a number above 0, got {short_repr(value)}.")


def not_negative(value: object, name: str) -> None:
    """Raise ValidationError unless `value` is a number, zero or more."""
    if not _number(value, name, "a number, 0 or more") >= 0:
        raise ValidationError(f"{name} must be a number, 0 or more, got {short_repr(value)}.")


def count(value: object, name: str, minimum: int = 1) -> None:
    """Raise ValidationError unless `value` is a whole number, `minimum` or more."""
    expected = f"{name} must be a whole number, {minimum} or more, got {short_repr(value)}."
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTypeError(expected)
    if value < minimum:
        raise ValidationError(expected)


def _number(value: object, name: str, expected: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or isnan(value):
        raise InvalidTypeError(f"{name} must be {expected}, got {short_repr(value)}.")
    return value
