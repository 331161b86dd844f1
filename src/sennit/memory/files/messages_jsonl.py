"""`messages.jsonl`: one line per message group.

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
from sennit.memory.uri import is_name
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
    pairs = _Pairs(found)
    return "".join(
        line + "\n"
        for _, together in groupby(found, key=_group)
        for line in _lines(list(together), pairs)
    )


class _Pairs:
    """Matches tool results to their calls."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._results = {
            str(one.content.request_id): one.content
            for one in messages
            if isinstance(one.content, ActionResponseContent)
        }
        self._calls = {
            name
            for one in messages
            if isinstance(one.content, ActionRequestContent)
            for name in (str(one.id), one.content.call_id)
        }

    def is_shown_with_its_call(self, message: Message) -> bool:
        """Return whether this is a result whose call is there too."""
        content = message.content
        return isinstance(content, ActionResponseContent) and content.request_id in self._calls

    def parts(self, message: Message) -> list[Part]:
        """The parts of a message; a call comes with its result."""
        parts = message.parts
        if isinstance(message.content, ActionRequestContent) and isinstance(parts[0], ToolPart):
            found = self._results.get(parts[0].tool_id or "") or self._results.get(str(message.id))
            if found is not None:
                parts[0] = replace(parts[0], output=found.result, error=found.error)
        return parts


def group_id(message: Message) -> str | None:
    """The group that a message was said in, if it was said in one."""
    match message.metadata.get("group"):
        case {"id": str(uid)}:
            return uid
        case _:
            return None


def _group(message: Message) -> str:
    return group_id(message) or str(message.id)


def _lines(together: Sequence[Message], pairs: _Pairs) -> Iterator[str]:
    if group_id(together[0]) is not None:
        try:
            yield MessageGroup.of(together).to_json()
            return
        except ValidationError:  # some of them were erased, or archived with another branch
            pass
    for message in together:
        if not pairs.is_shown_with_its_call(message):
            yield _line(message, pairs)


def _line(message: Message, pairs: _Pairs) -> str:
    return dumps(
        {
            "id": f"msg_{message.id}",
            "role": _ROLES.get(message.role, "assistant"),
            "parts": [part_to_dict(part) for part in pairs.parts(message)],
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    ).decode()


def tools(messages: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """The tool calls among these, as `tool.json` shows them, by the name of their folder."""
    pairs = _Pairs(messages)
    found: dict[str, dict[str, Any]] = {}
    for message in messages:
        if not isinstance(message.content, ActionRequestContent):
            continue
        call = message.content.call_id
        name = call if isinstance(call, str) and is_name(call) else str(message.id)
        name = str(message.id) if name in found else name
        fields = part_to_dict(pairs.parts(message)[0])
        del fields["type"]
        found[name] = {
            **fields,
            "tool_id": name,
            "message_id": str(message.id),
            "created_at": clock.to_iso(message.created_us, "milliseconds"),
        }
    return found
