"""Conversations in OpenAI's chat format: one `{"messages": [...]}` per line.

A line has no id. Its opening, the messages up to the first question, identifies the session, so
that lines with the same opening become branches of one session, and a line that has grown extends
its branch.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

from sennit.errors import SennitError, ValidationError
from sennit.messages.codec import dumps
from sennit.messages.content import MessageContent
from sennit.messages.media import part_of_block
from sennit.messages.openai_chat import chat_role, from_chat
from sennit.stores.transfer.chat_exports.chat import (
    Chat,
    ChatNode,
    dict_of,
    dicts_of,
    file_note,
    list_of,
    seconds,
    text_of,
)

_KEYS = ("role", "content", "name", "refusal", "tool_calls", "tool_call_id")


def chat_of(entry: dict[str, Any]) -> Chat:
    """Convert a line; raises ValidationError."""
    messages = list(dicts_of(entry.get("messages"), "messages"))
    if not messages:
        raise ValidationError("It has no messages.")
    nodes: dict[str, ChatNode] = {}
    parent: str | None = None
    for number, message in enumerate(messages, 1):
        try:
            contents = _contents(number, message)
        except SennitError as error:
            raise ValidationError(f"Message {number}: {error}") from error
        key = str(number)
        nodes[key] = ChatNode(contents, parent)
        parent = key
    metadata = entry.get("metadata")
    title = metadata.get("title") if isinstance(metadata, dict) else None  # pyright: ignore
    return Chat(
        id=_opening_digest(messages),
        nodes=nodes,
        has_own_ids=False,
        title=title if isinstance(title, str) else None,
        created=seconds(entry.get("created")),
        tip=parent,
    )


def _opening_digest(messages: list[dict[str, Any]]) -> str:
    roles = [message.get("role") for message in messages]
    end = roles.index("user") + 1 if "user" in roles else len(roles)
    opening = [[item.get("role"), item.get("content")] for item in messages[:end]]
    return hashlib.sha256(dumps(opening)).hexdigest()[:32]


def _contents(number: int, message: dict[str, Any]) -> tuple[MessageContent, ...]:
    chat = {key: message[key] for key in _KEYS if message.get(key) is not None}
    if message.get("role") == "function":
        chat |= {"role": "tool", "tool_call_id": f"call_{number - 1}"}
    if call := dict_of(message.get("function_call"), "function_call"):
        chat["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": call}]
    if chat.get("role") in ("system", "developer"):
        chat.pop("name", None)
    if isinstance(chat.get("content"), list):
        chat["content"] = [_part(part) for part in list_of(chat["content"], "content")]
    chat_role(chat)
    if not chat.keys() & {"content", "refusal", "tool_calls"}:
        return ()
    return tuple(item.content for item in from_chat(chat).messages)


def _part(part: Any) -> dict[str, Any]:
    """Return a part that a message can hold; a file becomes a note."""
    fields = dict_of(part, "A part")
    kind = text_of(fields.get("type"), "type") or "file"
    if kind in ("text", "refusal"):
        return {"type": kind, kind: fields.get(kind)}
    with suppress(ValidationError):  # a picture or a file that is none
        if part_of_block(fields) is not None:
            return fields
    file = dict_of(fields.get("file"), "file")
    return {"type": "text", "text": file_note(kind.removesuffix("_url"), file.get("filename"))}
