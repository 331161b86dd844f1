"""What all contents have in common: checked when made, frozen, stored and read back alike.

Each kind says which fields it has and what checks them (`checks`); everything else follows from
that. The kinds register in CONTENT_KINDS, by the name they go by in stored messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.messages.codec import dumps
from sennit.messages.fields import Check
from sennit.messages.unset import Unset

if TYPE_CHECKING:
    from typing import Self

    from pydantic import BaseModel

Rendered: TypeAlias = str | list[dict[str, Any]]

_set = object.__setattr__


class MessageRole(str, Enum):  # noqa: UP042 (a StrEnum would print as its bare value)
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    UNSET = "unset"


@dataclass(frozen=True)
class MessageContent:
    """What a message says; one of the five kinds."""

    # The rendered text, once made, where it cannot change. Not a field: it is no part of the value.
    __slots__ = ("_cached",)

    role: ClassVar[MessageRole] = MessageRole.UNSET
    kind: ClassVar[str] = ""
    """The name this kind goes by in stored messages."""
    checks: ClassVar[dict[str, Check]] = {}
    """The fields of this kind, each with what checks and copies its value."""
    _words: ClassVar[str | None] = None
    """The field that holds what is said in words."""

    def __new__(cls, *_values: Any, **named: Any) -> Self:
        # Before the generated constructor complains: an error of ours that lists the fields.
        if unknown := named.keys() - cls.checks.keys():
            raise _unknown_fields(cls, unknown)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, check in self.checks.items():
            value = getattr(self, name)
            if value is not Unset:
                _set(self, name, check(value, name))
        self._check_together()

    def _check_together(self) -> None:
        """Check what no field can check alone."""

    def remember(self, said: str) -> str:
        """Keep how this reads, so that it is not rendered again."""
        _set(self, "_cached", said)
        return said

    @property
    def rendered(self) -> Rendered:
        """The content as text, or as blocks when it holds images."""
        raise InvalidTypeError("MessageContent has nothing to say; use one of the five kinds.")

    @property
    def chat_msg(self) -> dict[str, Any]:
        """`{"role": ..., "content": ...}` for a chat API; rendering errors are raised."""
        return {"role": self.role.value, "content": self.rendered}

    @property
    def empty(self) -> bool:
        """Whether it says nothing, so that prompts leave it out; calls and results always do."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, as plain data of the caller's own."""
        return deepcopy(self.record())

    def record(self) -> dict[str, Any]:
        """Like `to_dict`, but sharing lists and dicts with this content: for reading only."""
        record: dict[str, Any] = {}
        for name in self.checks:
            if (value := getattr(self, name)) is not Unset:
                record[name] = value
        return record

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], models: Mapping[str, type[BaseModel]] | None = None
    ) -> Self:
        """The content with these fields; on the base class, the kind they belong to.

        Raises InvalidTypeError when the fields are not a subset of exactly one kind's fields.
        """
        for given, what in ((data, "fields"), (models or {}, "models")):
            if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidTypeError(f"{what} must be a dict by name, got {shown(given)}.")
        kind = cls if cls.checks else _kind_of(data)
        if unknown := data.keys() - kind.checks.keys():
            raise _unknown_fields(kind, unknown)
        return cast("Self", kind(**kind._revived(dict(data), models or {})))

    @classmethod
    def _revived(
        cls, values: dict[str, Any], models: Mapping[str, type[BaseModel]]
    ) -> dict[str, Any]:
        """`values` with stored schemas turned into models; most kinds hold none."""
        del models
        return values

    @classmethod
    def restored(cls, record: dict[str, Any]) -> Self:
        """The content whose `record` a store kept; what has its proper shape is not copied.

        Anything else, and what needs more than a glance (images, schemas), is checked as if new.
        """
        made = object.__new__(cls)
        left = len(record)
        for name in cls.checks:
            value = record.get(name, Unset) if left else Unset
            if value is not Unset:
                if type(value) is not _SHAPES.get(name) and name != "result":
                    return cls.from_dict(record)
                left -= 1
            _set(made, name, value)
        if left:
            raise _unknown_fields(cls, record.keys() - cls.checks.keys())
        return made

    def with_updates(
        self,
        copy_containers: Literal["none", "shallow", "deep"] = "none",
        **updates: Any,
    ) -> Self:
        """A new content with some fields changed; None unsets one.

        What is not updated is shared with this content, or copied as `copy_containers` says.
        Raises InvalidTypeError (a TypeError) for an unknown field.
        """
        if unknown := updates.keys() - self.checks.keys():
            raise _unknown_fields(type(self), unknown)
        if copy_containers not in tuple(_COPIES):
            raise ValidationError(
                f"copy_containers must be one of {sorted(_COPIES)}, got {shown(copy_containers)}."
            )
        copied = _COPIES[copy_containers]
        values: dict[str, Any] = {}
        for name, check in self.checks.items():
            if name not in updates:
                values[name] = copied(getattr(self, name))
            elif (value := updates[name]) is not None and value is not Unset:
                values[name] = check(value, name)
            else:
                values[name] = Unset
        updated = self.replaced(**values)
        updated._check_together()
        return updated

    @property
    def words(self) -> str:
        """What is said in words, bare; for a call or a result, all of it."""
        if self._words is None:
            return str(self.rendered)
        return getattr(self, self._words) or ""

    def says_the_same(self, other: MessageContent) -> bool:
        """Whether both would be stored alike."""
        return self.kind == other.kind and dumps(self.record()) == dumps(other.record())

    def with_text(self, said: str) -> Self:
        """This content with other words; raises ValidationError for a kind that has none."""
        if self._words is None:
            raise ValidationError(f"A {self.kind} is not made of words; give a whole new content.")
        return self.with_updates("none", **{self._words: said})

    def replaced(self, **values: Any) -> Self:
        """A new content with these fields, unchecked and uncopied: for values of other contents."""
        made = object.__new__(type(self))
        for name in self.checks:
            _set(made, name, getattr(self, name))
        for name, value in values.items():
            _set(made, name, value)
        return made


