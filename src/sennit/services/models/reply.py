"""Model replies: deltas as they stream, and the assembled reply.

A delta is an increment, never the text so far; each provider adapter ensures that. Assembling the
deltas of a stream gives the same Reply as a call without streaming, so there is one form to store.
Items keep their order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from sennit.ids import new_id
from sennit.messages.provider_state import ProviderState

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=None)
else:  # `default=` came with Python 3.13
    from typing import TypeVar

    T = TypeVar("T")

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost; usages can be added."""

    input_tokens: int = 0
    """Input tokens, including cached ones."""
    output_tokens: int = 0
    """Output tokens, including reasoning."""
    cached_tokens: int = 0
    """Input tokens read from the provider's prompt cache."""
    reasoning_tokens: int = 0
    """Output tokens spent on reasoning."""
    cost: float | None = None
    """US dollars; None if the price is unknown."""

    def __add__(self, other: Usage) -> Usage:
        costs = [usage.cost for usage in (self, other) if usage.cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(costs) if costs else None,
        )

    def to_metadata(self) -> dict[str, Any]:
        """Return the usage as a message stores it."""
        fields = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: value for name, value in fields if value}


NO_USAGE = Usage()
"""Zero tokens, unknown cost."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """An increment of the reply's text."""

    text: str
    """The increment."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """An increment of the reasoning."""

    text: str
    """The increment."""


@dataclass(frozen=True, slots=True)
class CallDelta:
    """An increment of a tool call; `index` numbers the calls in the order in which they began."""

    index: int
    """The number of the call."""
    id: str = ""
    """The id of the call, once it is known."""
    name: str = ""
    """The name of the tool, once it is known."""
    arguments: str = ""
    """An increment of the arguments, as JSON text."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a stream; exactly one, and the last."""

    reason: FinishReason
    """Why the model stopped."""
    usage: Usage = Usage()
    """The tokens of the call."""
    model: str = ""
    """The provider's name for the model that replied."""
    state: ProviderState | None = None
    """What the provider sent besides, and wants back."""


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Finished


@dataclass(frozen=True, slots=True)
class ReplyText:
    """Text of a reply."""

    text: str
    """The text."""


@dataclass(frozen=True, slots=True)
class ReplyReasoning:
    """Reasoning of a reply."""

    text: str
    """The text of the reasoning."""


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A tool call of a reply. The arguments are as the model wrote them, valid JSON or not."""

    id: str
    """The id of the call."""
    name: str
    """The name of the tool."""
    arguments: str
    """The arguments as JSON text."""


Item: TypeAlias = ReplyText | ReplyReasoning | ReplyCall


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The reply to one request, with its items in order of arrival."""

    items: tuple[Item, ...]
    """The texts, tool calls and reasoning of the reply, in order."""
    finish: FinishReason = "stop"
    """Why the model stopped."""
    usage: Usage = Usage()
    """The tokens of the call."""
    model: str = ""
    """The name of the model that answered."""
    state: ProviderState | None = None
    """What the provider sent besides, and wants back."""
    output: T = None  # pyright: ignore[reportAssignmentType]
    """The structured output, validated, if the request asked for one."""

    @property
    def text(self) -> str:
        """The text without reasoning and calls."""
        return "".join(item.text for item in self.items if isinstance(item, ReplyText))

    @property
    def reasoning(self) -> str:
        """The reasoning."""
        return "".join(item.text for item in self.items if isinstance(item, ReplyReasoning))

    @property
    def calls(self) -> tuple[ReplyCall, ...]:
        """The tool calls."""
        return tuple(item for item in self.items if isinstance(item, ReplyCall))

    @property
    def cut_off(self) -> ReplyCall | None:
        """The call whose arguments the length limit may have truncated; it must not be run."""
        last = self.items[-1] if self.items else None
        return last if self.finish == "length" and isinstance(last, ReplyCall) else None

    def deltas(self) -> Iterable[Delta]:
        """Return the reply as a stream of deltas."""
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
        yield Finished(self.finish, self.usage, self.model, self.state)


@dataclass(slots=True)
class _OpenItem:
    """An item that is still streaming."""

    kind: type[ReplyText | ReplyReasoning | ReplyCall]
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def item(self, id: str) -> Item:
        text = "".join(self.pieces)
        return ReplyCall(id, self.name, text) if self.kind is ReplyCall else self.kind(text)  # type: ignore


class ReplyAssembler:
    """A builder that assembles deltas into a Reply, which can be read at any time."""

    def __init__(self) -> None:
        self._items: list[_OpenItem] = []
        self._calls: dict[int, _OpenItem] = {}
        self.finished: Finished | None = None
        """The last delta of the stream; None before it arrives."""

    def feed(self, delta: Delta) -> None:
        """Add the next delta."""
        match delta:
            case TextDelta():
                self._append_text(ReplyText, delta.text)
            case ReasoningDelta():
                self._append_text(ReplyReasoning, delta.text)
            case CallDelta():
                self._append_call(delta)
            case Finished():
                self.finished = delta

    def _append_text(self, kind: type[ReplyText | ReplyReasoning], text: str) -> None:
        if not text:
            return
        if not self._items or self._items[-1].kind is not kind:
            self._items.append(_OpenItem(kind))
        self._items[-1].pieces.append(text)

    def _append_call(self, delta: CallDelta) -> None:
        item = self._calls.get(delta.index)
        if item is None:
            item = self._calls[delta.index] = _OpenItem(ReplyCall)
            self._items.append(item)
        item.id = item.id or delta.id
        item.name += delta.name
        item.pieces.append(delta.arguments)

    def reply(self) -> Reply:
        """Return the reply so far; a stream without an end counts as an error."""
        end = self.finished or Finished("error")
        used_ids: set[str] = set()
        items = tuple(item.item(_unique(item.id, used_ids)) for item in self._items)
        return Reply(items, end.reason, end.usage, end.model, end.state)


def _unique(id: str, used_ids: set[str]) -> str:
    """Return an id that is unique in the reply; some providers send none, or one twice."""
    if not id or id in used_ids:
        id = f"call_{new_id().hex}"
    used_ids.add(id)
    return id
