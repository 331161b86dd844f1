"""Conversion of OpenAI-style chat messages such as `{"role": "user", "content": "Hello"}`.

A dict becomes a role with parts, or a tool result. Every key with a value is converted or refused;
nothing is silently dropped. Keys without a value, as in client responses (`"refusal": None`,
`"annotations": []`), are ignored. A refusal becomes the assistant's text, a name the sender.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from sennit.errors import CodecError, ValidationError, short_repr
from sennit.messages.codec import loads
from sennit.messages.content import ActionResponseContent
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.parts import (
    GroupRole,
    ImagePart,
    MessageGroup,
    Part,
    TextPart,
    ToolPart,
    parts_of,
    split,
)

_ROLES: Mapping[str, GroupRole] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_KEYS: Mapping[str, frozenset[str]] = {
    "assistant": frozenset({"role", "content", "name", "refusal", "tool_calls"}),
    "tool": frozenset({"role", "content", "name", "tool_call_id"}),
    "user": frozenset({"role", "content", "name"}),
}
_DEFAULT_KEYS = frozenset({"role", "content"})


def chat_role(chat: Mapping[str, Any]) -> str:
    """Return the role of a chat message in Sennit; raises ValidationError if it is unknown."""
    role = chat.get("role")
    if role == "tool":
        return "tool"
    if not isinstance(role, str) or role not in _ROLES:
        roles = ", ".join(map(repr, (*_ROLES, "tool")))
        raise ValidationError(f"A chat message has a role, one of {roles}; got {short_repr(chat)}.")
    return _ROLES[role]


def from_chat(chat: Mapping[str, Any], *, sender: SenderRecipient | None = None) -> MessageGroup:
    """Convert a chat message to a group; raises ValidationError if it cannot."""
    role = chat_role(chat)
    allowed = _KEYS.get(role, _DEFAULT_KEYS)
    present = {key for key, value in chat.items() if value is not None and value != []}
    if wrong := sorted(map(str, present - allowed)):
        raise ValidationError(
            f"A chat message with the role {role!r} has {sorted(allowed)}, not {wrong}."
        )
    if role == "tool":
        return _tool_result(chat)
    if {"content", "refusal"} <= present:
        raise ValidationError(
            f"An answer has a content or a refusal, got both: {short_repr(chat['content'])} and "
            f"{short_repr(chat['refusal'])}."
        )
    texts = _content_parts(chat["refusal"] if "refusal" in present else chat.get("content"))
    calls: Any = chat.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValidationError(f"tool_calls is a list of tool calls, got {short_repr(calls)}.")
    parts = [*texts, *map(_tool_call_part, cast("list[Any]", calls))]
    return split(_ROLES[role], parts, sender=chat.get("name") or sender)


def _tool_result(chat: Mapping[str, Any]) -> MessageGroup:
    texts = [
        part.text for part in _content_parts(chat.get("content")) if isinstance(part, TextPart)
    ]
    content = ActionResponseContent.create(
        request_id=chat.get("tool_call_id"), result="\n".join(texts)
    )
    message = Message(content, sender=chat.get("name"))
    parts = tuple(parts_of(message))
    return MessageGroup(f"msg_{message.id}", "assistant", parts, message.created_at, (message,))


def _content_parts(content: Any) -> Iterable[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(content)]
    if not isinstance(content, list):
        raise ValidationError(
            f"The content of a chat message is text or a list of parts, got {short_repr(content)}."
        )
    return [_part(item) for item in cast("list[Any]", content)]


def _part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text), **more} if not more:
            return TextPart(text)
        case {"type": "refusal", "refusal": str(text), **more} if not more:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url), **more}} if more.keys() <= {
            "detail"
        }:
            return ImagePart(url, cast("Any", more.get("detail") or "auto"))
        case _:
            raise ValidationError(
                "A part of a chat message is a text, a refusal or an image_url, got "
                f"{short_repr(part)}."
            )


def _tool_call_part(call: Any) -> ToolPart:
    match call:
        case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
            try:
                parsed: Any = loads(arguments or "{}")
            except CodecError as error:
                raise ValidationError(f"The arguments of {name!r} are not JSON: {error}") from error
            return ToolPart(name, parsed, tool_id=id)
        case _:
            raise ValidationError(
                "A tool call has an id and a function with name and arguments, got "
                f"{short_repr(call)}."
            )
