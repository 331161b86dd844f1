"""Usage and cost of model calls.

A call counts when its reply is complete; the usage of an abandoned stream is unknown. Estimates
serve decisions before a call, and models that report no usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, cast

from sennit.messages.media import chars_of_recording, estimated_chars
from sennit.messages.typescript import ToolSchema
from sennit.services.models.reply import Usage
from sennit.services.models.request import ModelRequest

_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """The usage of one completed call."""

    model: str
    """The name under which the model is registered."""
    answered_by: str
    """The provider's name for the model."""
    usage: Usage
    """The tokens of the call."""
    seconds: float
    """The duration of the call, including delays and retries."""
    at: datetime
    """The start of the call."""


class Meter:
    """A thread-safe counter of usage, which several models may share.

    `each` is called with every UsageRecord, in the thread of the call; its exceptions reach the
    caller of the model.
    """

    def __init__(self, each: Callable[[UsageRecord], object] | None = None) -> None:
        self._each = each
        self._lock = Lock()
        self._total = Usage()
        self._calls = 0

    @property
    def total(self) -> Usage:
        """The total usage so far."""
        return self._total

    @property
    def calls(self) -> int:
        """The number of completed calls."""
        return self._calls

    def add(self, record: UsageRecord) -> None:
        """Add one call."""
        with self._lock:
            self._total += record.usage
            self._calls += 1
        if self._each is not None:
            self._each(record)


def estimate_tokens(request: ModelRequest) -> int:
    """Estimate the input tokens of a request."""
    return tokens_of_chars(count_chars(request.messages) + _schema_chars(request))


class TokenEstimator:
    """An estimator for consecutive requests: a history that only grew is not counted again."""

    def __init__(self) -> None:
        self._counted: tuple[list[Mapping[str, Any]], int] = ([], 0)

    def tokens(self, request: ModelRequest) -> int:
        """Estimate the input tokens of a request."""
        messages = list(request.messages)
        counted, chars = self._counted
        if messages[: len(counted)] != counted:  # cheap if they are the same objects
            counted, chars = [], 0
        chars += count_chars(messages[len(counted) :])
        self._counted = (messages, chars)
        return tokens_of_chars(chars + _schema_chars(request))


def tool_char_count(tools: Iterable[ToolSchema]) -> int:
    """Return the number of characters in tool descriptions."""
    return sum(count_chars((tool.name, tool.description, tool.parameters)) for tool in tools)


def _schema_chars(request: ModelRequest) -> int:
    chars = tool_char_count(request.tools)
    if request.output is not None:
        chars += count_chars(request.output.schema)
    return chars


def tokens_of_chars(chars: int) -> int:
    """Estimate the tokens of a text by its length."""
    return -(-chars // _CHARS_PER_TOKEN)


def count_chars(value: object) -> int:
    """Return the number of characters in a text, or in all values of a structure."""
    if isinstance(value, str):
        kind = value[5:300].partition(";")[0] if value.startswith("data:") else None
        return len(value) if kind is None else estimated_chars(value, kind)
    if isinstance(value, Mapping):
        if value.get("type") == "input_audio":  # pyright: ignore[reportUnknownMemberType]
            return chars_of_recording(cast("Mapping[str, Any]", value))
        pairs = cast("Mapping[Any, Any]", value).items()
        return sum(count_chars(key) + count_chars(item) for key, item in pairs)
    if isinstance(value, Sequence):
        return sum(count_chars(item) for item in cast("Sequence[Any]", value))
    return 0 if value is None else len(str(value))
