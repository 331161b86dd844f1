"""The reply builder: deltas of a model become messages.

Text is published as it arrives; a text ends where something else begins, and later text is another
message. All messages of a reply are added to the branch when the reply has ended, in order and in
one write, so a branch never has a text whose tool calls are missing. If policies review the reply,
it waits for them too.

Models produce output that no store can hold and no provider accepts (half a surrogate pair, a NUL,
arguments nested a hundred levels deep, one id for two calls): it is repaired here, or becomes a
problem of the call that the model is told about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from sennit.errors import CodecError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.messages.codec import loads
from sennit.messages.content import ActionRequestContent, AssistantResponseContent
from sennit.messages.json_values import plain_dict, replace_invalid
from sennit.messages.message import Message
from sennit.messages.prompt.repair import is_valid_call_id
from sennit.messages.provider_state import STATE_KEY, ProviderState, StatePart, state_shares
from sennit.messages.unset import Unset
from sennit.services.models.reply import (
    CallDelta,
    Delta,
    Finished,
    Item,
    ReasoningDelta,
    Reply,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    TextDelta,
)

_TRUNCATIONS = {
    "length": "the length limit cut the call off",
    "error": "the reply broke off with an error",
    "refusal": "the provider's filter cut the reply off",
}
"""Finish reasons after which the last call may be incomplete, with the text for the model."""


class ReplyListener(Protocol):
    """The listener of a reply builder."""

    def on_delta(self, message_id: UUID, text: str, *, reasoning: bool) -> None:
        """Handle an increment of an unfinished message."""
        ...

    def on_text(self, message: Message) -> None:
        """Handle a complete text."""
        ...

    def on_tool_call(self, message: Message) -> None:
        """Handle a complete tool call."""
        ...

    def on_dropped(self, message_id: UUID) -> None:
        """Handle the removal of an unfinished message."""
        ...


class _TextItem(msgspec.Struct):
    """A text or reasoning that is still growing."""

    id: UUID = msgspec.field(default_factory=new_id)
    text: list[str] = []
    reasoning: list[str] = []


class _CallItem(msgspec.Struct):
    id: UUID = msgspec.field(default_factory=new_id)
    call_id: str = ""
    name: str = ""
    arguments: list[str] = []


class ReplyBuilder:
    """The reply of a model in one turn, while it streams.

    With `needs_review` it becomes messages only when `accept` is called.
    """

    def __init__(
        self,
        listener: ReplyListener,
        sender: str,
        used_ids: Callable[[], Iterable[str]] = tuple,
        *,
        needs_review: bool = False,
    ) -> None:
        """`used` returns the ids of earlier calls; it is called only if there are new ones."""
        self._listener, self._sender, self._used_ids, self.needs_review = (
            listener,
            sender,
            used_ids,
            needs_review,
        )
        self._items: list[_TextItem | _CallItem] = []
        self._calls: dict[int, _CallItem] = {}
        self._half = ""  # a high surrogate at the end of the last delta
        self._half_is_reasoning = False
        self.finished: Finished | None = None
        self.requests: list[Message] = []
        """The tool calls of the reply, once it has ended."""

    def feed(self, delta: Delta) -> None:
        """Process the next delta."""
        if isinstance(delta, TextDelta | ReasoningDelta):
            if delta.text:
                self._feed_text(delta.text, reasoning=isinstance(delta, ReasoningDelta))
        elif isinstance(delta, CallDelta):
            self._feed_call(delta)
        else:
            self._publish_half()
            self.finished = delta
            if not self.needs_review:
                self._complete(delta)

    def reply(self) -> Reply:
        """Return the whole reply."""
        items = [part for item in self._items for part in self._reply_items(item)]
        end = self.finished or Finished("error")
        return Reply(tuple(items), end.reason, end.usage, end.model, end.state)

    def _reply_items(self, item: _TextItem | _CallItem) -> Iterator[Item]:
        if isinstance(item, _CallItem):
            yield ReplyCall(item.call_id, item.name, "".join(item.arguments))
            return
        if item.reasoning:
            yield ReplyReasoning("".join(item.reasoning))
        if item.text:
            yield ReplyText("".join(item.text))

    def accept(self, reply: Reply | None = None) -> None:
        """Accept the reviewed reply, or another one in its place."""
        self.needs_review = False
        if reply is None:
            if self.finished is not None:
                self._complete(self.finished)
            return
        self.interrupt(keep=False)
        self._calls.clear()
        for delta in reply.deltas():
            self.feed(delta)

    def _feed_text(self, text: str, *, reasoning: bool) -> None:
        """Publish more text, except half a character at its end: the next delta may complete it."""
        if reasoning is not self._half_is_reasoning:
            self._publish_half()
        text, self._half, self._half_is_reasoning = self._half + text, "", reasoning
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        self._publish(text, reasoning=reasoning)

    def _publish_half(self) -> None:
        half, self._half = self._half, ""
        if half:
            self._publish(half, reasoning=self._half_is_reasoning)

    def _publish(self, text: str, *, reasoning: bool) -> None:
        item = self._text_item(thinking=reasoning)
        if text:
            text = replace_invalid(text)
            (item.reasoning if reasoning else item.text).append(text)
            self._listener.on_delta(item.id, text, reasoning=reasoning)

    def _text_item(self, *, thinking: bool = False) -> _TextItem:
        """Return the growing text; reasoning after an answer starts another one."""
        last = self._items[-1] if self._items else None
        if isinstance(last, _TextItem) and not (thinking and last.text):
            return last
        item = _TextItem()
        self._items.append(item)
        return item

    def _feed_call(self, delta: CallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            self._publish_half()
            call = self._calls[delta.index] = _CallItem()
            self._items.append(call)
        call.call_id = call.call_id or delta.id
        call.name += delta.name
        call.arguments.append(delta.arguments)

    def _complete(self, end: Finished) -> None:
        if not self._items and end.state is not None and end.state.parts:
            self._items.append(_TextItem())  # of items that show nothing, such as a picture
        items, self._items = self._items, []
        used_ids = set(self._used_ids()) if self._calls else set[str]()
        shares = [] if end.state is None else _state_shares(end.state, items)
        for index, item in enumerate(items):
            metadata = _finish_metadata(end) if item is items[-1] else {}
            if shares:
                metadata[STATE_KEY] = shares[index]
            if isinstance(item, _TextItem):
                self._complete_text(item, metadata)
            else:
                truncation = _TRUNCATIONS.get(end.reason) if item is items[-1] else None
                self._complete_call(item, metadata, used_ids, truncation)

    def interrupt(self, *, keep: bool) -> None:
        """Break off the reply: keep the published text or drop it; an incomplete call never counts.

        Text that policies have not reviewed is never kept.
        """
        self._publish_half()
        for item in self._items:
            if isinstance(item, _TextItem):
                if keep and not self.needs_review:
                    self._complete_text(item, {"finish_reason": "cancelled"})
                else:
                    self._listener.on_dropped(item.id)
        self._items.clear()

    def _complete_text(self, item: _TextItem, metadata: dict[str, Any]) -> None:
        content = AssistantResponseContent(
            assistant_response="".join(item.text) or Unset,
            reasoning="".join(item.reasoning) or Unset,
        )
        self._listener.on_text(
            Message(content, sender=self._sender, id=item.id, metadata=metadata or None)
        )

    def _complete_call(
        self, item: _CallItem, metadata: dict[str, Any], used_ids: set[str], truncation: str | None
    ) -> None:
        raw = "".join(item.arguments)
        arguments, problem = _parse_arguments(raw)
        problem = truncation or problem
        if problem:
            metadata = {**metadata, "arguments_text": replace_invalid(raw), "problem": problem}
        content = ActionRequestContent(
            function=replace_invalid(item.name) or Unset,
            arguments=arguments,
            call_id=_unique_call_id(item, used_ids),
        )
        message = Message(content, sender=self._sender, id=item.id, metadata=metadata or None)
        self.requests.append(message)
        self._listener.on_tool_call(message)


class MessageCollector:
    """A listener that collects the messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def on_delta(self, message_id: UUID, text: str, *, reasoning: bool) -> None:
        """Ignore increments."""

    def on_text(self, message: Message) -> None:
        """Collect the text."""
        self.messages.append(message)

    def on_tool_call(self, message: Message) -> None:
        """Collect the tool call."""
        self.messages.append(message)

    def on_dropped(self, message_id: UUID) -> None:
        """Do nothing: an unfinished message was never collected."""


