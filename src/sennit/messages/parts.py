"""Parts: a view of messages as lists of text, images, files, contexts and tool calls.

Chat APIs treat one message as a list of parts: text, images, files, used contexts, tool calls with
their results. Sennit stores canonical messages, each with one content. `split` converts parts to
messages and `MessageGroup.of` converts them back without loss: the members of a group carry its id
and their index in their metadata. A message without these is a group of its own, named after it. A
part is a pure value that knows nothing of storage.

One member has a text, then images, then files, then contexts, in this order; a part that cannot
follow the previous one starts a new member. So the order of parts need not be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast, get_args
from uuid import UUID

from sennit import clock
from sennit.errors import (
    CodecError,
    InvalidTypeError,
    ValidationError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.ids import new_id
from sennit.messages.codec import dumps, loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    SystemContent,
)
from sennit.messages.json_values import plain, plain_dict, validate_text
from sennit.messages.media import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    media_part,
    part_of_record,
    part_record,
)
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.unset import MaybeUnset, Unset

GroupRole: TypeAlias = Literal["user", "assistant", "system"]
_GROUP_ROLES: tuple[GroupRole, ...] = get_args(GroupRole)

_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text."""

    text: str
    """The text."""

    def __post_init__(self) -> None:
        _set(self, "text", validate_text(self.text, "TextPart.text"))


