"""The five kinds of thing a message can say.

Each is a frozen, slotted dataclass whose type decides the role. What is set is checked when it is
made (in the constructor, so there is no way around it) and copied, so a content never changes and
can always be stored. `Unset` is a field nobody set; None means Unset too, except as the result of a
tool, which may truly be None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast

from sennit import clock
from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.messages import fields, render
from sennit.messages.codec import dumps
from sennit.messages.fields import Check
from sennit.messages.models import ModelSchema, is_model, model_name, model_schema
from sennit.messages.plain import plain, text
from sennit.messages.unset import MaybeUnset, Unset

if TYPE_CHECKING:
    from typing import Self

    from pydantic import BaseModel

    from sennit.messages.models import Model

ImageDetail: TypeAlias = Literal["low", "high", "auto"]
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
    """What a message says; one of the five kinds below."""

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
        for name, value in record.items():
            if type(value) is not _SHAPES.get(name) and name != "result":
                return cls.from_dict(record)
        if not record.keys() <= cls.checks.keys():
            raise _unknown_fields(cls, record.keys() - cls.checks.keys())
        made = object.__new__(cls)
        for name in cls.checks:
            _set(made, name, record.get(name, Unset))
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


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SystemContent(MessageContent):
    """How the model should behave, with an optional time."""

    role: ClassVar[MessageRole] = MessageRole.SYSTEM
    kind: ClassVar[str] = "system"
    _words: ClassVar[str | None] = "system_message"
    checks: ClassVar[dict[str, Check]] = {
        "system_message": fields.words,
        "system_datetime": fields.moment,
        "datetime_factory": fields.factory,
    }

    system_message: MaybeUnset[str] = Unset
    system_datetime: MaybeUnset[str | Literal[True]] = Unset
    """A time as text, or True for the time of rendering."""
    datetime_factory: MaybeUnset[Callable[[], str]] = Unset
    """Called at each rendering; what it gives is what gets stored."""

    @classmethod
    def create(
        cls,
        system_message: str | None = None,
        system_datetime: str | Literal[True] | None = None,
        datetime_factory: Callable[[], str] | None = None,
    ) -> SystemContent:
        """A SystemContent in which None leaves a field unset."""
        return cls(
            **_given(
                system_message=system_message,
                system_datetime=system_datetime,
                datetime_factory=datetime_factory,
            )
        )

    @property
    def empty(self) -> bool:
        """Whether neither a text nor a time is set."""
        dated = self.system_datetime or self.datetime_factory is not Unset
        return not (self.system_message or dated)

    def says_the_same(self, other: MessageContent) -> bool:
        """Whether both would be stored alike; a time that a function gives is not compared."""
        if isinstance(other, SystemContent) and (self.datetime_factory or other.datetime_factory):
            return self.system_message == other.system_message
        return MessageContent.says_the_same(self, other)

    def _check_together(self) -> None:
        if self.system_datetime is not Unset and self.datetime_factory is not Unset:
            raise ValidationError(
                "Cannot set both system_datetime and datetime_factory; leave one of them out."
            )

    @property
    def rendered(self) -> str:
        """The text, below `System Time: ...` when there is a time."""
        said = [f"System Time: {time}"] if (time := self._time()) else []
        if self.system_message:
            said.append(self.system_message)
        return "\n\n".join(said)

    def _time(self) -> str:
        if self.datetime_factory is not Unset:
            return text(self.datetime_factory(), "what datetime_factory returned")
        if self.system_datetime is True:
            return clock.to_datetime(clock.now_us()).isoformat()
        return self.system_datetime or ""

    def record(self) -> dict[str, Any]:
        """The fields that are set; a factory is stored as the time it gives now."""
        record = MessageContent.record(self)
        if record.pop("datetime_factory", None) is not None:
            record["system_datetime"] = self._time()
        return record


@dataclass(frozen=True, slots=True)
class InstructionContent(MessageContent):
    """What the user asks, with context, tools, the shape of the answer and images."""

    role: ClassVar[MessageRole] = MessageRole.USER
    kind: ClassVar[str] = "instruction"
    _words: ClassVar[str | None] = "instruction"
    checks: ClassVar[dict[str, Check]] = {
        "instruction": fields.words,
        "context": fields.items,
        "tool_schemas": fields.tool_schemas,
        "response_model": fields.response_model,
        "images": fields.images,
        "image_detail": fields.image_detail,
    }

    instruction: MaybeUnset[str] = Unset
    context: MaybeUnset[list[Any]] = Unset
    tool_schemas: MaybeUnset[Sequence[type[BaseModel] | ModelSchema | dict[str, Any]]] = Unset
    response_model: MaybeUnset[Model] = Unset
    images: MaybeUnset[list[str]] = Unset
    """http(s) addresses, checked when set."""
    image_detail: MaybeUnset[ImageDetail] = Unset

    @classmethod
    def create(
        cls,
        instruction: str | None = None,
        context: list[Any] | None = None,
        tool_schemas: Sequence[type[BaseModel] | ModelSchema | dict[str, Any]] | None = None,
        response_model: type[BaseModel] | None = None,
        images: list[str] | None = None,
        image_detail: ImageDetail | None = None,
    ) -> InstructionContent:
        """An InstructionContent in which None leaves a field unset."""
        return cls(
            **_given(
                instruction=instruction,
                context=context,
                tool_schemas=tool_schemas,
                response_model=response_model,
                images=images,
                image_detail=image_detail,
            )
        )

    @property
    def text(self) -> str:
        """All that is said in words: instruction, context, tools and the shape of the answer."""
        if self.context is Unset and self.tool_schemas is Unset and self.response_model is Unset:
            return render.spoken(self.instruction) if self.instruction else ""
        return getattr(self, "_cached", None) or self.remember(render.instruction_text(self))

    @property
    def rendered(self) -> Rendered:
        """The text; with images, a text block followed by one block per image."""
        return self.text if self.images is Unset else self._blocks()

    @property
    def empty(self) -> bool:
        """Whether nothing is set that a prompt would show."""
        return not (
            self.instruction
            or self.context
            or self.images
            or self.tool_schemas
            or self.response_model is not Unset
        )

    def _blocks(self) -> Rendered:
        return self.blocks(self.text) if self.images else self.text

    def blocks(self, said: str) -> list[dict[str, Any]]:
        """`said` and the images as content blocks of a chat API."""
        detail = self.image_detail or "auto"
        shown = [
            {"type": "image_url", "image_url": {"url": url, "detail": detail}}
            for url in self.images or ()
        ]
        return [{"type": "text", "text": said}, *shown] if said else shown

    def record(self) -> dict[str, Any]:
        """The fields that are set; a model class becomes its name and JSON schema."""
        record = MessageContent.record(self)
        if self.response_model is not Unset:
            record["response_model"] = _stored(self.response_model)
        if self.tool_schemas is not Unset:
            record["tool_schemas"] = [_stored(schema) for schema in self.tool_schemas]
        return record

    @classmethod
    def _revived(
        cls, values: dict[str, Any], models: Mapping[str, type[BaseModel]]
    ) -> dict[str, Any]:
        if "response_model" in values:
            values["response_model"] = _restored(values["response_model"], models)
        if isinstance(schemas := values.get("tool_schemas"), list):
            values["tool_schemas"] = [
                _restored(item, models) for item in cast("list[Any]", schemas)
            ]
        return values


@dataclass(frozen=True, slots=True)
class AssistantResponseContent(MessageContent):
    """What the model answered in words."""

    role: ClassVar[MessageRole] = MessageRole.ASSISTANT
    kind: ClassVar[str] = "assistant_response"
    _words: ClassVar[str | None] = "assistant_response"
    checks: ClassVar[dict[str, Check]] = {
        "assistant_response": fields.words,
        "reasoning": fields.words,
    }

    assistant_response: MaybeUnset[str] = Unset
    reasoning: MaybeUnset[str] = Unset
    """What a model that thinks aloud said on the way; kept, never sent back."""

    @classmethod
    def create(
        cls, assistant_response: str | None = None, reasoning: str | None = None
    ) -> AssistantResponseContent:
        """An AssistantResponseContent in which None leaves a field unset."""
        return cls(**_given(assistant_response=assistant_response, reasoning=reasoning))

    @property
    def empty(self) -> bool:
        """Whether there is no answer in words."""
        return not self.assistant_response

    @property
    def rendered(self) -> str:
        """The answer as it is; an empty string if unset."""
        return self.assistant_response or ""


@dataclass(frozen=True, slots=True)
class ActionRequestContent(MessageContent):
    """A tool call the model asks for."""

    role: ClassVar[MessageRole] = MessageRole.ASSISTANT
    kind: ClassVar[str] = "action_request"
    checks: ClassVar[dict[str, Check]] = {
        "function": fields.words,
        "arguments": fields.arguments,
        "call_id": fields.words,
    }

    function: MaybeUnset[str] = Unset
    arguments: MaybeUnset[dict[str, Any]] = Unset
    call_id: MaybeUnset[str] = Unset
    """The id by which the provider matches the result to this call."""

    @classmethod
    def create(
        cls,
        function: str | None = None,
        arguments: dict[str, Any] | None = None,
        call_id: str | None = None,
    ) -> ActionRequestContent:
        """An ActionRequestContent in which None leaves a field unset."""
        return cls(**_given(function=function, arguments=arguments, call_id=call_id))

    @property
    def rendered(self) -> str:
        """The function and its arguments as YAML."""
        return getattr(self, "_cached", None) or self.remember(render.action_request_text(self))


@dataclass(frozen=True, slots=True)
class ActionResponseContent(MessageContent):
    """What a tool call gave: a result, which may be None, or an error."""

    role: ClassVar[MessageRole] = MessageRole.TOOL
    kind: ClassVar[str] = "action_response"
    checks: ClassVar[dict[str, Check]] = {
        "request_id": fields.words,
        "result": plain,
        "error": fields.words,
    }

    request_id: MaybeUnset[str] = Unset
    """The call's `call_id`, or the id of the message that asked."""
    result: MaybeUnset[Any] = Unset
    error: MaybeUnset[str] = Unset

    @classmethod
    def create(
        cls, request_id: str | None = None, result: Any | None = None, error: str | None = None
    ) -> ActionResponseContent:
        """An ActionResponseContent in which None leaves a field unset."""
        return cls(**_given(request_id=request_id, result=result, error=error))

    @property
    def success(self) -> bool:
        """True if and only if `error` is unset."""
        return self.error is Unset

    @property
    def rendered(self) -> str:
        """Success, then the result or the error, as YAML."""
        return getattr(self, "_cached", None) or self.remember(render.action_response_text(self))


