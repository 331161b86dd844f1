"""Conversations of ChatGPT's data export.

A conversation is a tree in `mapping`: node id to `{message, parent, children}`. Edited questions
and regenerated answers are siblings, and `current_node` ends the path that ChatGPT shows. Hidden
nodes are left out. Calls of built-in tools and their results have no call ids, so they become text
of the assistant with a note of the tool; files become a note with their name. The marks of
citations, which only ChatGPT's page can draw, become the links that the export gives for them.
"""

from __future__ import annotations

import re
from typing import Any

from sennit.messages.content import (
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    SystemContent,
)
from sennit.messages.unset import or_unset
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

_TEXT_FIELDS = ("text", "result", "user_profile", "user_instructions")
_ASSET = "asset_pointer"
_CITATION = re.compile("\ue200[^\ue200\ue201]*\ue201")


def chat_of(entry: dict[str, Any]) -> Chat:
    """Convert an entry of `conversations.json`; raises ValidationError."""
    mapping = dict_of(entry.get("mapping"), "mapping")
    reasoning: dict[str, str] = {}
    nodes = {key: _node(key, dict_of(node, "A node"), reasoning) for key, node in mapping.items()}
    id = text_of(entry.get("conversation_id") or entry.get("id"), "The conversation's id")
    return Chat(
        id=id or next(iter(nodes), ""),
        nodes=_with_reasoning(nodes, reasoning),
        has_own_ids=True,
        title=text_of(entry.get("title"), "title"),
        created=seconds(entry.get("create_time")),
        tip=text_of(entry.get("current_node"), "current_node"),
    )


def _node(key: str, node: dict[str, Any], reasoning: dict[str, str]) -> ChatNode:
    """Convert a node; the text of a reasoning node is put into `reasoning`."""
    parent = text_of(node.get("parent"), "parent")
    message = dict_of(node.get("message"), "message")
    if not message:
        return ChatNode(parent=parent)
    author = dict_of(message.get("author"), "author")
    metadata = dict_of(message.get("metadata"), "metadata")
    content = dict_of(message.get("content"), "content")
    if content.get("content_type") == "thoughts":
        thoughts = dicts_of(content.get("thoughts"), "thoughts")
        reasoning[key] = _joined([*map(_thought, thoughts)])
    name = text_of(author.get("name"), "name") or "tool"
    contents = _contents(author.get("role"), name, message, content, metadata)
    model = text_of(metadata.get("model_slug"), "model_slug")
    return ChatNode(
        contents=() if contents is None else (contents,),
        parent=parent,
        created=seconds(message.get("create_time")),
        metadata={"model": model} if model and author.get("role") == "assistant" else {},
    )


def _contents(
    role: Any,
    name: str,
    message: dict[str, Any],
    content: dict[str, Any],
    metadata: dict[str, Any],
) -> MessageContent | None:
    """Return the content of a message, None if it is hidden or empty."""
    if role == "system" or metadata.get("is_user_system_message"):
        instructions = dict_of(metadata.get("user_context_message_data"), "Custom instructions")
        return _system([_text(content), *map(_as_text, instructions.values())])
    if content.get("content_type") in ("user_editable_context", "model_editable_context"):
        return _system([_text(content)])
    hidden = metadata.get("is_visually_hidden_from_conversation")
    if hidden or content.get("content_type") in ("thoughts", "reasoning_recap"):
        return None
    attachments = dicts_of(metadata.get("attachments"), "attachments")
    notes = [file_note("attachment", item.get("name")) for item in attachments]
    text = _joined([_with_citations(_text(content), metadata), *notes])
    if not text:
        return None
    if role == "user":
        return InstructionContent(instruction=text)
    if role == "tool":
        return AssistantResponseContent(f"[result of {name}]\n{text}")
    recipient = text_of(message.get("recipient"), "recipient") or "all"
    return AssistantResponseContent(
        text if recipient == "all" else f"[call of {recipient}]\n{text}"
    )


def _system(texts: list[str]) -> MessageContent | None:
    text = _joined(texts)
    return SystemContent(text) if text else None


def _text(content: dict[str, Any]) -> str:
    parts = [_part(part) for part in list_of(content.get("parts"), "parts")]
    return _joined([*parts, *(_as_text(content.get(name)) for name in _TEXT_FIELDS)])


def _part(part: Any) -> str:
    if part is None or isinstance(part, str):
        return part or ""
    if isinstance(part, (int, float)):
        return str(part)
    fields = dict_of(part, "A part")
    kind = text_of(fields.get("content_type"), "content_type") or "file"
    if text := _as_text(fields.get("text")):
        return text
    nested = fields.get("audio_asset_pointer")
    asset = fields.get(_ASSET) or (nested.get(_ASSET) if isinstance(nested, dict) else None)  # pyright: ignore
    return file_note(kind.removesuffix("_asset_pointer"), asset)


def _with_citations(text: str, metadata: dict[str, Any]) -> str:
    """Replace the marks of citations by their links; remove those without one."""
    if "\ue200" not in text:
        return text
    links: dict[str, str] = {}
    for reference in dicts_of(metadata.get("content_references"), "content_references"):
        mark, link = reference.get("matched_text"), reference.get("alt")
        if isinstance(mark, str) and isinstance(link, str):
            links[mark] = link
    return _CITATION.sub(lambda match: links.get(match[0], ""), text)


def _thought(thought: dict[str, Any]) -> str:
    return _as_text(thought.get("content")) or _as_text(thought.get("summary"))


def _as_text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _joined(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _with_reasoning(nodes: dict[str, ChatNode], reasoning: dict[str, str]) -> dict[str, ChatNode]:
    """Give each reasoning to the answers that follow it."""
    if not reasoning:
        return nodes
    return {key: _reasoned(node, nodes, reasoning) for key, node in nodes.items()}


def _reasoned(node: ChatNode, nodes: dict[str, ChatNode], reasoning: dict[str, str]) -> ChatNode:
    if not node.contents or not isinstance(node.contents[0], AssistantResponseContent):
        return node
    texts: list[str] = []
    above, seen = node.parent, set[str]()
    while above in nodes and not nodes[above].contents and above not in seen:
        seen.add(above)
        texts.append(reasoning.get(above, ""))
        above = nodes[above].parent
    text = or_unset(_joined(texts[::-1]) or None)
    content = AssistantResponseContent(node.contents[0].assistant_response, text)
    return ChatNode((content,), node.parent, node.created, node.metadata)