def _state_shares(
    state: ProviderState, items: Sequence[_TextItem | _CallItem]
) -> list[dict[str, Any]]:
    """Return the share of each item in the state; none if it does not match the items.

    A part without text goes to the next item, or after the last one to that.
    """
    parts: list[list[StatePart]] = [[] for _ in items]
    at, answered = -1, False
    waiting: list[StatePart] = []
    for part in state.parts:
        waiting.append(part)
        if part.kind == "other" or not part.text:
            continue
        item = items[at] if at >= 0 else None
        thinking = part.kind == "reasoning"
        if part.kind == "call" or not isinstance(item, _TextItem) or (thinking and answered):
            at, answered = at + 1, False
        answered = answered or part.kind == "text"
        if at == len(items):
            return []
        parts[at] += waiting
        waiting = []
    shows_nothing = at < 0 and len(items) == 1
    if (at + 1 < len(items) and not shows_nothing) or not items:
        return []
    parts[-1] += waiting
    if not all(map(_matches, items, parts)):
        return []
    return state_shares(state, items[0].id.hex, parts)


def _matches(item: _TextItem | _CallItem, parts: Sequence[StatePart]) -> bool:
    """Return whether parts of a provider's state are those of an item; a policy may change that."""
    text, call = (
        replace_invalid("".join(part.text for part in parts if part.kind == kind))
        for kind in ("text", "call")
    )
    if isinstance(item, _CallItem):
        return (text, call) == ("", item.call_id)
    return (text, call) == ("".join(item.text), "")


def _finish_metadata(end: Finished) -> dict[str, Any]:
    metadata: dict[str, Any] = {"finish_reason": end.reason, "usage": end.usage.to_metadata()}
    return {**metadata, "model": end.model} if end.model else metadata


def _unique_call_id(item: _CallItem, used_ids: set[str]) -> str:
    """Return the id of a call, or a new one if it is blank, invalid or already used."""
    call_id = item.call_id
    unique_id = (
        call_id if is_valid_call_id(call_id) and call_id not in used_ids else f"call_{item.id.hex}"
    )
    used_ids.add(unique_id)
    return unique_id


def _parse_arguments(raw: str) -> tuple[Any, str]:
    """Return the arguments in a text, or what is wrong with it; no text means no arguments."""
    if not raw.strip():
        return {}, ""
    try:
        value = loads(raw)
    except CodecError as error:
        return Unset, f"the arguments are not valid JSON ({error})"
    if not isinstance(value, dict):
        return Unset, f"the arguments must be a JSON object, not {short_repr(value)}"
    try:
        return plain_dict(value, "arguments"), ""
    except ValidationError as error:
        return Unset, f"the arguments cannot be taken ({error})"
