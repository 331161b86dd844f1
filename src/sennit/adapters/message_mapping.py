"""Mapping between the messages of other frameworks and ours.

What a foreign message says becomes our contents, so that all of Sennit can read it: search, memory,
training files, another framework. The whole of it, as its framework writes it, is kept beside the
first of them and given back exactly. A whole counts only while all that it became stands together
and unedited. Whatever else is on a branch (said in a chat, edited, cut off by a fork) is told anew
from our contents, by way of `to_model_messages`, which mends what is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from sennit.errors import ValidationError
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    MessageRole,
)
from sennit.messages.json_values import plain, readable
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.prompt.tool_chat import to_model_messages

_T = TypeVar("_T")
_MARK = "foreign"


@dataclass(frozen=True)
class MessageFormat(Generic[_T]):
    """The format of one framework's messages: how to write, read and describe them."""

    name: str
    """The framework's, under which its wholes are kept."""
    write: Callable[[_T], Any]
    """A message as plain JSON data."""
    read: Callable[[Any], _T]
    """The message in that data."""
    contents: Callable[[_T], Iterable[MessageContent]]
    """What a message says, as contents of ours."""
    tell: Callable[[list[dict[str, Any]]], Iterable[_T]]
    """Messages for what a chat API would be sent."""

    def ours(
        self, foreign: _T, sender: SenderRecipient | None = None, **noted: Any
    ) -> list[Message]:
        """The messages that a foreign one becomes, at least one; the first has the metadata."""
        contents = list(self.contents(foreign)) or [AssistantResponseContent()]
        # As JSON text, which holds what no store can (NUL, NaN, lone surrogates) in escapes.
        whole = json.dumps(self.write(foreign), default=str)
        mark = {"form": self.name, "count": len(contents), "whole": whole}
        first = Message(contents[0], sender=sender, metadata={**noted, _MARK: mark})
        return [
            first,
            *(
                Message(content, sender=sender, metadata={_MARK: {"after": str(first.id)}})
                for content in contents[1:]
            ),
        ]

    def whole(self, first: Message) -> _T:
        """The foreign message that begins with one of ours; raises ValidationError."""
        match first.metadata.get(_MARK):
            case {"form": self.name, "whole": str(whole)}:
                return self.read(json.loads(whole))
            case _:
                raise ValidationError(f"Message {first.id} does not begin one of {self.name!r}.")

    def theirs(self, messages: Sequence[Message]) -> list[_T]:
        """The foreign messages that ours stand for."""
        runs = list(self._runs(messages))
        if any(_has_orphan(run) for run in runs if isinstance(run, list)):
            # A result that was added by other means answers a call inside of a whole: what belongs
            # together can only be told together.
            return list(self.tell(to_model_messages(list(messages))))
        found: list[_T] = []
        for run in runs:
            if isinstance(run, str):
                found.append(self.read(json.loads(run)))
            else:
                found += self.tell(to_model_messages(run))
        return found

    def _runs(self, messages: Sequence[Message]) -> Iterable[str | list[Message]]:
        """The wholes, and between them what has to be told anew."""
        loose: list[Message] = []
        at = 0
        while at < len(messages):
            whole, count = self._whole(messages, at)
            if whole is None:
                loose.append(messages[at])
            elif loose:
                yield loose
                loose = []
            if whole is not None:
                yield whole
            at += count
        if loose:
            yield loose

    def _whole(self, messages: Sequence[Message], at: int) -> tuple[str | None, int]:
        first = messages[at]
        match first.metadata.get(_MARK):
            case {"form": self.name, "count": int(count), "whole": str(whole)}:
                members = messages[at : at + count]
                if len(members) == count and not any(map(_edited, members)):
                    after = [one.metadata.get(_MARK) for one in members[1:]]
                    if all(mark == {"after": str(first.id)} for mark in after):
                        return whole, count
            case _:
                pass
        return None, 1


def _edited(message: Message) -> bool:
    return "edited_from" in message.metadata


def _has_orphan(run: list[Message]) -> bool:
    """Return whether a result is among them whose call is not."""
    calls: set[str | None] = set()
    for message in run:
        match message.content:
            case ActionRequestContent(call_id=str(call)):
                calls |= {call, str(message.id)}
            case ActionResponseContent(request_id=str(asked)) if asked not in calls:
                return True
            case _:
                calls.add(str(message.id))
    return False


def instruction(said: str, images: Iterable[str] = ()) -> InstructionContent:
    """Return a user's message as an instruction; only images with a web address are kept."""
    linked = [url for url in images if url.startswith(("http://", "https://"))]
    if not linked:
        return InstructionContent(instruction=readable(said))
    try:
        return InstructionContent(instruction=readable(said), images=linked)
    except ValidationError:  # an address that we would not fetch; the whole has it
        return InstructionContent(instruction=readable(said))


def answer(said: str, reasoning: str = "") -> AssistantResponseContent:
    """Return a model's message as an assistant response."""
    return AssistantResponseContent.create(readable(said), readable(reasoning) or None)


def call(function: str, arguments: Any, call_id: str | None) -> ActionRequestContent:
    """A tool call; arguments that are no JSON object, or that none can hold, are kept as text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = {"unreadable": readable(arguments)}
    held = sound(arguments)
    if not isinstance(held, dict):
        held = {"value": held}
    asked = None if call_id is None else readable(call_id)
    return ActionRequestContent.create(readable(function), cast("dict[str, Any]", held), asked)


def result(call_id: str, value: Any, *, failed: bool = False) -> ActionResponseContent:
    """Return a tool's message as an action response."""
    answered = readable(call_id)
    if failed:
        told = value if isinstance(value, str) else json.dumps(sound(value))
        return ActionResponseContent(request_id=answered, error=readable(told))
    return ActionResponseContent(request_id=answered, result=sound(value))


def sound(value: Any) -> Any:
    """A value as a message can hold it; the parts that none can become text."""
    try:
        return plain(value, "value")
    except ValidationError:
        return readable(json.dumps(value, default=str))


def speaker(role: str) -> SenderRecipient | None:
    """Return the sender of a message whose role exists only in the other framework."""
    return MessageRole.SYSTEM if role in ("system", "developer") else None
