"""The five contents of messages.

Each is a frozen, slotted dataclass whose type determines the role. The constructor validates and
copies all values, so a content is immutable and can always be stored. `Unset` is the value of a
field that was not set; None means Unset too, except as the result of a tool, which may be None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, cast

from sennit import clock
from sennit.errors import ValidationError
from sennit.messages import render, validators
from sennit.messages.content_base import (
    CONTENT_KINDS,
    MessageContent,
    MessageRole,
    Rendered,
    register,
)
from sennit.messages.image_url import image_url
from sennit.messages.json_values import plain, validate_text
from sennit.messages.media import ImageDetail, block_of, part_of_record, part_record
from sennit.messages.opaque_content import OpaqueContent
from sennit.messages.output_schema import ModelSchema, is_model, model_name, model_schema
from sennit.messages.unset import MaybeUnset, Unset, or_unset
from sennit.messages.validators import Check

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from pydantic import BaseModel

    from sennit.messages.media import AudioPart, FilePart, ImagePart
    from sennit.messages.output_schema import Model

__all__ = [
    "CONTENT_KINDS",
    "ActionRequestContent",
    "ActionResponseContent",
    "AssistantResponseContent",
    "Content",
    "ImageDetail",
    "InstructionContent",
    "MessageContent",
    "MessageRole",
    "Rendered",
    "SystemContent",
]

MediaInput: TypeAlias = "ImagePart | FilePart | AudioPart | Mapping[str, Any] | Path | str"
"""A picture, a file or a recording: a part, its record, a path, or a URL."""

_set = object.__setattr__


@register
@dataclass(frozen=True, slots=True)
class SystemContent(MessageContent):
    """The system message, with an optional time."""

    role: ClassVar[MessageRole] = MessageRole.SYSTEM
    kind: ClassVar[str] = "system"
    _text_field: ClassVar[str | None] = "system_message"
    checks: ClassVar[dict[str, Check]] = {
        "system_message": validators.words,
        "system_datetime": validators.moment,
        "datetime_factory": validators.factory,
    }

    system_message: MaybeUnset[str] = Unset
    """The text of the system message."""
    system_datetime: MaybeUnset[str | Literal[True]] = Unset
    """A time as text, or True for the time of rendering."""
    datetime_factory: MaybeUnset[Callable[[], str]] = Unset
    """Called on each rendering; its result at the time of writing is stored."""

    @classmethod
    def create(
        cls,
        system_message: str | None = None,
        system_datetime: str | Literal[True] | None = None,
        datetime_factory: Callable[[], str] | None = None,
    ) -> SystemContent:
        """Create a SystemContent; None leaves a field unset."""
        return cls(or_unset(system_message), or_unset(system_datetime), or_unset(datetime_factory))

    @property
    def empty(self) -> bool:
        """True if neither a text nor a time is set."""
        dated = self.system_datetime or self.datetime_factory is not Unset
        return not (self.system_message or dated)

    def says_the_same(self, other: MessageContent) -> bool:
        """Return whether both have the same stored form; times of a factory are ignored."""
        if isinstance(other, SystemContent) and (self.datetime_factory or other.datetime_factory):
            return self.system_message == other.system_message
        return MessageContent.says_the_same(self, other)

    def _check_combination(self) -> None:
        if self.system_datetime is not Unset and self.datetime_factory is not Unset:
            raise ValidationError(
                "Cannot set both system_datetime and datetime_factory; leave one of them out."
            )

    @property
    def rendered(self) -> str:
        """The text, below `System Time: ...` when there is a time."""
        sections = [f"System Time: {time}"] if (time := self._time()) else []
        if self.system_message:
            sections.append(self.system_message)
        return "\n\n".join(sections)

    def _time(self) -> str:
        if self.datetime_factory is not Unset:
            return validate_text(self.datetime_factory(), "what datetime_factory returned")
        if self.system_datetime is True:
            return clock.to_datetime(clock.now_us()).isoformat()
        return self.system_datetime or ""

    def record(self) -> dict[str, Any]:
        """Return the fields that are set; a factory becomes the time it returns now."""
        record = MessageContent.record(self)
        if record.pop("datetime_factory", None) is not None:
            record["system_datetime"] = self._time()
        return record


@register
@dataclass(frozen=True, slots=True)
class InstructionContent(MessageContent):
    """A user's instruction with context, tools, an output schema, images and files."""

    role: ClassVar[MessageRole] = MessageRole.USER
    kind: ClassVar[str] = "instruction"
    _text_field: ClassVar[str | None] = "instruction"
    checks: ClassVar[dict[str, Check]] = {
        "instruction": validators.words,
        "context": validators.items,
        "tool_schemas": validators.tool_schemas,
        "response_model": validators.response_model,
        "images": validators.images,
        "image_detail": validators.image_detail,
        "files": validators.files,
    }

    instruction: MaybeUnset[str] = Unset
    """The text of the instruction."""
    context: MaybeUnset[list[Any]] = Unset
    """Further information for the model, item by item."""
    tool_schemas: MaybeUnset[Sequence[type[BaseModel] | ModelSchema | dict[str, Any]]] = Unset
    """The tools described in the instruction."""
    response_model: MaybeUnset[Model] = Unset
    """The model or schema of the expected answer."""
    images: MaybeUnset[list[str]] = Unset
    """http(s) addresses, `data:` URLs or references to blobs, checked when set."""
    image_detail: MaybeUnset[ImageDetail] = Unset
    """The resolution that a model should use for the images."""
    files: MaybeUnset[list[dict[str, Any]]] = Unset
    """Files and recordings, each as a dict with `type`, `url` and `media_type`."""

    @classmethod
    def create(
        cls,
        instruction: str | None = None,
        context: list[Any] | None = None,
        tool_schemas: Sequence[type[BaseModel] | ModelSchema | dict[str, Any]] | None = None,
        response_model: type[BaseModel] | None = None,
        images: list[str] | None = None,
        image_detail: ImageDetail | None = None,
        files: Sequence[MediaInput] | None = None,
    ) -> InstructionContent:
        """Create an InstructionContent; None leaves a field unset."""
        return cls(
            or_unset(instruction),
            or_unset(context),
            or_unset(tool_schemas),
            or_unset(response_model),
            or_unset(images),
            or_unset(image_detail),
            cast("Any", or_unset(files)),
        )

    @property
    def rendered_text(self) -> str:
        """The instruction, context, tools and response format as text, without images and files."""
        if self.context is Unset and self.tool_schemas is Unset and self.response_model is Unset:
            return render.instruction_section(self.instruction) if self.instruction else ""
        return getattr(self, "_cached", None) or self.cache_text(render.instruction_text(self))

    @property
    def rendered(self) -> Rendered:
        """The text; with images or files, a text block followed by one block for each."""
        return self.blocks(self.rendered_text) if self.has_media else self.rendered_text

    @property
    def has_media(self) -> bool:
        """True if there are images, files or recordings."""
        return bool(self.images or self.files)

    @property
    def empty(self) -> bool:
        """True if nothing is set that a prompt would show."""
        return not (
            self.instruction
            or self.context
            or self.has_media
            or self.tool_schemas
            or self.response_model is not Unset
        )

    def blocks(self, text: str) -> list[dict[str, Any]]:
        """Return `text`, the images and the files as content blocks of a chat API."""
        detail = self.image_detail or "auto"
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks += (
            {"type": "image_url", "image_url": {"url": url, "detail": detail}}
            for url in self.images or ()
        )
        blocks += (block_of(part_of_record(file)) for file in self.files or ())
        return blocks

    @property
    def attachment_urls(self) -> Sequence[str]:
        """The addresses of its images and files."""
        if self.files is Unset:
            return () if self.images is Unset else self.images
        return [*(self.images or ()), *(file["url"] for file in self.files)]

    def with_attachment_urls(self, change: Callable[[str], str]) -> Self:
        """Return this content with each of its addresses changed; raises ValidationError."""
        if not self.has_media:
            return self
        images = [image_url(change(url)) for url in self.images] if self.images else self.images
        return self.replaced(images=images, files=_changed_files(self.files, change))

    def record(self) -> dict[str, Any]:
        """Return the fields that are set; a model class becomes its name and JSON schema."""
        record = MessageContent.record(self)
        if self.response_model is not Unset:
            record["response_model"] = _schema_record(self.response_model)
        if self.tool_schemas is not Unset:
            record["tool_schemas"] = [_schema_record(schema) for schema in self.tool_schemas]
        return record

    @classmethod
    def _restore_models(
        cls, values: dict[str, Any], models: Mapping[str, type[BaseModel]]
    ) -> dict[str, Any]:
        if "response_model" in values:
            values["response_model"] = _restore_schema(values["response_model"], models)
        if isinstance(schemas := values.get("tool_schemas"), list):
            values["tool_schemas"] = [
                _restore_schema(item, models) for item in cast("list[Any]", schemas)
            ]
        return values


