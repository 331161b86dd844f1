"""`ScriptedModel`: a model that gives prepared replies.

    model = ScriptedModel(["Hello!", [ToolCall("search", {"q": "rope"})], "Found it."])

Replies come in order, at once, and the same every time; what it was asked is kept in `requests`.
Asking for more than was scripted is an AssertionError, not a ModelError: a program handles those,
and would hide that the test and the program disagree.
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

from sennit.errors import InvalidTypeError, ModelError, shown
from sennit.messages.codec import dumps
from sennit.services.models.limits.validators import count, not_negative
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
from sennit.services.models.usage import TokenEstimator, tokens_in


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model is to call; arguments may be a text, to be sent as it is."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None
    """The call's id; None for one that no other call of the script has."""

    def item(self, id: str) -> ReplyCall:
        """The call as models make it."""
        given = self.arguments
        arguments = given if isinstance(given, str) else dumps(dict(given)).decode()
        return ReplyCall(id if self.id is None else self.id, self.name, arguments)


Said: TypeAlias = str | ToolCall | Item | BaseException
"""What may stand in a list: an exception is raised once what stands before it was said."""

Scripted: TypeAlias = (
    str
    | Reply
    | BaseException
    | Sequence[Said]
    | Callable[[ModelRequest], "Scripted | Awaitable[Scripted]"]
)
"""One reply of a script; a function is called with the request and gives any of the others."""


