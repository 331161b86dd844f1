"""Messages as lines: one for what was said together, as `messages.jsonl` shows them.

What was added by role and parts comes back exactly. A message that was added by itself, or has lost
others of its group, is a line of its own; a tool call and its result are one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sennit import clock
from sennit.errors import ValidationError
from sennit.messages.codec import dumps
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.messages.parts import MessageGroup, Part, ToolPart, part_to_dict

_ROLES = {MessageRole.USER: "user", MessageRole.SYSTEM: "system"}


def lines(messages: Iterable[Message]) -> str:
    """The lines of these messages, in order; each ends with a newline."""
    found = list(messages)
    results = _results(found)
    return "".join(
        line + "\n"
        for _, together in groupby(found, key=_group)
        for line in _lines(list(together), results)
    )


def group_id(message: Message) -> str | None:
    """The group that a message was said in, if it was said in one."""
    match message.metadata.get("group"):
        case {"id": str(uid)}:
            return uid
        case _:
            return None


def _group(message: Message) -> str:
    return group_id(message) or str(message.id)


def _lines(together: Sequence[Message], results: dict[str, Message]) -> Iterator[str]:
    if group_id(together[0]) is not None:
        try:
            yield MessageGroup.of(together).to_json()
            return
        except ValidationError:  # some of them were erased, or archived with another branch
            pass
    calls = {str(one.id) for one in together} | {
        one.content.call_id for one in together if isinstance(one.content, ActionRequestContent)
    }
    for message in together:
        content = message.content
        if isinstance(content, ActionResponseContent) and content.request_id in calls:
            continue  # shown with its call
        yield _line(message, results)


def _line(message: Message, results: dict[str, Message]) -> str:
    return dumps(
        {
            "id": f"msg_{message.id}",
            "role": _ROLES.get(message.role, "assistant"),
            "parts": [part_to_dict(_with_result(part, message, results)) for part in message.parts],
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    ).decode()


def _results(messages: Iterable[Message]) -> dict[str, Message]:
    """The results among these, by the call they belong to."""
    return {
        str(one.content.request_id): one
        for one in messages
        if isinstance(one.content, ActionResponseContent)
    }


def _with_result(part: Part, message: Message, results: dict[str, Message]) -> Part:
    if not isinstance(part, ToolPart) or not isinstance(message.content, ActionRequestContent):
        return part
    found = results.get(part.tool_id or "") or results.get(str(message.id))
    if found is None or not isinstance(found.content, ActionResponseContent):
        return part
    return replace(part, output=found.content.result, error=found.content.error)


def tools(messages: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """The tool calls among these, as `tool.json` shows them, by the name of their folder."""
    from sennit.memory.uri import is_name

    results = _results(messages)
    found: dict[str, dict[str, Any]] = {}
    for message in messages:
        if not isinstance(message.content, ActionRequestContent):
            continue
        part = _with_result(message.parts[0], message, results)
        call = message.content.call_id
        name = call if isinstance(call, str) and is_name(call) else str(message.id)
        name = str(message.id) if name in found else name
        fields = {key: value for key, value in part_to_dict(part).items() if key != "type"}
        found[name] = {
            **fields,
            "tool_id": name,
            "message_id": str(message.id),
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    return found