@register
@dataclass(frozen=True, slots=True)
class AssistantResponseContent(MessageContent):
    """The text of a model's answer."""

    role: ClassVar[MessageRole] = MessageRole.ASSISTANT
    kind: ClassVar[str] = "assistant_response"
    _text_field: ClassVar[str | None] = "assistant_response"
    checks: ClassVar[dict[str, Check]] = {
        "assistant_response": validators.words,
        "reasoning": validators.words,
    }

    assistant_response: MaybeUnset[str] = Unset
    """The text of the answer."""
    reasoning: MaybeUnset[str] = Unset
    """The reasoning text of the model; stored, never sent back."""

    @classmethod
    def create(
        cls, assistant_response: str | None = None, reasoning: str | None = None
    ) -> AssistantResponseContent:
        """Create an AssistantResponseContent; None leaves a field unset."""
        return cls(or_unset(assistant_response), or_unset(reasoning))

    @property
    def empty(self) -> bool:
        """True if there is no text."""
        return not self.assistant_response

    @property
    def rendered(self) -> str:
        """The text; an empty string if unset."""
        return self.assistant_response or ""


@register
@dataclass(frozen=True, slots=True)
class ActionRequestContent(MessageContent):
    """A tool call the model asks for."""

    role: ClassVar[MessageRole] = MessageRole.ASSISTANT
    kind: ClassVar[str] = "action_request"
    _is_text: ClassVar[bool] = False
    checks: ClassVar[dict[str, Check]] = {
        "function": validators.words,
        "arguments": validators.arguments,
        "call_id": validators.words,
    }

    function: MaybeUnset[str] = Unset
    """The name of the tool."""
    arguments: MaybeUnset[dict[str, Any]] = Unset
    """The arguments by name."""
    call_id: MaybeUnset[str] = Unset
    """The id by which the provider matches the result to this call."""

    @classmethod
    def create(
        cls,
        function: str | None = None,
        arguments: dict[str, Any] | None = None,
        call_id: str | None = None,
    ) -> ActionRequestContent:
        """Create an ActionRequestContent; None leaves a field unset."""
        return cls(or_unset(function), or_unset(arguments), or_unset(call_id))

    @property
    def rendered(self) -> str:
        """The function and its arguments as YAML."""
        return render.action_request_text(self)  # faster than a cache lookup


