"""The base class of contents: validated, frozen, serialisable.

Each kind declares its fields and their validators in `checks`; for a kind that a program defines,
they are derived from the fields of its dataclass. All kinds are registered in CONTENT_KINDS by the
name they are stored under.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from sennit.errors import InvalidTypeError, ValidationError, listed, short_repr
from sennit.messages.codec import dumps
from sennit.messages.content_registry import (
    BUILT_IN,
    CONTENT_KINDS,
    complete,
    declare,
    default_of,
    freeze,
    is_set,
    refuse_change,
)
from sennit.messages.render import blocks_text, fields_text
from sennit.messages.unset import Unset
from sennit.messages.validators import Check

if TYPE_CHECKING:
    from typing import Self

    from pydantic import BaseModel

Rendered: TypeAlias = str | list[dict[str, Any]]

_set = object.__setattr__


class MessageRole(str, Enum):  # noqa: UP042 (a StrEnum would print as its bare value)
    """The role of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    UNSET = "unset"

    @classmethod
    def allowed(cls) -> tuple[str, ...]:
        """Return the roles that a content can have, as text."""
        return tuple(role.value for role in cls)


class MessageContent:
    """The content of a message: one of the five kinds, or one that a program defines.

    A dataclass that subclasses this is a kind of its own, stored under its `kind`.
    """

    # A cache of the rendered text where it cannot change; no field, so not part of the value.
    __slots__ = ("_cached",)

    role: ClassVar[MessageRole] = MessageRole.UNSET
    kind: ClassVar[str] = ""
    """The name this kind is stored under; by default derived from the class name."""
    _registered: ClassVar[bool] = True
    """Whether stored messages of that name become instances of this class."""
    checks: ClassVar[dict[str, Check]] = {}
    """The fields of this kind, each with the validator that checks and copies its value."""
    _text_field: ClassVar[str | None] = None
    """The field with the plain text, if there is one."""
    _is_text: ClassVar[bool] = True
    """Whether this is text; tool calls and their results are not."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        declare(cls, MessageContent)

    def __new__(cls, *_values: Any, **named: Any) -> Self:
        if "checks" not in cls.__dict__:
            complete(cls, MessageContent)
        # Raise before the generated constructor does, with an error that lists the fields.
        if unknown := named.keys() - cls.checks.keys():
            raise _unknown_fields_error(cls, unknown)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, check in self.checks.items():
            value = getattr(self, name)
            if value is not Unset:
                _set(self, name, check(value, name))
        self._check_combination()

    def __setattr__(self, name: str, value: object) -> None:
        # The constructor of a dataclass that is not declared frozen sets each of its fields once.
        if name not in getattr(self, "__dataclass_fields__", ()) or is_set(self, name):
            refuse_change(self, name)
        _set(self, name, value)

    def __delattr__(self, name: str) -> None:
        refuse_change(self, name)

    def __getstate__(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(cast("Any", self))]

    def __setstate__(self, state: list[Any]) -> None:
        for field, value in zip(fields(cast("Any", self)), state, strict=True):
            _set(self, field.name, value)

    def __hash__(self) -> int:
        return hash((type(self), *(_hashable(getattr(self, name)) for name in self.checks)))

    def _check_combination(self) -> None:
        """Validate combinations of fields."""

    def cache_text(self, text: str) -> str:
        """Cache the rendered text and return it."""
        _cache(self, text)
        return text

    @property
    def rendered(self) -> Rendered:
        """The content as text, or as blocks when it holds images; by default its fields as YAML."""
        if type(self) is MessageContent:
            raise InvalidTypeError("MessageContent is abstract; use one of the five contents.")
        return fields_text(self.record())

    @property
    def rendered_text(self) -> str:
        """The rendering as text, also when it holds images."""
        return blocks_text(self.rendered)

    @property
    def chat_msg(self) -> dict[str, Any]:
        """`{"role": ..., "content": ...}` for a chat API; rendering errors are raised."""
        return {"role": self.role.value, "content": self.rendered}

    @property
    def chat_role(self) -> str:
        """The role in a prompt: "user" for roles that chat APIs do not know."""
        role = self.role
        return "user" if role in (MessageRole.TOOL, MessageRole.UNSET) else role.value

    @property
    def from_user(self) -> bool:
        """True for text that a model reads as the user's."""
        return self._is_text and self.chat_role == "user"

    @property
    def from_assistant(self) -> bool:
        """True for text of the assistant."""
        return self.role is MessageRole.ASSISTANT and self._is_text

    @property
    def empty(self) -> bool:
        """True for text that is blank, which prompts leave out; never for calls and results."""
        return self._is_text and not self.rendered_text.strip()

    @property
    def attachment_urls(self) -> Sequence[str]:
        """The addresses of pictures and files: http(s), `data:`, or references to blobs."""
        return ()

    def with_attachment_urls(self, change: Callable[[str], str]) -> Self:
        """Return this content with each of its `attachment_urls` changed.

        Raises ValidationError for an address that its part may not have.
        """
        del change
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set as plain data, a deep copy."""
        return deepcopy(self.record())

    def record(self) -> dict[str, Any]:
        """Return the fields that are set, sharing lists and dicts: do not change it."""
        record: dict[str, Any] = {}
        for name in self.checks:
            if (value := getattr(self, name)) is not Unset:
                record[name] = value
        return record

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], models: Mapping[str, type[BaseModel]] | None = None
    ) -> Self:
        """Return a content with these fields; on the base class, of the kind they match.

        Raises InvalidTypeError when the fields are not a subset of exactly one kind's fields.
        """
        for value, what in ((data, "fields"), (models or {}, "models")):
            if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidTypeError(f"{what} must be a dict by name, got {short_repr(value)}.")
        kind = _kind_of(data) if cls is MessageContent else cls
        if "checks" not in kind.__dict__:
            complete(kind, MessageContent)
        if unknown := data.keys() - kind.checks.keys():
            raise _unknown_fields_error(kind, unknown)
        return cast("Self", kind(**kind._restore_models(dict(data), models or {})))

    @classmethod
    def _restore_models(
        cls, values: dict[str, Any], models: Mapping[str, type[BaseModel]]
    ) -> dict[str, Any]:
        """Return `values` with stored schemas converted to models; a no-op for most kinds."""
        del models
        return values

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Return the content of a stored `record`, without copying values of the expected type.

        Other values, images and schemas are fully validated.
        """
        content = object.__new__(cls)
        remaining = len(record)
        for name in cls.checks:
            value = record.get(name, Unset) if remaining else Unset
            if value is not Unset:
                if type(value) is not _SHAPES.get(name) and name != "result":
                    return cls.from_dict(record)
                remaining -= 1
            _set(content, name, value)
        if remaining:
            raise _unknown_fields_error(cls, record.keys() - cls.checks.keys())
        return content

    def with_updates(
        self,
        copy_containers: Literal["none", "shallow", "deep"] = "none",
        **updates: object,
    ) -> Self:
        """Return a new content with some fields changed; None resets one to its default.

        Other fields are shared with this content, or copied according to `copy_containers`.
        Raises InvalidTypeError (a TypeError) for an unknown field.
        """
        if unknown := updates.keys() - self.checks.keys():
            raise _unknown_fields_error(type(self), unknown)
        if copy_containers not in tuple(_COPIES):
            raise ValidationError(
                f"copy_containers must be one of {listed(_COPIES)}, got "
                f"{short_repr(copy_containers)}."
            )
        copier = _COPIES[copy_containers]
        values: dict[str, Any] = {}
        for name, check in self.checks.items():
            if name not in updates:
                values[name] = copier(getattr(self, name))
            elif (value := updates[name]) is not None and value is not Unset:
                values[name] = check(value, name)
            else:
                default = default_of(type(self), name)
                values[name] = default if default is Unset else check(default, name)
        updated = self.replaced(**values)
        updated._check_combination()
        return updated

    @property
    def words(self) -> str:
        """The plain text without headings; for a call or result, its whole rendering."""
        if self._text_field is None:
            return self.rendered_text
        return getattr(self, self._text_field) or ""

    def says_the_same(self, other: MessageContent) -> bool:
        """Return whether both have the same stored form."""
        return self.kind == other.kind and dumps(self.record()) == dumps(other.record())

    def with_text(self, text: str) -> Self:
        """Return this content with another text; raises ValidationError for a kind without."""
        if self._text_field is None:
            raise ValidationError(f"A {self.kind} has no text to replace; pass a new content.")
        return self.with_updates("none", **{self._text_field: text})

    def replaced(self, **values: object) -> Self:
        """Return a new content with these fields changed, without validation or copies."""
        content = object.__new__(type(self))
        for name in self.checks:
            _set(content, name, getattr(self, name))
        for name, value in values.items():
            _set(content, name, value)
        return content


