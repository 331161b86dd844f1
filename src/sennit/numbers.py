"""Validators of numeric options."""

from __future__ import annotations

from math import isnan

from sennit.errors import ValidationError, short_repr


def positive(value: object, name: str) -> None:
    """Raise ValidationError unless `value` is a number above zero."""
    if not _number(value) or not value > 0:  # type: ignore[operator]
        raise ValidationError(f"{name} must be a number above 0, got {short_repr(value)}.")


def not_negative(value: object, name: str) -> None:
    """Raise ValidationError unless `value` is a number, zero or more."""
    if not _number(value) or not value >= 0:  # type: ignore[operator]
        raise ValidationError(f"{name} must be a number, 0 or more, got {short_repr(value)}.")


def count(value: object, name: str) -> None:
    """Raise ValidationError unless `value` is a whole number, one or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValidationError(f"{name} must be a whole number, 1 or more, got {short_repr(value)}.")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)
