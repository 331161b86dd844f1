"""UI messages of the AI SDK: a user's message, or all that answers it, as one message with parts.

A user's message keeps the id that the page gave it; an answer has the id of its first message.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import msgspec

from sennit.errors import ValidationError
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.sessions.branch import Branch

_ID_KEY = "ui_id"
"""The key of the id that the page gave a message, in its metadata."""
_MAX_ID_CHARS = 200


class UIMessage(msgspec.Struct, frozen=True):
    """A message as a page sends it."""

    id: str
    role: str
    parts: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class Group:
    """The messages of a branch that are one UI message."""

    id: str
    is_user: bool
    messages: list[Message]
    end: int
    """The number of messages up to its end, without the system message."""


def groups_of(branch: Branch) -> list[Group]:
    """Return the messages of a branch in groups."""
    with branch.session.lock:
        start = int(branch.system_id is not None)
        messages = branch.messages_from(branch.session.messages, start)
    groups: list[Group] = []
    own: list[Message] = []
    for at, message in enumerate(messages):
        is_user = isinstance(message.content, InstructionContent)
        if is_user or not groups or groups[-1].is_user:
            own = []
            groups.append(Group(_id_of(message), is_user, own, at + 1))
        own.append(message)
        groups[-1] = Group(groups[-1].id, is_user, own, at + 1)
    return groups


def _id_of(message: Message) -> str:
    ui_id = message.metadata.get(_ID_KEY)
    return ui_id if isinstance(ui_id, str) else str(message.id)


def shared(groups: Sequence[Group], ids: Sequence[str]) -> int:
    """Return how many of the first groups have these ids."""
    pairs = zip(groups, ids, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1], pairs))


def user_message(sent: UIMessage, sender: Any) -> Message:
    """Return a user's message; raises ValidationError for parts that are not supported."""
    if not 0 < len(sent.id) <= _MAX_ID_CHARS:
        raise ValidationError(f"A message needs an 'id' of 1 to {_MAX_ID_CHARS} characters.")
    texts: list[str] = []
    images: list[str] = []
    for part in sent.parts:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "file", "mediaType": str(kind), "url": str(url)} if kind.startswith(
                "image/"
            ):
                images.append(url)
            case {"type": "file"}:
                raise ValidationError("Files must be images; send the text of any other file.")
            case {"type": str(kind)} if kind.startswith("data-"):
                pass  # data of the page itself
            case _:
                raise ValidationError("A user's message has parts of the types 'text' and 'file'.")
    text = "\n".join(text for text in texts if text)
    if not text and not images:
        raise ValidationError("A message needs a text or an image.")
    content = InstructionContent(instruction=text or Unset, images=images or Unset)
    return Message(content, sender=sender, metadata={_ID_KEY: sent.id})


def ui_message(group: Group, waiting: Container[str]) -> dict[str, Any]:
    """Return a group as a UI message; `waiting` are the ids of calls that wait for approval."""
    first = group.messages[0]
    return {
        "id": group.id,
        "role": "user" if group.is_user else "assistant",
        "parts": list(_parts(group.messages, waiting)),
        "metadata": {"createdAt": first.created_at.isoformat()},
    }


def _parts(messages: Sequence[Message], waiting: Container[str]) -> Iterator[dict[str, Any]]:
    results = {
        message.content.request_id: message.content
        for message in messages
        if isinstance(message.content, ActionResponseContent)
    }
    for message in messages:
        content = message.content
        if isinstance(content, InstructionContent):
            if content.instruction:
                yield {"type": "text", "text": content.instruction}
            for url in content.images or ():
                yield {"type": "file", "mediaType": _media_type(url), "url": url}
        elif isinstance(content, ActionRequestContent):
            result = results.get(call_id_of(message)) or results.get(str(message.id))
            yield _tool_part(message, content, result, waiting)
        elif isinstance(content, AssistantResponseContent):
            if content.reasoning:
                yield {"type": "reasoning", "text": content.reasoning, "state": "done"}
            if content.words:
                yield {"type": "text", "text": content.words, "state": "done"}
        elif message.role is not MessageRole.TOOL and content.words:
            yield {"type": "text", "text": content.words, "state": "done"}


def _media_type(url: str) -> str:
    return url[5:].partition(";")[0] if url.startswith("data:") else "image/*"


def _tool_part(
    message: Message,
    content: ActionRequestContent,
    result: ActionResponseContent | None,
    waiting: Container[str],
) -> dict[str, Any]:
    call_id = call_id_of(message)
    part: dict[str, Any] = {
        "type": f"tool-{content.function or ''}",
        "toolCallId": call_id,
        "input": content.arguments or {},
    }
    if result is not None:
        return part | outcome(result)
    if call_id in waiting:
        return part | {"state": "approval-requested", "approval": {"id": call_id}}
    return part | {"state": "input-available"}


def outcome(result: ActionResponseContent) -> dict[str, Any]:
    """Return the state of a call that has ended, and its output or error."""
    if result.error is Unset:
        output = None if result.result is Unset else result.result
        return {"state": "output-available", "output": output}
    return {"state": "output-error", "errorText": result.error}


def call_id_of(message: Message) -> str:
    """Return the id of a tool call."""
    content = message.content
    assert isinstance(content, ActionRequestContent)
    return content.call_id or str(message.id)


def decisions_of(sent: UIMessage) -> dict[str, tuple[bool, str]]:
    """Return the decisions about tool calls in an answer that the page sends back, by call id."""
    decisions: dict[str, tuple[bool, str]] = {}
    for part in sent.parts:
        match part:
            case {
                "toolCallId": str(call_id),
                "state": "approval-responded",
                "approval": {"approved": bool(approved), **rest},
            }:
                decisions[call_id] = approved, str(rest.get("reason") or "")
            case _:
                pass
    return decisions
