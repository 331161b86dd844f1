"""The base class of contents: validated, frozen, serialisable.

Each kind says which fields it has and what checks them (`checks`); everything else follows from
that. For a kind that a program defines itself, the fields of its dataclass say so. All kinds
register in CONTENT_KINDS, by the name they go by in stored messages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy, deepcopy
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from sennit.errors import InvalidTypeError, ValidationError, shown
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

    # The rendered text, once made, where it cannot change. Not a field: it is no part of the value.
    __slots__ = ("_cached",)

    role: ClassVar[MessageRole] = MessageRole.UNSET
    kind: ClassVar[str] = ""
    """The name this kind goes by in stored messages; by default made of the class's name."""
    _registered: ClassVar[bool] = True
    """Whether stored messages of that name become instances of this class."""
    checks: ClassVar[dict[str, Check]] = {}
    """The fields of this kind, each with what checks and copies its value."""
    _words: ClassVar[str | None] = None
    """The field that holds what is said in words."""
    _spoken: ClassVar[bool] = True
    """Whether this is said in words; calls and their results are not."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        declare(cls, MessageContent)

    def __new__(cls, *_values: Any, **named: Any) -> Self:
        if "checks" not in cls.__dict__:
            complete(cls, MessageContent)
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

    def _check_together(self) -> None:
        """Check what no field can check alone."""

    def remember(self, said: str) -> str:
        """Keep how this reads, so that it is not rendered again."""
        _cache(self, said)
        return said

    @property
    def rendered(self) -> Rendered:
        """The content as text, or as blocks when it holds images; by default its fields as YAML."""
        if type(self) is MessageContent:
            raise InvalidTypeError("MessageContent is abstract; use one of the five contents.")
        return fields_text(self.record())

    @property
    def chat_msg(self) -> dict[str, Any]:
        """`{"role": ..., "content": ...}` for a chat API; rendering errors are raised."""
        return {"role": self.role.value, "content": self.rendered}

    @property
    def chat_role(self) -> str:
        """The role in a prompt: that of the content, or "user" where no chat API knows that one."""
        role = self.role
        return "user" if role in (MessageRole.TOOL, MessageRole.UNSET) else role.value

    @property
    def from_user(self) -> bool:
        """True for words that a model reads as the user's."""
        return self._spoken and self.chat_role == "user"

    @property
    def from_assistant(self) -> bool:
        """True for words of the assistant, which answer what was said before."""
        return self.role is MessageRole.ASSISTANT and self._spoken

    @property
    def empty(self) -> bool:
        """True if it says nothing, so that prompts leave it out; calls and results always do."""
        return self._spoken and not blocks_text(self.rendered).strip()

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
        kind = _kind_of(data) if cls is MessageContent else cls
        if "checks" not in kind.__dict__:
            complete(kind, MessageContent)
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
        """A new content with some fields changed; None resets one to its default.

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
                default = default_of(type(self), name)
                values[name] = default if default is Unset else check(default, name)
        updated = self.replaced(**values)
        updated._check_together()
        return updated

    @property
    def words(self) -> str:
        """The bare text; for a call or a result, all of it."""
        if self._words is None:
            return blocks_text(self.rendered)
        return getattr(self, self._words) or ""

    def says_the_same(self, other: MessageContent) -> bool:
        """Return whether both would be stored alike."""
        return self.kind == other.kind and dumps(self.record()) == dumps(other.record())

    def with_text(self, said: str) -> Self:
        """This content with other words; raises ValidationError for a kind that has none."""
        if self._words is None:
            raise ValidationError(f"A {self.kind} has no text to replace; pass a new content.")
        return self.with_updates("none", **{self._words: said})

    def replaced(self, **values: Any) -> Self:
        """A new content with these fields, unchecked and uncopied: for values of other contents."""
        made = object.__new__(type(self))
        for name in self.checks:
            _set(made, name, getattr(self, name))
        for name, value in values.items():
            _set(made, name, value)
        return made


_cache = cast("Any", MessageContent)._cached.__set__  # half the time that object.__setattr__ takes


def _hashable(value: Any) -> Any:
    """Return what a hash of this value is made of; equal values give the same."""
    if type(value) is dict:
        pairs = cast("dict[str, Any]", value).items()
        return frozenset((name, _hashable(item)) for name, item in pairs)
    if type(value) is list:
        return tuple(map(_hashable, cast("list[Any]", value)))
    return value if isinstance(value, Hashable) else type(value)  # pyright: ignore[reportUnknownVariableType]


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


_K = TypeVar("_K", bound=MessageContent)


def register(kind: type[_K]) -> type[_K]:
    """Make a class one of the five kinds, and truly frozen."""
    freeze(kind)
    BUILT_IN.add(kind.kind)
    return kind


def _kind_of(data: Mapping[str, Any]) -> type[MessageContent]:
    """Return the one of the five kinds that has all these fields; without any, an instruction."""
    if not data:
        return CONTENT_KINDS["instruction"]
    kinds = [kind for name, kind in CONTENT_KINDS.items() if name in BUILT_IN]
    for kind in kinds:
        if data.keys() <= kind.checks.keys():
            return kind
    known = "; ".join(f"{kind.__name__}: {', '.join(kind.checks)}" for kind in kinds)
    raise InvalidTypeError(
        f"The fields {sorted(map(str, data))} do not match exactly one content type ({known})."
    )


def _unknown_fields(kind: type[MessageContent], unknown: set[str]) -> InvalidTypeError:
    return InvalidTypeError(
        f"{kind.__name__} has no field {', '.join(map(repr, sorted(map(str, unknown))))}; "
        f"it has {', '.join(kind.checks)}."
    )
