"""UI messages of the AI SDK: messages of the user, and answers with all their parts."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
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
from sennit.messages.media import AudioPart, FilePart, ImagePart, MediaPart
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.server.frontends.chats import Group, call_id_of, outcome_of, user_message


class UIMessage(msgspec.Struct, frozen=True):
    """A message as a page sends it."""

    id: str
    role: str
    parts: list[dict[str, Any]] = []


def parse_user_message(sent: UIMessage, sender: Any) -> Message:
    """Return a user's message; raises ValidationError for parts that are not supported."""
    texts: list[str] = []
    media: list[MediaPart] = []
    for part in sent.parts:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "file", "mediaType": str(kind), "url": str(url), **more}:
                media.append(_media_part(kind, url, more.get("filename")))
            case {"type": str(kind)} if kind.startswith("data-"):
                pass  # data of the page itself
            case _:
                raise ValidationError("A user's message has parts of the types 'text' and 'file'.")
    return user_message(sent.id, texts, media, sender)


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
    for message in messages:
        content = message.content
        if isinstance(content, InstructionContent):
            if content.instruction:
                yield {"type": "text", "text": content.instruction}
            parts = message.parts
            yield from (_file(part) for part in parts if isinstance(part, MediaPart))
        elif isinstance(content, ActionRequestContent):
            yield _tool_part(message, content, outcome_of(messages, message), waiting)
        elif isinstance(content, AssistantResponseContent):
            if content.reasoning:
                yield {"type": "reasoning", "text": content.reasoning, "state": "done"}
            if content.words:
                yield {"type": "text", "text": content.words, "state": "done"}
        elif message.role is not MessageRole.TOOL and content.words:
            yield {"type": "text", "text": content.words, "state": "done"}


def _media_part(kind: str, url: str, name: Any) -> MediaPart:
    if kind.startswith("image/"):
        return ImagePart(url)
    return AudioPart(url, kind) if kind.startswith("audio/") else FilePart(url, name, kind)


def _file(part: MediaPart) -> dict[str, Any]:
    name = {"filename": part.name} if isinstance(part, FilePart) and part.name else {}
    return {"type": "file", "mediaType": part.media_type, "url": part.url, **name}


def _tool_part(
    message: Message,
    content: ActionRequestContent,
    result: Message | None,
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


def outcome(result: Message) -> dict[str, Any]:
    """Return the state of a call that has ended, and its output or error."""
    content = result.content
    assert isinstance(content, ActionResponseContent)
    if content.error is Unset:
        output = None if content.result is Unset else content.result
        return {"state": "output-available", "output": output}
    return {"state": "output-error", "errorText": content.error}


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
