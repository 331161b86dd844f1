"""Conversion of OpenAI-style chat messages such as `{"role": "user", "content": "Hello"}`.

A dict becomes a role with parts, or a tool result. Every key with a value is converted or refused;
nothing is silently dropped. Keys without a value, as in client responses (`"refusal": None`,
`"annotations": []`), are ignored. A refusal becomes the assistant's text, a name the sender.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from sennit.errors import CodecError, ValidationError, did_you_mean, listed, short_repr
from sennit.messages.codec import loads
from sennit.messages.content import ActionResponseContent
from sennit.messages.media import MediaPart, label, part_of_block, part_record
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.parts import (
    GroupRole,
    MessageGroup,
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
        roles = (*_ROLES, "tool")
        raise ValidationError(
            f"A chat message has a role, one of {listed(roles)}; got {short_repr(chat)}."
            f"{did_you_mean(role, roles)}"
        )
    return _ROLES[role]


def from_chat(chat: Mapping[str, Any], *, sender: SenderRecipient | None = None) -> MessageGroup:
    """Convert a chat message to a group; raises ValidationError if it cannot."""
    role = chat_role(chat)
    allowed = _KEYS.get(role, _DEFAULT_KEYS)
    present = {key for key, value in chat.items() if value is not None and value != []}
    if wrong := sorted(map(str, present - allowed)):
        raise ValidationError(
            f"A chat message with the role {role!r} has {listed(allowed)}, not {listed(wrong)}."
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
    parts = list(_content_parts(chat.get("content")))
    content = ActionResponseContent.create(
        request_id=chat.get("tool_call_id"),
        result="\n".join(part.text for part in parts if isinstance(part, TextPart)),
        files=[part_record(part) for part in parts if not isinstance(part, TextPart)],
    )
    message = Message(content, sender=chat.get("name"))
    joined = tuple(parts_of(message))
    return MessageGroup(f"msg_{message.id}", "assistant", joined, message.created_at, (message,))


def _content_parts(content: Any) -> Iterable[TextPart | MediaPart]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(content)]
    if not isinstance(content, list):
        raise ValidationError(
            f"The content of a chat message is text or a list of parts, got {short_repr(content)}."
        )
    return [_part(item) for item in cast("list[Any]", content)]


def _part(part: Any) -> TextPart | MediaPart:
    match part:
        case {"type": "text", "text": str(text), **more} if not more:
            return TextPart(text)
        case {"type": "refusal", "refusal": str(text), **more} if not more:
            return TextPart(text)
        case _:
            if (media := part_of_block(part)) is not None:
                return media
            raise ValidationError(
                "A part of a chat message is a text, a refusal, an image_url, a file with its "
                f"file_data, or an input_audio, got {short_repr(part)}."
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


def accepted_chat(chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages whose blocks are those that OpenAI's API takes: for exports."""
    return [
        message if isinstance(message["content"], str | None) else _accepted(message)
        for message in chat
    ]


def _accepted(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with blocks as the chat API accepts it.

    Results of tools are text there, and files and recordings have their bytes.
    """
    blocks = message["content"]
    if message["role"] == "tool":
        return {**message, "content": "\n".join(map(_label, blocks))}
    return {**message, "content": list(map(_accepted_block, blocks))}


def _label(block: dict[str, Any]) -> str:
    part = part_of_block(block)
    return str(block.get("text") or "") if part is None else label(part)


def _accepted_block(block: dict[str, Any]) -> dict[str, Any]:
    kind = block["type"]
    if kind in ("file", "input_audio") and not block[kind].keys() & {"file_data", "data"}:
        return {"type": "text", "text": _label(block)}
    return block
