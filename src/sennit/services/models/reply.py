"""Model replies: deltas as they stream, and the assembled reply.

A delta is an increment, never the text so far; whoever adapts a provider sees to that. Folding the
deltas of a stream gives the same Reply as asking without streaming, so there is one form to store.
The order of items is the order of arrival: text after a call is text after a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sennit.ids import new_id

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money; adding two gives both together."""

    input_tokens: int = 0
    """All that was sent, cached or not."""
    output_tokens: int = 0
    """All that was said, reasoning included."""
    cached_tokens: int = 0
    """Those of the input that the provider had read before."""
    reasoning_tokens: int = 0
    """Those of the output that were spent on thinking."""
    cost: float | None = None
    """US dollars; None where nobody knows the price."""

    def __add__(self, other: Usage) -> Usage:
        costs = [one.cost for one in (self, other) if one.cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(costs) if costs else None,
        )

    def noted(self) -> dict[str, Any]:
        """Return the usage as a message stores it."""
        told = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: value for name, value in told if value}


NO_USAGE = Usage()
"""Neither tokens nor money."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what it thinks aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of a tool call; `index` says of which one, in the order in which they began."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    """More of the arguments, as JSON text."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a stream; exactly one, and the last."""

    reason: FinishReason
    usage: Usage = Usage()
    model: str = ""
    """The model that answered, as the provider calls it."""


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Finished


@dataclass(frozen=True, slots=True)
class ReplyText:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyReasoning:
    """A piece of thinking aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A tool the model wants called. The arguments are as it wrote them, sound JSON or not."""

    id: str
    name: str
    arguments: str


Item: TypeAlias = ReplyText | ReplyReasoning | ReplyCall


@dataclass(frozen=True, slots=True)
class Reply:
    """All a model said to one request, in the order of arrival."""

    items: tuple[Item, ...]
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""

    @property
    def text(self) -> str:
        """The answer without reasoning and calls."""
        return "".join(item.text for item in self.items if isinstance(item, ReplyText))

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        return "".join(item.text for item in self.items if isinstance(item, ReplyReasoning))

    @property
    def calls(self) -> tuple[ReplyCall, ...]:
        """The tools it wants called."""
        return tuple(item for item in self.items if isinstance(item, ReplyCall))

    @property
    def cut_off(self) -> ReplyCall | None:
        """A call whose arguments the length limit may have cut; it must not be run."""
        last = self.items[-1] if self.items else None
        return last if self.finish == "length" and isinstance(last, ReplyCall) else None

    def deltas(self) -> Iterable[Delta]:
        """The same as a stream."""
        calls = 0
        for item in self.items:
            match item:
                case ReplyText():
                    yield TextDelta(item.text)
                case ReplyReasoning():
                    yield ReasoningDelta(item.text)
                case ReplyCall():
                    yield CallDelta(calls, item.id, item.name, item.arguments)
                    calls += 1
        yield Finished(self.finish, self.usage, self.model)


@dataclass(slots=True)
class _Open:
    """An item that is still growing."""

    kind: type[ReplyText | ReplyReasoning | ReplyCall]
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def item(self, id: str) -> Item:
        said = "".join(self.pieces)
        return ReplyCall(id, self.name, said) if self.kind is ReplyCall else self.kind(said)  # type: ignore


class ReplyAssembler:
    """Folds deltas into a Reply; what has come so far can be looked at any time."""

    def __init__(self) -> None:
        self._items: list[_Open] = []
        self._calls: dict[int, _Open] = {}
        self.finished: Finished | None = None
        """The end of the stream, once it has come."""

    def feed(self, delta: Delta) -> None:
        """Take in the next delta."""
        match delta:
            case TextDelta():
                self._say(ReplyText, delta.text)
            case ReasoningDelta():
                self._say(ReplyReasoning, delta.text)
            case CallDelta():
                self._call(delta)
            case Finished():
                self.finished = delta

    def _say(self, kind: type[ReplyText | ReplyReasoning], said: str) -> None:
        if not said:
            return
        if not self._items or self._items[-1].kind is not kind:
            self._items.append(_Open(kind))
        self._items[-1].pieces.append(said)

    def _call(self, delta: CallDelta) -> None:
        found = self._calls.get(delta.index)
        if found is None:
            found = self._calls[delta.index] = _Open(ReplyCall)
            self._items.append(found)
        found.id = found.id or delta.id
        found.name += delta.name
        found.pieces.append(delta.arguments)

    def reply(self) -> Reply:
        """Return the reply so far; a stream without an end counts as an error."""
        end = self.finished or Finished("error")
        taken: set[str] = set()
        items = tuple(one.item(_unique(one.id, taken)) for one in self._items)
        return Reply(items, end.reason, end.usage, end.model)


def _unique(id: str, taken: set[str]) -> str:
    """An id no other call of the reply has; providers leave them blank, or use one twice."""
    if not id or id in taken:
        id = f"call_{new_id().hex}"
    taken.add(id)
    return id
