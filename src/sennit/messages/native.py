"""From a conversation to the messages of a chat API with tool calling.

The form the turn loop sends: the system message apart, one assistant message with all the tool
calls of a turn, one tool message per call. The history is repaired on the way, so that whatever
happened to it (a crash, a cancel, an import), every provider accepts what comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sennit.messages.codec import dumps
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
)
from sennit.messages.prepare import (
    Messages,
    NewInstruction,
    Order,
    as_history,
    chosen,
    instruction_of,
)
from sennit.messages.repair import Turn, repaired_turns
from sennit.messages.unset import Unset

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def to_model_messages(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
) -> list[dict[str, Any]]:
    """The conversation as chat messages with native tool calls; new_instruction comes last.

    Raises NotFoundError for an id in `progression` that is not among the messages.
    """
    turns = repaired_turns(chosen(messages, progression))
    if new_instruction is not None:
        turns.append(Turn([instruction_of(new_instruction)]))
    newest = _unanswered(turns)
    return [
        message
        for turn in turns
        for message in (_assistant(turn) if turn.speaks else _other(turn.said[0], turn is newest))
    ]


def _unanswered(turns: list[Turn]) -> Turn | None:
    """The newest instruction, as long as no text has answered it: it keeps its response model."""
    for turn in reversed(turns):
        if isinstance(turn.said[0], InstructionContent):
            return turn
        if any(isinstance(content, AssistantResponseContent) for content in turn.said):
            return None
    return None


def _other(content: MessageContent, newest: bool) -> Iterable[dict[str, Any]]:
    """A system message or an instruction; one that says nothing is left out."""
    if isinstance(content, InstructionContent):
        said = _instruction(content if newest else as_history(content))
    else:
        said = content.rendered
    if said:
        yield {"role": content.role.value, "content": said}


def _instruction(content: InstructionContent) -> str | list[dict[str, Any]]:
    """An instruction that is only text goes as it was typed; anything more, under its headings."""
    more = content.context or content.tool_schemas or content.response_model is not Unset
    said = content.text if more else content.instruction or ""
    return content.blocks(said) if content.images else said


def _assistant(turn: Turn) -> Iterable[dict[str, Any]]:
    """One assistant message with its texts and calls, then a tool message per call."""
    texts = [
        content.assistant_response
        for content in turn.said
        if isinstance(content, AssistantResponseContent) and content.assistant_response
    ]
    contents = turn.contents
    calls = [_call(content) for content in contents if isinstance(content, ActionRequestContent)]
    if not texts and not calls:
        return
    message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    yield message
    for content in contents:
        if isinstance(content, ActionResponseContent):
            yield {
                "role": "tool",
                "tool_call_id": content.request_id,
                "content": tool_text(content),
            }


def _call(content: ActionRequestContent) -> dict[str, Any]:
    # Providers refuse a whole conversation for one odd name, and models do invent odd names.
    name = _NOT_IN_A_NAME.sub("_", content.function or "")[:64] or "unknown"
    return {
        "id": content.call_id,
        "type": "function",
        "function": {"name": name, "arguments": dumps(content.arguments or {}).decode()},
    }


def tool_text(content: ActionResponseContent) -> str:
    """What the model reads of a tool's result: text as it is, other values as JSON."""
    if content.error is not Unset:
        return f"Error: {content.error}"
    if content.result is Unset:
        return ""
    return content.result if isinstance(content.result, str) else dumps(content.result).decode()
