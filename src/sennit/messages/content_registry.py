"""The registry of content types, by the name stored with messages.

Defining a subclass of MessageContent registers it. Built-in names and names of other classes are
refused. A stored name only selects a class that the program has defined; nothing is imported. What
contents do is in `content_base`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import wraps
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sennit.errors import ExistsError, InvalidTypeError, ValidationError, short_repr
from sennit.messages.json_values import plain
from sennit.messages.unset import Unset

if TYPE_CHECKING:
    from sennit.messages.content_base import MessageContent
    from sennit.messages.validators import Check

CONTENT_KINDS: dict[str, type[MessageContent]] = {}
"""All content types, by name."""
BUILT_IN: set[str] = set()
"""The names of the five built-in types."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def declare(kind: type[MessageContent], base: type[MessageContent]) -> None:
    """Register a new subclass; raises ExistsError if another class has its name."""
    # Set before @dataclass runs, which removes the hash of a class that is not frozen.
    kind.__hash__ = base.__hash__
    _wrap_post_init(kind, base)
    if kind.__dict__.get("_registered", True):
        _register(kind)


def _register(kind: type[MessageContent]) -> None:
    if inherited := [
        parent for parent in kind.__mro__[1:] if parent.__dict__.get("kind") in BUILT_IN
    ]:
        raise InvalidTypeError(
            f"{kind.__name__} cannot extend {inherited[0].__name__}; write "
            f"`class {kind.__name__}(MessageContent):` and give it the fields it needs."
        )
    name = kind.__dict__.get("kind", _default_name(kind.__name__))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValidationError(
            f"kind of {kind.__name__} must be a name such as 'note' or 'acme.note', got "
            f"{short_repr(name)}."
        )
    existing = CONTENT_KINDS.get(name)
    if name in BUILT_IN or (existing is not None and not _is_redefined(existing, kind)):
        owner = "a built-in content" if name in BUILT_IN else ".".join(_qualified_name(existing))
        raise ExistsError(
            f"The content type {name!r} is already used by {owner}; give {kind.__name__} another "
            f"name: `kind: ClassVar[str] = 'my_{name}'`."
        )
    kind.kind = name
    CONTENT_KINDS[name] = kind


def _default_name(name: str) -> str:
    return _WORD_START.sub("_", name.removesuffix("Content") or name).lower()


def _is_redefined(known: type[MessageContent], kind: type[MessageContent]) -> bool:
    """Return whether a class replaces itself: rebuilt with slots, or defined again."""
    # With slots=True, @dataclass creates a second class that shares the fields of the first.
    own = kind.__dict__.get("__dataclass_fields__")
    if own is not None and own is known.__dict__.get("__dataclass_fields__"):
        return True
    return _qualified_name(known) == _qualified_name(kind)


def _qualified_name(kind: Any) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _wrap_post_init(kind: type[MessageContent], base: type[MessageContent]) -> None:
    """Validate the fields after a `__post_init__` that the class defines."""
    post_init: Callable[..., None] | None = kind.__dict__.get("__post_init__")
    if post_init is None or hasattr(post_init, "__wrapped__"):
        return

    @wraps(post_init)
    def wrapper(self: MessageContent, *args: Any) -> None:
        post_init(self, *args)
        base.__post_init__(self)

    setattr(kind, "__post_init__", wrapper)  # noqa: B010 (a method to type checkers)


def complete(kind: type[MessageContent], base: type[MessageContent]) -> None:
    """Derive the validators from the fields; raises InvalidTypeError if it is no dataclass."""
    name = kind.__name__
    if kind is base:
        return
    if "__dataclass_fields__" not in kind.__dict__:
        raise InvalidTypeError(
            f"{name} is not a dataclass; write @dataclass(frozen=True, slots=True) above "
            f"`class {name}(MessageContent):`."
        )
    settable = [field for field in fields(kind) if field.init]  # pyright: ignore[reportArgumentType]
    if reserved := [field.name for field in settable if hasattr(base, field.name)]:
        raise ValidationError(
            f"{name} cannot have the field {reserved[0]!r}, as every content has an attribute of "
            f"that name; rename the field."
        )
    kind.checks = {field.name: _field_check(field) for field in settable}
    if kind.__dataclass_params__.frozen:  # pyright: ignore
        freeze(kind)


def _field_check(field: Field[Any]) -> Check:
    """Return the validator of a field: plain data, and None for Unset if that is the default."""

    def check(value: Any, name: str) -> Any:
        return Unset if value is None and field.default is Unset else plain(value, name)

    return check


def freeze(kind: type[MessageContent]) -> None:
    """Make every assignment of an attribute raise FrozenInstanceError."""
    # The methods that dataclasses generate fail on names that are no fields (Python 3.11).
    setattr(kind, "__setattr__", refuse_change)  # noqa: B010 (type checkers protect it)
    setattr(kind, "__delattr__", refuse_change)  # noqa: B010


def refuse_change(self: object, name: str, *_value: object) -> NoReturn:
    """Raise FrozenInstanceError."""
    raise FrozenInstanceError(
        f"{type(self).__name__} is immutable; use with_updates({name}=...) to get a changed copy."
    )


def is_set(content: MessageContent, name: str) -> bool:
    """Return whether a field of a content already has a value."""
    if isinstance(getattr(type(content), name, None), MemberDescriptorType):
        return hasattr(content, name)
    return name in getattr(content, "__dict__", ())


def default_of(kind: type[MessageContent], name: str) -> Any:
    """Return the default of a field; raises ValidationError if it has none."""
    field = cast("Field[Any]", getattr(kind, "__dataclass_fields__")[name])  # noqa: B009
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is MISSING:
        raise ValidationError(f"{kind.__name__} needs {name!r}: it has no default.")
    return field.default