def _same(value: Any) -> Any:
    return value


def _shallow(value: Any) -> Any:
    # Only fields that hold containers hold lists and dicts; a class or function is left as it is.
    return copy(value) if type(value) in (list, dict) else value


def _deep(value: Any) -> Any:
    return deepcopy(value) if type(value) in (list, dict) else value


# What the JSON of a field is, where looking at its type is enough.
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

_COPIES: dict[str, Callable[[Any], Any]] = {"none": _same, "shallow": _shallow, "deep": _deep}


CONTENT_KINDS: dict[str, type[MessageContent]] = {}
"""All kinds of content, by name."""

_K = TypeVar("_K", bound=MessageContent)


def register(kind: type[_K]) -> type[_K]:
    """Make a class one of the kinds, and truly frozen."""
    # What dataclasses generate for this fails on names that are no fields (in Python 3.11).
    setattr(kind, "__setattr__", _refuse_change)  # noqa: B010 (type checkers protect it)
    setattr(kind, "__delattr__", _refuse_change)  # noqa: B010
    CONTENT_KINDS[kind.kind] = kind
    return kind


def _refuse_change(self: MessageContent, name: str, *_value: object) -> None:
    raise FrozenInstanceError(
        f"{type(self).__name__} never changes; use with_updates({name}=...) to get another one."
    )


def _kind_of(data: Mapping[str, Any]) -> type[MessageContent]:
    """The one kind all these fields belong to; an empty dict is an empty instruction."""
    if not data:
        return CONTENT_KINDS["instruction"]
    for kind in CONTENT_KINDS.values():
        if data.keys() <= kind.checks.keys():
            return kind
    fields = "; ".join(
        f"{kind.__name__}: {', '.join(kind.checks)}" for kind in CONTENT_KINDS.values()
    )
    raise InvalidTypeError(
        f"The fields {sorted(map(str, data))} belong to no single kind of content ({fields})."
    )


def _unknown_fields(kind: type[MessageContent], unknown: set[str]) -> InvalidTypeError:
    return InvalidTypeError(
        f"{kind.__name__} has no field {', '.join(map(repr, sorted(map(str, unknown))))}; "
        f"it has {', '.join(kind.checks)}."
    )
