"""`ScriptedModel`: a test model with prepared replies.

    model = ScriptedModel(["Hello!", [ToolCall("search", {"q": "rope"})], "Found it."])

Replies come in order, immediately and deterministically; the requests are recorded in `requests`.
More calls than scripted replies raise AssertionError, not ModelError, which a program would handle
and so hide the mismatch between test and program.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from threading import Lock
from typing import Any, TypeAlias, cast

from sennit.errors import InvalidTypeError, ModelError, short_repr
from sennit.messages.codec import dumps
from sennit.numbers import count, not_negative
from sennit.services.models.protocol import BlockingModel
from sennit.services.models.reply import (
    CallDelta,
    Delta,
    Finished,
    FinishReason,
    Item,
    ReasoningDelta,
    Reply,
    ReplyAssembler,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import TokenEstimator, tokens_of_chars


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A scripted tool call; arguments given as text are sent unchanged."""

    name: str
    """The name of the tool."""
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    """The arguments by name, or as JSON text."""
    id: str | None = None
    """The call's id; None for a generated, unique one."""

    def item(self, id: str) -> ReplyCall:
        """Return the call as an item of a reply."""
        raw = self.arguments
        arguments = raw if isinstance(raw, str) else dumps(dict(raw)).decode()
        return ReplyCall(id if self.id is None else self.id, self.name, arguments)


ScriptItem: TypeAlias = str | ToolCall | Item | BaseException
"""An item of a scripted list: an exception is raised after the items before it."""

Scripted: TypeAlias = (
    str
    | Reply
    | BaseException
    | Sequence[ScriptItem]
    | Callable[[ModelRequest], "Scripted | Awaitable[Scripted]"]
)
"""One scripted reply; a function is called with the request and returns any of the others."""


