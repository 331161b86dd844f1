"""Redaction of exported rows.

Every text that someone said goes through the caller's function: words, arguments of calls, results,
addresses of pictures. What gives a row its form does not (roles, ids, names of tools, the schemas
of tools), and JSON inside a text is read first, so a row that was valid stays valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from sennit.errors import ValidationError, shown
from sennit.learning.export.formats import Row
from sennit.messages.codec import dumps, loads

Redact: TypeAlias = Callable[[str], str]
"""Gives a text as it may be shown."""

_FORM = frozenset({"role", "type", "id", "tool_call_id", "from", "name", "tools", "detail"})


def redacted(row: Row, redact: Redact) -> Row:
    """A row with every text as it may be shown; raises ValidationError if one became no text."""

    def text(said: str) -> str:
        found: Any = redact(said)
        if not isinstance(found, str):
            raise ValidationError(f"redact must return a string, got {shown(found)}.")
        return found

    return _chat(row, text)


def _chat(value: Any, redact: Redact) -> Any:
    """Messages and what holds them: only some of their fields are texts that someone said."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_chat(one, redact) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Row", value)
    if fields.get("from") == "function_call":
        return {**fields, "value": _in_text(fields["value"], _chat, redact)}
    return {name: _field(name, one, redact) for name, one in fields.items()}


def _field(name: str, value: Any, redact: Redact) -> Any:
    if name in _FORM:
        return value
    if name == "arguments":
        return _in_text(value, _named, redact) if isinstance(value, str) else _named(value, redact)
    return _chat(value, redact)


def _in_text(said: str, walk: Callable[[Any, Redact], Any], redact: Redact) -> str:
    """The same for data that stands in a text as JSON."""
    return dumps(walk(loads(said), redact)).decode()


def _named(value: Any, redact: Redact) -> Any:
    """Arguments of a call: their names are the tool's, what they hold someone said."""
    if not isinstance(value, dict):
        return _all(value, redact)
    return {name: _all(one, redact) for name, one in cast("Row", value).items()}


def _all(value: Any, redact: Redact) -> Any:
    """Data that someone said: all its texts, the keys too; equal keys are told apart."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_all(one, redact) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        found: Row = {}
        for name, one in cast("Row", value).items():
            key = redact(name)
            while key in found:
                key += "_"
            found[key] = _all(one, redact)
        return found
    return value
