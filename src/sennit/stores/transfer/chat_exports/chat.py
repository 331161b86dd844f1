"""A conversation of another program, as a tree of nodes.

Each format is converted to these values, and `import_chats` writes them. A node becomes zero or
more messages; one without contents (a hidden node) only connects its children to its parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from sennit import clock
from sennit.errors import ValidationError, short_repr
from sennit.messages.content import MessageContent


@dataclass(frozen=True, slots=True)
class ChatNode:
    """A node of the tree: contents of one sender at one time."""

    contents: tuple[MessageContent, ...] = ()
    parent: str | None = None
    """The key of the node before it; one that does not exist is taken for None."""
    created: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation."""

    id: str
    """Its id in the other program."""
    nodes: Mapping[str, ChatNode]
    has_own_ids: bool
    """Whether the keys of nodes are ids of the source; else nodes are identified by their text and
    by what comes before them."""
    title: str | None = None
    created: int | None = None
    tip: str | None = None
    """The last node of the path that the other program showed."""


def seconds(value: Any) -> int | None:
    """Return seconds since 1970 as microseconds, None if there are none."""
    if value is None or isinstance(value, bool):
        return None
    if not isinstance(value, (int, float)) or not -62e9 < value < 253e9:
        raise ValidationError(f"A time is in seconds since 1970, got {short_repr(value)}.")
    return int(value * 1_000_000)


def iso_time(value: Any) -> int | None:
    """Return an ISO 8601 time as microseconds, UTC if it names no zone; None if there is none."""
    if value is None or value == "":
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValidationError(f"Expected an ISO 8601 time, got {short_repr(value)}.") from None
    return clock.from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def text_of(value: Any, name: str) -> str | None:
    """Return text or None, with empty text as None; raises ValidationError for anything else."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValidationError(f"{name} must be text, got {short_repr(value)}.")
    return value


def dict_of(value: Any, name: str) -> dict[str, Any]:
    """Return a dict, empty for None; raises ValidationError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValidationError(f"{name} must be an object, got {short_repr(value)}.")
    return cast("dict[str, Any]", value)


def list_of(value: Any, name: str) -> list[Any]:
    """Return a list, empty for None; raises ValidationError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValidationError(f"{name} must be a list, got {short_repr(value)}.")
    return cast("list[Any]", value)


def dicts_of(value: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; raises ValidationError for anything else."""
    return (dict_of(item, name) for item in list_of(value, name))


def file_note(kind: str, name: Any) -> str:
    """Return the line that stands for a file whose content is not part of the import."""
    return f"[{kind}: {name}]" if isinstance(name, str) and name else f"[{kind}]"