@register
@dataclass(frozen=True, slots=True)
class ActionResponseContent(MessageContent):
    """The outcome of a tool call: a result, which may be None, or an error."""

    role: ClassVar[MessageRole] = MessageRole.TOOL
    kind: ClassVar[str] = "action_response"
    _is_text: ClassVar[bool] = False
    checks: ClassVar[dict[str, Check]] = {
        "request_id": validators.words,
        "result": plain,
        "error": validators.words,
        "files": validators.media,
    }

    request_id: MaybeUnset[str] = Unset
    """The `call_id` of the call, or the id of its message."""
    result: MaybeUnset[Any] = Unset
    """The result, if the call succeeded."""
    error: MaybeUnset[str] = Unset
    """The reason, if the call failed."""
    files: MaybeUnset[list[dict[str, Any]]] = Unset
    """Pictures, files and recordings of the result, each as a dict with `type` and `url`."""

    @classmethod
    def create(
        cls,
        request_id: str | None = None,
        result: Any | None = None,
        error: str | None = None,
        files: Sequence[MediaInput] | None = None,
    ) -> ActionResponseContent:
        """Create an ActionResponseContent; None leaves a field unset."""
        return cls(
            or_unset(request_id),
            or_unset(result),
            or_unset(error),
            cast("Any", or_unset(files)),
        )

    @property
    def attachment_urls(self) -> Sequence[str]:
        """The addresses of its pictures and files."""
        return [file["url"] for file in self.files or ()]

    def with_attachment_urls(self, change: Callable[[str], str]) -> Self:
        """Return this content with each of its addresses changed; raises ValidationError."""
        return self.replaced(files=_changed_files(self.files, change)) if self.files else self

    @property
    def success(self) -> bool:
        """True if and only if `error` is unset."""
        return self.error is Unset

    @property
    def rendered(self) -> str:
        """Success, then the result or the error, as YAML."""
        return getattr(self, "_cached", None) or self.cache_text(render.action_response_text(self))


Content: TypeAlias = (
    SystemContent
    | InstructionContent
    | AssistantResponseContent
    | ActionRequestContent
    | ActionResponseContent
    | OpaqueContent
    | MessageContent
)
"""The content of a message: one of the five, an unknown one, or one that a program defines."""


def _changed_files(
    files: MaybeUnset[list[dict[str, Any]]], change: Callable[[str], str]
) -> MaybeUnset[list[dict[str, Any]]]:
    return files and [
        part_record(part_of_record({**file, "url": change(file["url"])})) for file in files
    ]


def _schema_record(schema: Any) -> dict[str, Any]:
    if is_model(schema):
        return {"model": model_name(schema), "schema": model_schema(schema)}
    return {"schema": schema}


def _restore_schema(stored: Any, models: Mapping[str, type[BaseModel]]) -> Any:
    """Return the model of a stored schema, from `models` if it is there."""
    if not isinstance(stored, dict):
        return stored
    record = cast("dict[str, Any]", stored)
    if record.keys() == {"model", "schema"}:
        name = validate_text(record["model"], "model")
        return models.get(name) or ModelSchema(name, record["schema"])
    return record["schema"] if record.keys() == {"schema"} else record
