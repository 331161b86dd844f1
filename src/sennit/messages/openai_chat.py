"""OpenAI-style chat messages, converted to ours: `{"role": "user", "content": "Hello"}`.

What such a dict says becomes a role with parts, or the result of a tool. Every key that says
something is understood or refused: nothing is silently dropped. Keys without a value, of which the
answers of a client have many (`"refusal": None`, `"annotations": []`), say nothing. A refusal is
what the assistant said; a name is who sends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from sennit.errors import CodecError, ValidationError, shown
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
_USUAL = frozenset({"role", "content"})


def chat_role(said: Mapping[str, Any]) -> str:
    """The role of a chat message as we call it; raises ValidationError if it has none of ours."""
    role = said.get("role")
    if role == "tool":
        return "tool"
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(map(repr, (*_ROLES, "tool")))
        raise ValidationError(f"A chat message has a role, one of {known}; got {shown(said)}.")
    return _ROLES[role]


def from_chat(said: Mapping[str, Any], *, sender: SenderRecipient | None = None) -> MessageGroup:
    """The group that a chat message becomes; raises ValidationError for what it cannot hold."""
    role = chat_role(said)
    allowed = _KEYS.get(role, _USUAL)
    given = {key for key, value in said.items() if value is not None and value != []}
    if wrong := sorted(map(str, given - allowed)):
        raise ValidationError(
            f"A chat message with the role {role!r} has {sorted(allowed)}, not {wrong}."
        )
    if role == "tool":
        return _tool_result(said)
    if {"content", "refusal"} <= given:
        raise ValidationError(
            f"An answer has a content or a refusal, got both: {shown(said['content'])} and "
            f"{shown(said['refusal'])}."
        )
    words = _said(said["refusal"] if "refusal" in given else said.get("content"))
    parts = [*words, *map(_called, said.get("tool_calls") or ())]
    return split(_ROLES[role], parts, sender=said.get("name") or sender)


def _tool_result(said: Mapping[str, Any]) -> MessageGroup:
    texts = [part.text for part in _said(said.get("content")) if isinstance(part, TextPart)]
    content = ActionResponseContent.create(
        request_id=said.get("tool_call_id"), result="\n".join(texts)
    )
    message = Message(content, sender=said.get("name"))
    parts = tuple(parts_of(message))
    return MessageGroup(f"msg_{message.id}", "assistant", parts, message.created_at, (message,))


def _said(content: Any) -> Iterable[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(content)]
    if not isinstance(content, list):
        raise ValidationError(
            f"The content of a chat message is text or a list of parts, got {shown(content)}."
        )
    return [_part(one) for one in cast("list[Any]", content)]


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
                f"A part of a chat message is a text, a refusal or an image_url, got {shown(part)}."
            )


def _called(call: Any) -> ToolPart:
    match call:
        case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
            try:
                given: Any = loads(arguments or "{}")
            except CodecError as error:
                raise ValidationError(f"The arguments of {name!r} are not JSON: {error}") from error
            return ToolPart(name, given, tool_id=id)
        case _:
            raise ValidationError(
                f"A tool call has an id and a function with name and arguments, got {shown(call)}."
            )