_cache = cast("Any", MessageContent)._cached.__set__  # half the time that object.__setattr__ takes


def _hashable(value: Any) -> Any:
    """Return a hashable stand-in for a value; equal values have equal ones."""
    if type(value) is dict:
        pairs = cast("dict[str, Any]", value).items()
        return frozenset((name, _hashable(item)) for name, item in pairs)
    if type(value) is list:
        return tuple(map(_hashable, cast("list[Any]", value)))
    return value if isinstance(value, Hashable) else type(value)  # pyright: ignore[reportUnknownVariableType]


def _identity(value: Any) -> Any:
    return value


def _shallow(value: Any) -> Any:
    # Classes and functions are not copied.
    return copy(value) if type(value) in (list, dict) else value


def _deep(value: Any) -> Any:
    return deepcopy(value) if type(value) in (list, dict) else value


# Fields whose stored value needs no validation beyond its type.
_SHAPES: dict[str, type] = {
    "system_message": str,
    "system_datetime": str,
    "instruction": str,
    "context": list,
    "assistant_response": str,
    "reasoning": str,
    "function": str,
    "arguments": dict,
    "call_id": str,
    "request_id": str,
    "error": str,
}

_COPIES: dict[str, Callable[[Any], Any]] = {"none": _identity, "shallow": _shallow, "deep": _deep}


_K = TypeVar("_K", bound=MessageContent)


def register(kind: type[_K]) -> type[_K]:
    """Register a class as one of the five built-in kinds and freeze it."""
    freeze(kind)
    BUILT_IN.add(kind.kind)
    return kind


def _kind_of(data: Mapping[str, Any]) -> type[MessageContent]:
    """Return the built-in kind that has all these fields; an instruction for none."""
    if not data:
        return CONTENT_KINDS["instruction"]
    kinds = [kind for name, kind in CONTENT_KINDS.items() if name in BUILT_IN]
    for kind in kinds:
        if data.keys() <= kind.checks.keys():
            return kind
    choices = "; ".join(f"{kind.__name__}: {', '.join(kind.checks)}" for kind in kinds)
    raise InvalidTypeError(
        f"The fields {listed(data)} do not match exactly one content type ({choices})."
    )


def _unknown_fields_error(kind: type[MessageContent], unknown: set[str]) -> InvalidTypeError:
    return InvalidTypeError(
        f"{kind.__name__} has no field {', '.join(map(repr, sorted(map(str, unknown))))}; "
        f"it has {', '.join(kind.checks)}."
    )