CONTENT_KINDS: dict[str, type[MessageContent]] = {
    content.kind: content
    for content in (
        SystemContent,
        InstructionContent,
        AssistantResponseContent,
        ActionRequestContent,
        ActionResponseContent,
    )
}


def _refuse_change(self: MessageContent, name: str, *_value: object) -> None:
    raise FrozenInstanceError(
        f"{type(self).__name__} never changes; use with_updates({name}=...) to get another one."
    )


# What dataclasses generate for this fails on names that are no fields (in Python 3.11).
for _kind in CONTENT_KINDS.values():
    setattr(_kind, "__setattr__", _refuse_change)  # noqa: B010 (type checkers protect it)
    setattr(_kind, "__delattr__", _refuse_change)  # noqa: B010


def _kind_of(data: Mapping[str, Any]) -> type[MessageContent]:
    """The one kind all these fields belong to; an empty dict is an empty instruction."""
    if not data:
        return InstructionContent
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


def _stored(schema: Any) -> dict[str, Any]:
    if is_model(schema):
        return {"model": model_name(schema), "schema": model_schema(schema)}
    return {"schema": schema}


def _restored(stored: Any, models: Mapping[str, type[BaseModel]]) -> Any:
    """A model from its stored form, the caller's class if it gave one; else `stored` itself."""
    if not isinstance(stored, dict):
        return stored
    form = cast("dict[str, Any]", stored)
    if form.keys() == {"model", "schema"}:
        name = text(form["model"], "model")
        return models.get(name) or ModelSchema(name, form["schema"])
    return form["schema"] if form.keys() == {"schema"} else form