@dataclass(frozen=True, slots=True)
class ContextPart:
    """A context that was used, by its URI."""

    uri: str
    """The address of what was retrieved."""
    abstract: str = ""
    """One line about it."""

    def __post_init__(self) -> None:
        _set(self, "uri", validate_text(self.uri, "ContextPart.uri"))
        if not self.uri:
            raise ValidationError("ContextPart.uri must not be empty.")
        _set(self, "abstract", validate_text(self.abstract, "ContextPart.abstract"))


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A tool call, with its output or error once it has ended."""

    name: str
    """The name of the tool."""
    input: dict[str, Any]
    """The arguments by name."""
    output: MaybeUnset[Any] = Unset
    """The result, if there is one."""
    error: MaybeUnset[str | None] = Unset
    """The reason, if the call failed."""
    tool_id: str | None = None
    """The id of the call; None for a generated one."""
    files: tuple[MediaPart, ...] = ()
    """Pictures, files and recordings of the result."""

    def __post_init__(self) -> None:
        _set(self, "name", validate_text(self.name, "ToolPart.name"))
        _set(self, "input", plain_dict(self.input, "ToolPart.input"))
        if self.output is not Unset:
            _set(self, "output", plain(self.output, "ToolPart.output"))
        if self.error is None:
            _set(self, "error", Unset)
        elif self.error is not Unset:
            _set(self, "error", validate_text(self.error, "ToolPart.error"))
        if self.tool_id is not None:
            _set(self, "tool_id", validate_text(self.tool_id, "ToolPart.tool_id"))
        _set(self, "files", tuple(map(media_part, self.files)))


Part: TypeAlias = TextPart | ContextPart | ToolPart | ImagePart | FilePart | AudioPart

_PARTS: dict[str, type[Part]] = {
    "text": TextPart,
    "context": ContextPart,
    "tool": ToolPart,
    "image": ImagePart,
    "file": FilePart,
    "audio": AudioPart,
}
_PART_NAMES = {kind: name for name, kind in _PARTS.items()}


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """The parts of one message, and the messages that store them."""

    id: str
    """`msg_` and a UUID."""
    role: GroupRole
    """The role of the group."""
    parts: tuple[Part, ...]
    """The parts, in order."""
    created_at: datetime
    """The time of the first message."""
    messages: tuple[Message, ...] = field(default=(), repr=False, compare=False)
    """The messages that the parts were stored as."""

    @classmethod
    def of(cls, messages: Iterable[Message]) -> MessageGroup:
        """Return the group of these messages; raises ValidationError if they are not one group."""
        messages = list(messages)
        marks = {mark[:2] for mark in map(_mark, messages)}
        if len(marks) != 1:
            raise ValidationError(f"Expected the messages of one group, got {len(marks)} groups.")
        [(id, role)] = marks
        ordered = tuple(sorted(messages, key=lambda message: _mark(message)[2]))
        if [_mark(message)[2] for message in ordered] != list(range(len(ordered))):
            raise ValidationError(f"Group {id} has missing or duplicate messages.")
        created_at = _milliseconds(ordered[0].created_at)
        return cls(id, role, tuple(_join_parts(ordered)), created_at, ordered)

    def to_json(self) -> str:
        """Return one line of JSON: id, role, parts, created_at in milliseconds."""
        moment = clock.to_iso(clock.from_datetime(self.created_at), "milliseconds")
        return dumps(
            {
                "id": self.id,
                "role": self.role,
                "parts": [part_to_dict(part) for part in self.parts],
                "created_at": moment,
            }
        ).decode()

    @classmethod
    def from_json(cls, line: str | bytes, sender: SenderRecipient | None = None) -> MessageGroup:
        """Return the group that `to_json` wrote; raises CodecError if the line is invalid."""
        data = loads(line)
        if not isinstance(data, dict) or data.keys() != {"id", "role", "parts", "created_at"}:
            raise CodecError("A group is a JSON object with id, role, parts and created_at.")
        stored = cast("dict[str, Any]", data)
        if not isinstance(stored["parts"], list):
            raise CodecError(f"The parts of a group are a list, got {short_repr(stored['parts'])}.")
        parts = [part_from_dict(part) for part in cast("list[Any]", stored["parts"])]
        return split(
            stored["role"],
            parts,
            sender=sender,
            id=_group_id(stored["id"]),
            created_at=clock.from_iso(stored["created_at"]),
        )


def part_to_dict(part: Part) -> dict[str, Any]:
    """Return a part as plain data, with its `type`."""
    fields: dict[str, Any] = {"type": _PART_NAMES[type(part)]}
    for name in type(part).__slots__:
        value = getattr(part, name)
        if name == "files":
            if value:
                fields[name] = [part_record(file) for file in value]
        elif value is not Unset and not (name in ("tool_id", "name") and value is None):
            fields[name] = value
    return fields


def part_from_dict(data: object) -> Part:
    """Return the part that `part_to_dict` wrote; raises CodecError if it is invalid."""
    if not isinstance(data, dict):
        raise CodecError(f"A part is a JSON object, got {short_repr(data)}.")
    fields = dict(cast("dict[str, Any]", data))
    kind = _PARTS.get(str(fields.pop("type", None)))
    if kind is None:
        raise CodecError(f"Unknown part type in {short_repr(fields)}; known are {listed(_PARTS)}.")
    if wrong := fields.keys() - set(kind.__slots__):
        raise CodecError(f"A {kind.__name__} has no field {', '.join(map(short_repr, wrong))}.")
    try:
        return kind(**fields)
    except TypeError as error:
        raise CodecError(f"A {kind.__name__} has a missing or invalid field: {error}.") from error


def split(
    role: GroupRole,
    parts: str | Part | Iterable[str | Part],
    *,
    sender: SenderRecipient | None = None,
    id: str | None = None,
    created_at: datetime | None = None,
) -> MessageGroup:
    """Convert parts to a group of canonical messages; raises ValidationError."""
    if role not in _GROUP_ROLES:
        raise ValidationError(
            f"role must be 'user', 'assistant' or 'system', got {short_repr(role)}."
            f"{did_you_mean(role, _GROUP_ROLES)}"
        )
    part_list = _as_part_list(parts)
    if role == "system":
        return _system_group(part_list, created_at)
    if (
        id is None
        and created_at is None
        and len(part_list) == 1
        and isinstance(part_list[0], TextPart)
    ):
        return _single_text_group(role, part_list[0], sender)
    moment = _milliseconds(created_at)
    members: list[_Member] = []
    for part in part_list:
        _add_part(part, role, members)
    contents = [
        (content, message_id, member.used(content))
        for member in members
        for content, message_id in member.contents(role)
    ]
    _, first, used = contents[0]
    alone = id is None and len(contents) == 1 and not used
    mark = {"id": f"msg_{first}" if id is None else _group_id(id), "role": role}
    messages = tuple(
        Message(
            content,
            sender=sender,
            id=message_id,
            created_at=moment,
            metadata=None if alone else {"group": {**mark, "index": index, **used}},
        )
        for index, (content, message_id, used) in enumerate(contents)
    )
    return MessageGroup(mark["id"], role, tuple(part_list), moment, messages)


def _single_text_group(
    role: GroupRole, part: TextPart, sender: SenderRecipient | None
) -> MessageGroup:
    """Return the group of a single text: a fast path for the common case."""
    if role == "user":
        content = InstructionContent.from_record({"instruction": part.text})
    else:
        content = AssistantResponseContent.from_record({"assistant_response": part.text})
    now = clock.now_us() // 1000 * 1000
    message = Message.create_unchecked(content, sender, now)
    return MessageGroup(f"msg_{message.id}", role, (part,), clock.to_datetime(now), (message,))


def _system_group(parts: Sequence[Part], created_at: datetime | None) -> MessageGroup:
    """Return the group of a system message; raises ValidationError unless it is one text."""
    if len(parts) != 1 or not isinstance(parts[0], TextPart):
        raise ValidationError(f"A system message is one text, got {short_repr(list(parts))}.")
    moment = _milliseconds(created_at)
    message = Message(SystemContent(system_message=parts[0].text), created_at=moment)
    return MessageGroup(f"msg_{message.id}", "system", tuple(parts), moment, (message,))


def regroup_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata for a new version of a message: same contexts, new group."""
    match metadata.get("group"):
        case {"id": str(), **mark}:
            return {**metadata, "group": {**mark, "id": f"msg_{new_id()}", "index": 0}}
        case _:
            return dict(metadata)


