"""`messages.jsonl`: one line per message group.

A group that was added by role and parts comes back exactly. A message that was added by itself, or
whose group is incomplete, gets a line of its own; a tool call and its result share one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sennit import clock
from sennit.errors import ValidationError
from sennit.memory.uri import is_name
from sennit.messages.codec import dumps
from sennit.messages.content import ActionRequestContent, ActionResponseContent, MessageRole
from sennit.messages.message import Message
from sennit.messages.parts import MessageGroup, Part, ToolPart, part_to_dict

_ROLES = {MessageRole.USER: "user", MessageRole.SYSTEM: "system"}


def lines(messages: Iterable[Message]) -> str:
    """Return the lines of these messages, in order; each ends with a newline."""
    ordered = list(messages)
    results = _ToolResults(ordered)
    return "".join(
        line + "\n"
        for _, group in groupby(ordered, key=_group)
        for line in _lines(list(group), results)
    )


class _ToolResults:
    """Matches tool results to their calls."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._results = {
            str(message.content.request_id): message.content
            for message in messages
            if isinstance(message.content, ActionResponseContent)
        }
        self._calls = {
            name
            for message in messages
            if isinstance(message.content, ActionRequestContent)
            for name in (str(message.id), message.content.call_id)
        }

    def is_shown_with_its_call(self, message: Message) -> bool:
        """Return whether this is a tool result whose call is among the messages."""
        content = message.content
        return isinstance(content, ActionResponseContent) and content.request_id in self._calls

    def parts(self, message: Message) -> list[Part]:
        """Return the parts of a message; a call comes with its result."""
        parts = message.parts
        if isinstance(message.content, ActionRequestContent) and isinstance(parts[0], ToolPart):
            result = self._results.get(parts[0].tool_id or "") or self._results.get(str(message.id))
            if result is not None:
                parts[0] = replace(parts[0], output=result.result, error=result.error)
        return parts


def group_id(message: Message) -> str | None:
    """Return the id of the group that a message was added in, if any."""
    match message.metadata.get("group"):
        case {"id": str(uid)}:
            return uid
        case _:
            return None


def _group(message: Message) -> str:
    return group_id(message) or str(message.id)


def _lines(group: Sequence[Message], results: _ToolResults) -> Iterator[str]:
    if group_id(group[0]) is not None:
        try:
            yield MessageGroup.of(group).to_json()
            return
        except ValidationError:  # some were erased, or archived with another branch
            pass
    for message in group:
        if not results.is_shown_with_its_call(message):
            yield _line(message, results)


def _line(message: Message, results: _ToolResults) -> str:
    return dumps(
        {
            "id": f"msg_{message.id}",
            "role": _ROLES.get(message.role, "assistant"),
            "parts": [part_to_dict(part) for part in results.parts(message)],
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    ).decode()


def tools(messages: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """Return the tool calls as `tool.json` shows them, by the name of their folder."""
    results = _ToolResults(messages)
    by_folder: dict[str, dict[str, Any]] = {}
    for message in messages:
        if not isinstance(message.content, ActionRequestContent):
            continue
        call = message.content.call_id
        name = call if isinstance(call, str) and is_name(call) else str(message.id)
        name = str(message.id) if name in by_folder else name
        fields = part_to_dict(results.parts(message)[0])
        del fields["type"]
        by_folder[name] = {
            **fields,
            "tool_id": name,
            "message_id": str(message.id),
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    return by_folder
