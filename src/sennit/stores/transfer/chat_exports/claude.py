"""Conversations of Claude's data export.

`chat_messages` are in the order of time. Newer exports name the parent of each, so edited questions
and retried answers are branches; without parents each message follows the one before it. Tool calls
and their results become messages of their own. Text that Claude extracted from attachments is kept
with the question.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from sennit.errors import ValidationError, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
)
from sennit.messages.unset import or_unset
from sennit.stores.transfer.chat_exports.chat import (
    Chat,
    ChatNode,
    dict_of,
    dicts_of,
    file_note,
    iso_time,
    text_of,
)


def chat_of(entry: dict[str, Any]) -> Chat:
    """Convert an entry of `conversations.json`; raises ValidationError."""
    nodes: dict[str, ChatNode] = {}
    previous: str | None = None
    for index, message in enumerate(dicts_of(entry.get("chat_messages"), "chat_messages")):
        key = text_of(message.get("uuid"), "uuid") or f"message {index}"
        if key in nodes:
            raise ValidationError(f"Two messages have the uuid {short_repr(key)}.")
        parent = previous
        if "parent_message_uuid" in message:
            parent = text_of(message["parent_message_uuid"], "parent_message_uuid")
        created = iso_time(message.get("created_at"))
        nodes[key] = ChatNode(tuple(_contents(key, message)), parent, created)
        previous = key
    tip = text_of(entry.get("current_leaf_message_uuid"), "current_leaf_message_uuid")
    return Chat(
        id=text_of(entry.get("uuid"), "uuid") or next(iter(nodes), ""),
        nodes=nodes,
        has_own_ids=True,
        title=text_of(entry.get("name"), "name"),
        created=iso_time(entry.get("created_at")),
        tip=tip or previous,
    )


def _contents(key: str, message: dict[str, Any]) -> list[MessageContent]:
    sender = message.get("sender")
    if sender not in ("human", "assistant"):
        raise ValidationError(f"sender is 'human' or 'assistant', got {short_repr(sender)}.")
    blocks = list(dicts_of(message.get("content"), "content"))
    if not any(text_of(block.get("text"), "text") for block in blocks):
        blocks.append({"type": "text", "text": message.get("text")})
    if sender == "assistant":
        return [*_answer(key, blocks)]
    texts = [text_of(block.get("text"), "text") for block in blocks]
    texts += [_attachment(item) for item in dicts_of(message.get("attachments"), "attachments")]
    texts += [file_note("file", item.get("file_name")) for item in _files(message)]
    text = "\n\n".join(text for text in texts if text)
    return [InstructionContent(instruction=text)] if text else []


def _files(message: dict[str, Any]) -> list[dict[str, Any]]:
    return list(dicts_of(message.get("files"), "files"))


def _attachment(attachment: dict[str, Any]) -> str:
    note = file_note("attachment", attachment.get("file_name"))
    text = text_of(attachment.get("extracted_content"), "extracted_content")
    return f"{note}\n{text}" if text else note


def _answer(key: str, blocks: list[dict[str, Any]]) -> list[MessageContent]:
    """Return the contents of an answer: texts with their reasoning, calls and results."""
    contents: list[MessageContent] = []
    reasoning: list[str] = []
    numbers = count()
    last_call = ""
    for block in blocks:
        match block.get("type"):
            case "thinking":
                reasoning += filter(None, [text_of(block.get("thinking"), "thinking")])
            case "tool_use":
                last_call = text_of(block.get("id"), "id") or f"{key}-{next(numbers)}"
                name = text_of(block.get("name"), "name") or "tool"
                given = block.get("input")
                arguments = {"input": given} if isinstance(given, str) else dict_of(given, "input")
                contents.append(ActionRequestContent(name, arguments, last_call))
            case "tool_result":
                call = text_of(block.get("tool_use_id"), "tool_use_id") or last_call
                contents.append(_result(call, block))
            case "text" | None:
                if text := text_of(block.get("text"), "text"):
                    last = contents[-1] if contents and not reasoning else None
                    if isinstance(last, AssistantResponseContent):
                        text = f"{contents.pop().rendered}\n\n{text}"
                        reasoning = [last.reasoning] if last.reasoning else []
                    thoughts = or_unset("\n\n".join(reasoning) or None)
                    contents.append(AssistantResponseContent(text, thoughts))
                    reasoning = []
            case other:
                if text := text_of(block.get("text"), "text"):
                    contents.append(AssistantResponseContent(f"[{other}]\n{text}"))
    return contents


def _result(call: str, block: dict[str, Any]) -> MessageContent:
    content = block.get("content")
    if isinstance(content, list):
        parts = dicts_of(content, "content")  # pyright: ignore[reportUnknownArgumentType]
        content = "\n\n".join(_result_text(part) for part in parts)
    if block.get("is_error"):
        return ActionResponseContent(call, error=str(content or "failed"))
    return ActionResponseContent(call, content)


def _result_text(part: dict[str, Any]) -> str:
    kind = text_of(part.get("type"), "type") or "file"
    return text_of(part.get("text"), "text") or file_note(kind, part.get("title"))