def parts_of(message: Message) -> list[Part]:
    """Return the parts of a message; those of a tool result lack the tool's name."""
    content = message.content
    parts: list[Part] = []
    match content:
        case SystemContent() if content.system_message is not Unset:
            parts.append(TextPart(content.system_message))
        case InstructionContent():
            if content.instruction is not Unset:
                parts.append(TextPart(content.instruction))
            detail = content.image_detail or "auto"
            parts += [ImagePart(url, detail) for url in content.images or ()]
            parts += map(part_of_record, content.files or ())
        case AssistantResponseContent() if content.assistant_response is not Unset:
            parts.append(TextPart(content.assistant_response))
        case ActionRequestContent():
            parts.append(_tool_part(content))
        case ActionResponseContent():
            parts.append(
                _tool_part(ActionRequestContent(call_id=content.request_id or Unset), content)
            )
        case SystemContent() | AssistantResponseContent():
            pass
        case _ if not content.empty:
            parts.append(TextPart(content.words))
        case _:
            pass
    return parts + contexts_of(message)


@dataclass(slots=True)
class _Member:
    """The data of one stored message, or of a tool's request and response."""

    text: TextPart | None = None
    images: list[ImagePart] = field(default_factory=list[ImagePart])
    files: list[FilePart | AudioPart] = field(default_factory=list["FilePart | AudioPart"])
    contexts: list[ContextPart] = field(default_factory=list[ContextPart])
    tool: ToolPart | None = None

    def contents(self, role: GroupRole) -> Iterable[tuple[MessageContent, UUID]]:
        message_id = new_id()
        if self.tool is not None:
            yield from _tool_contents(self.tool, message_id)
        elif role == "assistant":
            yield AssistantResponseContent.create(self.text and self.text.text), message_id
        else:
            yield (
                InstructionContent.create(
                    instruction=self.text and self.text.text,
                    images=[image.url for image in self.images] or None,
                    image_detail=self.images[0].detail if self.images else None,
                    files=self.files or None,
                ),
                message_id,
            )

    def used(self, content: MessageContent) -> dict[str, Any]:
        # Contexts are recorded with the call only, not with its result too.
        if not self.contexts or isinstance(content, ActionResponseContent):
            return {}
        return {
            "contexts": [
                {"uri": context.uri, "abstract": context.abstract} for context in self.contexts
            ]
        }


def _mark(message: Message) -> tuple[str, GroupRole, int]:
    """Return the id and role of a message's group, and its index in it."""
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(
            f"Expected a Message, got {short_repr(message)}; pass branch.messages."
        )
    match message.metadata.get("group", message.content):
        case {"id": str(id), "role": "user" | "assistant" as role, "index": int(index)}:
            return id, role, index
        case SystemContent():
            return f"msg_{message.id}", "system", 0
        case InstructionContent():
            return f"msg_{message.id}", "user", 0
        case AssistantResponseContent() | ActionRequestContent():
            return f"msg_{message.id}", "assistant", 0
        case MessageContent() as content if not isinstance(content, ActionResponseContent):
            role = "assistant" if content.from_assistant else "user"
            return f"msg_{message.id}", role, 0
        case _:
            raise ValidationError(f"Message {message.id} was not stored as part of a group.")


