"""Redaction of exported rows.

Every text of a conversation is passed to the caller's function: messages, arguments of tool calls,
results, image URLs. Structural fields are not (roles, ids, names and schemas of tools), and JSON
inside a text is parsed first, so a valid row stays valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from sennit.errors import ValidationError, short_repr
from sennit.learning.export.formats import Row
from sennit.messages.codec import dumps, loads

Redact: TypeAlias = Callable[[str], str]
"""Returns the redacted text."""

_STRUCTURE = frozenset(
    {"role", "type", "id", "tool_call_id", "from", "name", "tools", "detail", "format"}
)


def redact_row(row: Row, redact: Redact) -> Row:
    """Return a redacted row; raises ValidationError if `redact` does not return a string."""

    def redact_text(text: str) -> str:
        redacted: Any = redact(text)
        if not isinstance(redacted, str):
            raise ValidationError(f"redact must return a string, got {short_repr(redacted)}.")
        return redacted

    return _redact_chat(row, redact_text)


def _redact_chat(value: Any, redact: Redact) -> Any:
    """Redact messages and containers of messages, except for structural fields."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redact_chat(item, redact) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Row", value)
    if fields.get("from") == "function_call":
        return {**fields, "value": _redact_json(fields["value"], _redact_chat, redact)}
    return {name: _redact_field(name, field, redact) for name, field in fields.items()}


def _redact_field(name: str, value: Any, redact: Redact) -> Any:
    if name in _STRUCTURE:
        return value
    if name == "arguments":
        if isinstance(value, str):
            return _redact_json(value, _redact_arguments, redact)
        return _redact_arguments(value, redact)
    return _redact_chat(value, redact)


def _redact_json(text: str, redact_data: Callable[[Any, Redact], Any], redact: Redact) -> str:
    """Redact JSON inside a text."""
    return dumps(redact_data(loads(text), redact)).decode()


def _redact_arguments(value: Any, redact: Redact) -> Any:
    """Redact the arguments of a tool call, but not their names."""
    if not isinstance(value, dict):
        return _redact_all(value, redact)
    return {name: _redact_all(argument, redact) for name, argument in cast("Row", value).items()}


def _redact_all(value: Any, redact: Redact) -> Any:
    """Redact all texts in data, including keys; keys that become equal get a suffix."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redact_all(item, redact) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        redacted: Row = {}
        for name, item in cast("Row", value).items():
            key = redact(name)
            while key in redacted:
                key += "_"
            redacted[key] = _redact_all(item, redact)
        return redacted
    return value