class ScriptedModel:
    """A Model that gives the replies it was made with, in order.

    Args:
        replies: See Scripted.
        name: What it goes by.
        chunk: Characters per delta when streaming; None for each text and call in one piece.
        delay: Seconds before each delta, and before a reply that is not streamed.
        window: The window it says it has.
        streams: Whether it can stream; if not, streaming is a ModelError.
        shapes_output: Whether it says that it can be held to a schema.

    Usage is estimated from the lengths of the texts, always the same for the same script.
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
        shapes_output: bool = False,
    ) -> None:
        if isinstance(replies, str):
            raise InvalidTypeError(f"Replies are a list, one for each call; got {shown(replies)}.")
        if chunk is not None:
            count(chunk, "chunk")
        not_negative(delay, "delay")
        self.name = name
        self.window = window
        self.streams = streams
        self.shapes_output = shapes_output
        self.requests: list[ModelRequest] = []
        """All it was asked, in order; the first belongs to the first reply."""
        self._replies = tuple(replies)
        self._chunk = chunk
        self._delay = delay
        self._lock = Lock()
        self._estimator = TokenEstimator()

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {len(self._replies)} replies)"

    async def ask(self, request: ModelRequest) -> Reply:
        """The next reply; raises what the script says."""
        lines = await self._lines(request)
        if self._delay:
            await _sleep(self._delay)
        assembly = ReplyAssembler()
        for delta in lines.deltas(None):
            assembly.feed(delta)
        return assembly.reply()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """The next reply as deltas; an exception that is a whole reply is raised on entering."""
        if not self.streams:
            raise ModelError(f"Model {self.name!r} does not stream; ask it.", kind="bad_request")
        lines = await self._lines(request)
        yield _Told(lines.deltas(self._chunk), self._delay)

    def assert_complete(self) -> None:
        """Raise AssertionError unless it was asked for every reply, and for no more."""
        asked, scripted = len(self.requests), len(self._replies)
        if asked > scripted:
            raise AssertionError(self._asked_too_often(asked))
        if asked < scripted:
            left = "\n".join(
                f"  reply {number}: {shown(reply)}"
                for number, reply in enumerate(self._replies[asked:], asked + 1)
            )
            told = f"Model {self.name!r} was asked {asked} of {scripted} times; nobody asked for"
            raise AssertionError(f"{told}\n{left}")

    async def _lines(self, request: ModelRequest) -> _Lines:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if number > len(self._replies):
            raise AssertionError(self._asked_too_often(number))
        script = self._replies[number - 1]
        while callable(script):
            given = script(request)
            script = cast("Scripted", await given if isawaitable(given) else given)
        if isinstance(script, BaseException):
            raise script
        return _Lines(self.name, request, self._estimator, *_said(script, number))

    def _asked_too_often(self, asked: int) -> str:
        replies = "1 reply" if len(self._replies) == 1 else f"{len(self._replies)} replies"
        return f"Model {self.name!r} has {replies}, but was asked {asked} times."


def _said(script: Any, number: int) -> tuple[list[Item | BaseException], Reply | None]:
    """Return the deltas to send, and the whole reply if the script has one."""
    if isinstance(script, Reply):
        return [*script.items], script
    said: list[Item | BaseException] = []
    lines: Iterable[object] = [script] if isinstance(script, str) else script
    for place, one in enumerate(lines, 1):
        match one:
            case str():
                said.append(ReplyText(one))
            case ToolCall():
                said.append(one.item(f"call_{number}_{place}"))
            case ReplyText() | ReplyReasoning() | ReplyCall() | BaseException():
                said.append(one)
            case _:
                raise InvalidTypeError(f"A model cannot say {shown(one)}; see Said.")
    return said, None


class _Lines:
    """The reply to one request."""

    def __init__(
        self,
        name: str,
        request: ModelRequest,
        estimator: TokenEstimator,
        said: list[Item | BaseException],
        whole: Reply | None,
    ) -> None:
        self._name = name
        self._request = request
        self._estimator = estimator
        self._said = said
        self._whole = whole

    def deltas(self, chunk: int | None) -> Iterator[Delta]:
        """Piece by piece; raises an exception where it stands."""
        calls = 0
        for item in self._said:
            match item:
                case ReplyText():
                    yield from (TextDelta(piece) for piece in _pieces(item.text, chunk))
                case ReplyReasoning():
                    yield from (ReasoningDelta(piece) for piece in _pieces(item.text, chunk))
                case ReplyCall():
                    yield from _call(calls, item, chunk)
                    calls += 1
                case _:
                    raise item
        yield self._end(calls)

    def _end(self, calls: int) -> Finished:
        if self._whole is not None:
            whole = self._whole
            return Finished(whole.finish, whole.usage, whole.model or self._name)
        reason: FinishReason = "tool_calls" if calls else "stop"
        return Finished(reason, self._usage(), self._name)

    def _usage(self) -> Usage:
        letters, thought = 0, 0
        for item in self._said:
            match item:
                case ReplyText():
                    letters += len(item.text)
                case ReplyReasoning():
                    thought += len(item.text)
                case ReplyCall():
                    letters += len(item.name) + len(item.arguments)
                case _:
                    pass
        sent, reasoning = self._estimator.tokens(self._request), tokens_in(thought)
        return Usage(sent, tokens_in(letters) + reasoning, reasoning_tokens=reasoning)


def _call(index: int, call: ReplyCall, chunk: int | None) -> Iterator[Delta]:
    first, *rest = _pieces(call.arguments, chunk) or [""]
    yield CallDelta(index, call.id, call.name, first)
    for piece in rest:
        yield CallDelta(index, arguments=piece)


def _pieces(text: str, chunk: int | None) -> list[str]:
    step = chunk or len(text) or 1
    return [text[start : start + step] for start in range(0, len(text), step)]


class _Told:
    """Deltas, one by one, each after a delay."""

    __slots__ = ("_delay", "_deltas")

    def __init__(self, deltas: Iterator[Delta], delay: float) -> None:
        self._deltas = deltas
        self._delay = delay

    def __aiter__(self) -> _Told:
        return self

    async def __anext__(self) -> Delta:
        if self._delay:
            await _sleep(self._delay)
        for delta in self._deltas:
            return delta
        raise StopAsyncIteration


async def _sleep(seconds: float) -> None:
    import anyio  # only scripts with delays need it

    await anyio.sleep(seconds)