def contexts_of(message: Message) -> list[ContextPart]:
    """Return the contexts recorded with a message, ignoring invalid entries."""
    contexts: list[ContextPart] = []
    match message.metadata.get("group"):
        case {"contexts": [*stored]}:
            for context in stored:
                match context:
                    case {"uri": str(uri), "abstract": str(abstract)} if uri:
                        contexts.append(ContextPart(uri, abstract))
                    case _:
                        pass
        case _:
            pass
    return contexts


def _add_part(part: Part, role: GroupRole, members: list[_Member]) -> None:
    last = members[-1] if members else None
    match part:
        case TextPart():
            members.append(_Member(text=part))
        case ToolPart() if role == "assistant":
            members.append(_Member(tool=part))
        case ImagePart() if role == "user":
            if (
                last is None
                or last.files
                or last.contexts
                or (last.images and last.images[0].detail != part.detail)
            ):
                members.append(_Member(images=[part]))
            else:
                last.images.append(part)
        case FilePart() | AudioPart() if role == "user":
            if last is None or last.contexts:
                members.append(_Member(files=[part]))
            else:
                last.files.append(part)
        case ContextPart():
            if last is None:
                members.append(_Member(contexts=[part]))
            else:
                last.contexts.append(part)
        case _:
            other = "user" if role == "assistant" else "assistant"
            raise ValidationError(
                f"{type(part).__name__} cannot be part of a message from the {role}; "
                f"add it with role {other!r}."
            )


def _tool_contents(tool: ToolPart, message_id: UUID) -> Iterable[tuple[MessageContent, UUID]]:
    yield ActionRequestContent.create(tool.name, tool.input, tool.tool_id), message_id
    if tool.output is not Unset or tool.error is not Unset or tool.files:
        request_id = str(message_id) if tool.tool_id is None else tool.tool_id
        error = Unset if tool.error is None else tool.error
        files = [part_record(file) for file in tool.files]
        yield ActionResponseContent(request_id, tool.output, error, files or Unset), new_id()


def _tool_part(
    content: ActionRequestContent, result: ActionResponseContent | None = None
) -> ToolPart:
    return ToolPart(
        name=content.function or "",
        input=content.arguments or {},
        output=result.result if result else Unset,
        error=result.error if result else Unset,
        tool_id=None if content.call_id is Unset else content.call_id,
        files=tuple(map(part_of_record, result.files or ())) if result else (),
    )


def _join_parts(messages: Sequence[Message]) -> Iterable[Part]:
    """Yield the parts of all members in order; a call and its result are one part."""
    following = iter([*messages[1:], None])
    for message in messages:
        content, after = message.content, next(following)
        if isinstance(content, ActionResponseContent):
            continue
        parts = parts_of(message)
        result = None if after is None else after.content
        if isinstance(content, ActionRequestContent) and isinstance(result, ActionResponseContent):
            parts[0] = _tool_part(content, result)
        yield from parts


def _as_part_list(parts: str | Part | Iterable[str | Part]) -> list[Part]:
    if isinstance(parts, str):
        return [TextPart(parts)]
    if isinstance(parts, tuple(_PART_NAMES)):
        return [parts]
    if not isinstance(parts, Iterable):
        raise InvalidTypeError(f"parts must be a list of parts, got {short_repr(parts)}.")
    part_list = [TextPart(part) if isinstance(part, str) else part for part in parts]
    for part in part_list:
        if type(part) not in _PART_NAMES:
            names = ", ".join(kind.__name__ for kind in _PART_NAMES)
            raise InvalidTypeError(
                f"{short_repr(part)} is neither a text nor a part; the parts are {names}."
            )
    if not part_list:
        raise ValidationError("parts must not be empty.")
    return part_list


def _group_id(value: object) -> str:
    try:
        if isinstance(value, str) and value.startswith("msg_"):
            return f"msg_{UUID(value[4:])}"
    except ValueError:
        pass
    raise ValidationError(f"A group's id is 'msg_' and a UUID, got {short_repr(value)}.")


def _milliseconds(moment: datetime | None) -> datetime:
    """Truncate a time to milliseconds, as in JSONL, so that groups round-trip."""
    microseconds = clock.now_us() if moment is None else clock.from_datetime(moment)
    return clock.to_datetime(microseconds // 1000 * 1000)