class ScriptedModel(BlockingModel):
    """A Model that returns prepared replies in order.

    Args:
        replies: See Scripted.
        name: The model's name.
        chunk: Characters per delta when streaming; None for each text and call in one delta.
        delay: Seconds before each delta, and before a reply that is not streamed.
        window: The context window it reports.
        streams: Whether it can stream; if not, streaming raises ModelError.
        supports_output_schema: Whether it reports support for structured output.

    Usage is estimated from the lengths of the texts, so it is deterministic.
    """

    def __init__(
        self,
        replies: Iterable[Scripted],
        name: str = "scripted",
        *,
        chunk: int | None = None,
        delay: float = 0,
        window: int | None = None,
        streams: bool = True,
        supports_output_schema: bool = False,
    ) -> None:
        if isinstance(replies, str):
            raise InvalidTypeError(
                f"Replies are a list, one for each call; got {short_repr(replies)}."
            )
        if chunk is not None:
            count(chunk, "chunk")
        not_negative(delay, "delay")
        self.name = name
        self.window = window
        self.streams = streams
        self.supports_output_schema = supports_output_schema
        self.requests: list[ModelRequest] = []
        """All requests in order; the first belongs to the first reply."""
        self._replies = tuple(replies)
        self._chunk = chunk
        self._delay = delay
        self._lock = Lock()
        self._estimator = TokenEstimator()

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {len(self._replies)} replies)"

    async def aask(self, request: ModelRequest) -> Reply:
        """Return the next reply; raises scripted exceptions."""
        reply = await self._next_reply(request)
        if self._delay:
            await _sleep(self._delay)
        assembly = ReplyAssembler()
        for delta in reply.deltas(None):
            assembly.feed(delta)
        return assembly.reply()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Stream the next reply; an exception as the whole reply is raised on entering."""
        if not self.streams:
            raise ModelError(f"Model {self.name!r} does not stream; ask it.", kind="bad_request")
        reply = await self._next_reply(request)
        yield _DelayedDeltas(reply.deltas(self._chunk), self._delay)

    def assert_complete(self) -> None:
        """Raise AssertionError unless every reply was used, and no more were requested."""
        asked, scripted = len(self.requests), len(self._replies)
        if asked > scripted:
            raise AssertionError(self._exhausted_message(asked))
        if asked < scripted:
            unused = "\n".join(
                f"  reply {number}: {short_repr(reply)}"
                for number, reply in enumerate(self._replies[asked:], asked + 1)
            )
            summary = f"Model {self.name!r} was asked {asked} of {scripted} times; unused replies:"
            raise AssertionError(f"{summary}\n{unused}")

    async def _next_reply(self, request: ModelRequest) -> _ScriptedReply:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if number > len(self._replies):
            raise AssertionError(self._exhausted_message(number))
        script = self._replies[number - 1]
        while callable(script):
            result = script(request)
            script = cast("Scripted", await result if isawaitable(result) else result)
        if isinstance(script, BaseException):
            raise script
        return _ScriptedReply(self.name, request, self._estimator, *_parse_script(script, number))

    def _exhausted_message(self, asked: int) -> str:
        replies = "1 reply" if len(self._replies) == 1 else f"{len(self._replies)} replies"
        return f"Model {self.name!r} has {replies}, but was asked {asked} times."


def _parse_script(script: Any, number: int) -> tuple[list[Item | BaseException], Reply | None]:
    """Return the deltas to send, and the whole reply if the script has one."""
    if isinstance(script, Reply):
        return [*script.items], cast("Reply", script)
    items: list[Item | BaseException] = []
    entries: Iterable[object] = [script] if isinstance(script, str) else script
    for position, entry in enumerate(entries, 1):
        match entry:
            case str():
                items.append(ReplyText(entry))
            case ToolCall():
                items.append(entry.item(f"call_{number}_{position}"))
            case ReplyText() | ReplyReasoning() | ReplyCall() | BaseException():
                items.append(entry)
            case _:
                raise InvalidTypeError(
                    f"A scripted reply consists of text, ToolCalls, reply items and exceptions, "
                    f"got {short_repr(entry)}."
                )
    return items, None


class _ScriptedReply:
    """The reply to one request."""

    def __init__(
        self,
        name: str,
        request: ModelRequest,
        estimator: TokenEstimator,
        items: list[Item | BaseException],
        reply: Reply | None,
    ) -> None:
        self._name = name
        self._request = request
        self._estimator = estimator
        self._items = items
        self._reply = reply

    def deltas(self, chunk: int | None) -> Iterator[Delta]:
        """Yield the deltas; a scripted exception is raised at its position."""
        calls = 0
        for item in self._items:
            match item:
                case ReplyText():
                    yield from (TextDelta(piece) for piece in _split_text(item.text, chunk))
                case ReplyReasoning():
                    yield from (ReasoningDelta(piece) for piece in _split_text(item.text, chunk))
                case ReplyCall():
                    yield from _call_deltas(calls, item, chunk)
                    calls += 1
                case _:
                    raise item
        yield self._finished(calls)

    def _finished(self, calls: int) -> Finished:
        if self._reply is not None:
            reply = self._reply
            return Finished(reply.finish, reply.usage, reply.model or self._name, reply.state)
        reason: FinishReason = "tool_calls" if calls else "stop"
        return Finished(reason, self._usage(), self._name)

    def _usage(self) -> Usage:
        text_chars, reasoning_chars = 0, 0
        for item in self._items:
            match item:
                case ReplyText():
                    text_chars += len(item.text)
                case ReplyReasoning():
                    reasoning_chars += len(item.text)
                case ReplyCall():
                    text_chars += len(item.name) + len(item.arguments)
                case _:
                    pass
        input_tokens, reasoning = (
            self._estimator.tokens(self._request),
            tokens_of_chars(reasoning_chars),
        )
        return Usage(
            input_tokens, tokens_of_chars(text_chars) + reasoning, reasoning_tokens=reasoning
        )


def _call_deltas(index: int, call: ReplyCall, chunk: int | None) -> Iterator[Delta]:
    first, *rest = _split_text(call.arguments, chunk) or [""]
    yield CallDelta(index, call.id, call.name, first)
    for piece in rest:
        yield CallDelta(index, arguments=piece)


def _split_text(text: str, chunk: int | None) -> list[str]:
    step = chunk or len(text) or 1
    return [text[start : start + step] for start in range(0, len(text), step)]


class _DelayedDeltas:
    """Deltas, each after a delay."""

    __slots__ = ("_delay", "_deltas")

    def __init__(self, deltas: Iterator[Delta], delay: float) -> None:
        self._deltas = deltas
        self._delay = delay

    def __aiter__(self) -> _DelayedDeltas:
        return self

    async def __anext__(self) -> Delta:
        if self._delay:
            await _sleep(self._delay)
        for delta in self._deltas:
            return delta
        raise StopAsyncIteration


async def _sleep(seconds: float) -> None:
    import anyio  # late: only scripts with delays need it

    await anyio.sleep(seconds)
