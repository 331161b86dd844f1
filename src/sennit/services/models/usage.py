"""Usage and cost of model calls.

A call counts once its reply is complete; the tokens of a stream that was left early are known to
nobody. Estimates are for what has to be decided beforehand, and for models that report nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any, cast

from sennit import clock
from sennit.messages.typescript import ToolSchema
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Finished, Reply, Usage
from sennit.services.models.request import ModelRequest
from sennit.services.models.wrapper import ModelWrapper, ObservedStream

_LETTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One call that was answered."""

    model: str
    """The name it is registered under."""
    answered_by: str
    """The model as the provider calls it."""
    usage: Usage
    seconds: float
    """From asking to the last word, waits and further tries included."""
    at: datetime
    """When it was asked."""


class Meter:
    """Adds up what calls used; one may serve several models, from many threads.

    `each` is called with every UsageRecord, in the thread of the call; what it raises, the caller
    of the model gets.
    """

    def __init__(self, each: Callable[[UsageRecord], object] | None = None) -> None:
        self._each = each
        self._lock = Lock()
        self._total = Usage()
        self._calls = 0

    @property
    def total(self) -> Usage:
        """All usage so far."""
        return self._total

    @property
    def calls(self) -> int:
        """The number of answered calls."""
        return self._calls

    def add(self, record: UsageRecord) -> None:
        """Count one call."""
        with self._lock:
            self._total += record.usage
            self._calls += 1
        if self._each is not None:
            self._each(record)

    def around(self, model: Model) -> Model:
        """`model`, with what it uses counted."""
        return _Metered(model, self)


class _Metered(ModelWrapper):
    def __init__(self, model: Model, meter: Meter) -> None:
        super().__init__(model)
        self._meter = meter

    async def ask(self, request: ModelRequest) -> Reply:
        count = self._counting()
        reply = await self._model.ask(request)
        count(Finished(reply.finish, reply.usage, reply.model))
        return reply

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        count = self._counting()
        async with self._model.stream(request) as deltas:
            yield ObservedStream(deltas, count)

    def _counting(self) -> Callable[[Finished], None]:
        at, began = clock.now_us(), clock.monotonic()

        def count(end: Finished) -> None:
            took = clock.monotonic() - began
            record = UsageRecord(self.name, end.model, end.usage, took, clock.to_datetime(at))
            self._meter.add(record)

        return count


def estimate_tokens(request: ModelRequest) -> int:
    """About how many tokens a request sends."""
    return tokens_in(letters_in(request.messages) + _offered(request))


class TokenEstimator:
    """The same for requests that follow one another: a history that only grew is not read again."""

    def __init__(self) -> None:
        self._read: tuple[list[Mapping[str, Any]], int] = ([], 0)

    def tokens(self, request: ModelRequest) -> int:
        """About how many tokens a request sends."""
        messages = list(request.messages)
        read, letters = self._read
        if messages[: len(read)] != read:  # nearly free where they are the same objects
            read, letters = [], 0
        letters += letters_in(messages[len(read) :])
        self._read = (messages, letters)
        return tokens_in(letters + _offered(request))


def letters_of_tools(tools: Iterable[ToolSchema]) -> int:
    """Return the number of characters in tool descriptions."""
    return sum(letters_in((tool.name, tool.description, tool.parameters)) for tool in tools)


def _offered(request: ModelRequest) -> int:
    letters = letters_of_tools(request.tools)
    if request.output is not None:
        letters += letters_in(request.output.schema)
    return letters


def tokens_in(letters: int) -> int:
    """About how many tokens a text of that length has."""
    return -(-letters // _LETTERS_PER_TOKEN)


def letters_in(value: object) -> int:
    """Return the number of characters in a text, or in all texts of a structure."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return sum(letters_in(key) + letters_in(item) for key, item in pairs)
    if isinstance(value, Sequence):
        return sum(letters_in(item) for item in cast("Sequence[Any]", value))
    return 0 if value is None else len(str(value))
