"""Mapping between the messages of other frameworks and Sennit's.

The text, tool calls and results of a foreign message become Sennit messages, so search, memory,
training exports and other frameworks can read them. The original, serialized by its framework, is
stored in the metadata of the first of these messages and returned unchanged. It is valid only while
all its messages are adjacent and unedited. All other messages of a branch (from a chat, edited, or
cut off by a fork) are converted from their contents by way of `to_model_messages`, which repairs
unmatched tool calls and results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

from sennit.errors import ValidationError
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    MessageRole,
)
from sennit.messages.json_values import plain, replace_invalid
from sennit.messages.media import ImagePart, MediaPart, part_record
from sennit.messages.message import Message
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.messages.unset import Unset

_T = TypeVar("_T")
_METADATA_KEY = "foreign"
MediaMaker: TypeAlias = Callable[[], MediaPart]
"""Returns a picture, a file or a recording; raises ValidationError if it is none."""


@dataclass(frozen=True)
class MessageFormat(Generic[_T]):
    """The message format of one framework: its serializer and its conversions."""

    name: str
    """The name of the framework, stored with each original."""
    write: Callable[[_T], Any]
    """Serializes a message to JSON data."""
    read: Callable[[Any], _T]
    """Restores a message from that data."""
    contents: Callable[[_T], Iterable[MessageContent]]
    """Converts a message to Sennit contents."""
    from_chat: Callable[[list[dict[str, Any]]], Iterable[_T]]
    """Converts chat API messages to messages of the framework."""
    role: Callable[[_T], str] = lambda _: ""
    """Returns the role of a message; the sender of system and developer messages is the system."""

    def to_messages(self, original: _T, **metadata: Any) -> list[Message]:
        """Convert a foreign message to one or more messages; the first gets the metadata."""
        is_system = self.role(original) in ("system", "developer")
        sender = MessageRole.SYSTEM if is_system else None
        contents = list(self.contents(original)) or [AssistantResponseContent()]
        # JSON text escapes values that stores cannot hold: NUL, NaN and lone surrogates.
        original_json = json.dumps(self.write(original), default=str)
        mark = {"form": self.name, "count": len(contents), "whole": original_json}
        first = Message(contents[0], sender=sender, metadata={**metadata, _METADATA_KEY: mark})
        return [
            first,
            *(
                Message(content, sender=sender, metadata={_METADATA_KEY: {"after": str(first.id)}})
                for content in contents[1:]
            ),
        ]

    def original(self, first: Message) -> _T:
        """Return the foreign message that starts with `first`; raises ValidationError."""
        match first.metadata.get(_METADATA_KEY):
            case {"form": self.name, "whole": str(original_json)}:
                return self.read(json.loads(original_json))
            case _:
                raise ValidationError(
                    f"Message {str(first.id)!r} is not the start of a {self.name!r} message."
                )

    def from_messages(self, messages: Sequence[Message]) -> list[_T]:
        """Convert messages to foreign ones; valid originals are returned unchanged."""
        groups = list(self._group(messages))
        if any(_has_orphan(group) for group in groups if isinstance(group, list)):
            # A result from elsewhere answers a call inside an original: a call and its result must
            # be converted together.
            return list(self.from_chat(to_model_messages(list(messages))))
        originals: list[_T] = []
        for group in groups:
            if isinstance(group, str):
                originals.append(self.read(json.loads(group)))
            else:
                originals += self.from_chat(to_model_messages(group))
        return originals

    def _group(self, messages: Sequence[Message]) -> Iterator[str | list[Message]]:
        """Yield the JSON of valid originals, and lists of the messages between them."""
        unmatched: list[Message] = []
        at = 0
        while at < len(messages):
            original_json, count = self._original_at(messages, at)
            if original_json is None:
                unmatched.append(messages[at])
            else:
                yield from filter(None, (unmatched, original_json))
                unmatched = []
            at += count
        if unmatched:
            yield unmatched

    def _original_at(self, messages: Sequence[Message], at: int) -> tuple[str | None, int]:
        first = messages[at]
        match first.metadata.get(_METADATA_KEY):
            case {"form": self.name, "count": int(count), "whole": str(original_json)}:
                members = messages[at : at + count]
                if len(members) == count and not any(map(_is_edited, members)):
                    marks = [member.metadata.get(_METADATA_KEY) for member in members[1:]]
                    if all(mark == {"after": str(first.id)} for mark in marks):
                        return original_json, count
            case _:
                pass
        return None, 1


def _is_edited(message: Message) -> bool:
    return "edited_from" in message.metadata


def _has_orphan(messages: list[Message]) -> bool:
    """Return whether the messages contain a tool result without its call."""
    call_ids: set[str | None] = set()
    for message in messages:
        match message.content:
            case ActionRequestContent(call_id=str(call_id)):
                call_ids |= {call_id, str(message.id)}
            case ActionResponseContent(request_id=str(request_id)) if request_id not in call_ids:
                return True
            case _:
                call_ids.add(str(message.id))
    return False


def instruction(text: str, media: Iterable[MediaMaker] = ()) -> InstructionContent:
    """Return a user's message as an instruction; the original alone has files that are invalid."""
    parts = _valid_parts(media)
    return InstructionContent.create(
        instruction=replace_invalid(text),
        images=[part.url for part in parts if isinstance(part, ImagePart)] or None,
        files=[part for part in parts if not isinstance(part, ImagePart)] or None,
    )


def _valid_parts(media: Iterable[MediaMaker]) -> list[MediaPart]:
    parts: list[MediaPart] = []
    for make in media:
        with suppress(ValidationError):  # an address that is not safe to fetch, or no such file
            parts.append(make())
    return parts


def answer(text: str, reasoning: str = "") -> AssistantResponseContent:
    """Return a model's message as an assistant response."""
    return AssistantResponseContent.create(
        replace_invalid(text), replace_invalid(reasoning) or None
    )


def call(function: str, arguments: Any, call_id: str | None) -> ActionRequestContent:
    """Return a tool call as an action request; unparsable arguments are included as text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = {"unreadable": replace_invalid(arguments)}
    storable = to_storable(arguments)
    if not isinstance(storable, dict):
        storable = {"value": storable}
    storable_id = None if call_id is None else replace_invalid(call_id)
    return ActionRequestContent.create(
        replace_invalid(function), cast("dict[str, Any]", storable), storable_id
    )


def result(
    call_id: str, value: Any, media: Iterable[MediaMaker] = (), *, failed: bool = False
) -> ActionResponseContent:
    """Return a tool result as an action response."""
    request_id = replace_invalid(call_id)
    files = [part_record(part) for part in _valid_parts(media)] or Unset
    if failed:
        text = value if isinstance(value, str) else json.dumps(to_storable(value))
        return ActionResponseContent(request_id, error=replace_invalid(text), files=files)
    return ActionResponseContent(request_id, to_storable(value), files=files)


def to_storable(value: Any) -> Any:
    """Return a value as plain data; one that a message cannot hold becomes its JSON text."""
    try:
        return plain(value, "value")
    except ValidationError:
        return replace_invalid(json.dumps(value, default=str))
