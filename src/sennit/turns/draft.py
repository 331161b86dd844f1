"""From what a model says, piece by piece, to messages on the branch.

A text is shown as it comes and becomes a message when something else begins or the reply ends. What
was asked for first stands first: a call may still be growing while text after it is shown, so what
follows a call waits for the end of the reply to be put on the branch. If the reply has to be judged
first, all of it waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from uuid import UUID

from sennit.errors import CodecError
from sennit.ids import new_id
from sennit.messages.codec import loads
from sennit.messages.content import ActionRequestContent, AssistantResponseContent
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.services.reply import (
    Call,
    CallDelta,
    Delta,
    Finished,
    Item,
    Reasoning,
    ReasoningDelta,
    Reply,
    Text,
    TextDelta,
)


class Teller(Protocol):
    """Who is told what a draft becomes."""

    def show(self, message_id: UUID, text: str, *, reasoning: bool) -> None:
        """More of a message that is being said."""
        ...

    def said(self, message: Message) -> None:
        """A text is complete."""
        ...

    def asked(self, message: Message) -> None:
        """A request for a tool is complete."""
        ...

    def dropped(self, message_id: UUID) -> None:
        """A message that was being said will not be."""
        ...


@dataclass(slots=True)
class _Item:
    """Something that is being said."""

    id: UUID = field(default_factory=new_id)
    text: list[str] = field(default_factory=list[str])
    thought: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _CallItem:
    id: UUID = field(default_factory=new_id)
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class Draft:
    """What a model is saying in one turn.

    One that is `judged` becomes messages only with `accept`.
    """

    def __init__(self, teller: Teller, sender: str, *, judged: bool = False) -> None:
        self._teller, self._sender, self.judged = teller, sender, judged
        self._items: list[_Item | _CallItem] = []
        self._calls: dict[int, _CallItem] = {}
        self.finished: Finished | None = None
        self.requests: list[Message] = []
        """The calls that were asked for, once the reply has ended."""

    def feed(self, delta: Delta) -> None:
        """Take in what comes next."""
        if isinstance(delta, TextDelta):
            if delta.text:
                item = self._text_item()
                item.text.append(delta.text)
                self._teller.show(item.id, delta.text, reasoning=False)
        elif isinstance(delta, ReasoningDelta):
            if delta.text:
                item = self._text_item(thinking=True)
                item.thought.append(delta.text)
                self._teller.show(item.id, delta.text, reasoning=True)
        elif isinstance(delta, CallDelta):
            self._feed_call(delta)
        else:
            self.finished = delta
            if not self.judged:
                self._complete(delta)

    def reply(self) -> Reply:
        """What was said, whole."""
        items = [one for item in self._items for one in self._said(item)]
        end = self.finished or Finished("error")
        return Reply(tuple(items), end.reason, end.usage, end.model)

    def _said(self, item: _Item | _CallItem) -> Iterator[Item]:
        if isinstance(item, _CallItem):
            yield Call(item.call_id, item.name, "".join(item.arguments))
            return
        if item.thought:
            yield Reasoning("".join(item.thought))
        if item.text:
            yield Text("".join(item.text))

    def accept(self, reply: Reply | None = None) -> None:
        """The reply was judged and stands as it was said, or becomes another one."""
        self.judged = False
        if reply is None:
            if self.finished is not None:
                self._complete(self.finished)
            return
        self.interrupt(keep=False)
        self._calls.clear()
        for delta in reply.deltas():
            self.feed(delta)

    def _text_item(self, *, thinking: bool = False) -> _Item:
        """The text that is growing; thinking after an answer begins another one."""
        last = self._items[-1] if self._items else None
        if isinstance(last, _Item) and not (thinking and last.text):
            return last
        if isinstance(last, _Item) and not self._calls and not self.judged:
            self._tell(self._items.pop())
        item = _Item()
        self._items.append(item)
        return item

    def _feed_call(self, delta: CallDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            if not self._calls and not self.judged:
                self._tell_all()
            call = self._calls[delta.index] = _CallItem()
            self._items.append(call)
        call.call_id = call.call_id or delta.id
        call.name += delta.name
        call.arguments.append(delta.arguments)

    def _complete(self, end: Finished) -> None:
        last = self._items[-1] if self._items else None
        cut = last if end.reason == "length" and isinstance(last, _CallItem) else None
        self._tell_all(cut=cut, end=end)

    def interrupt(self, *, keep: bool) -> None:
        """The reply breaks off: keep what was shown, or drop it; half a call never counts.

        What was not judged is never kept.
        """
        for item in self._items:
            if isinstance(item, _Item):
                if keep and not self.judged:
                    self._tell(item, note={"finish_reason": "cancelled"})
                else:
                    self._teller.dropped(item.id)
        self._items.clear()

    def _tell_all(self, cut: _CallItem | None = None, end: Finished | None = None) -> None:
        items, self._items = self._items, []
        for number, item in enumerate(items, 1):
            note = _end_note(end) if end is not None and number == len(items) else {}
            self._tell(item, note=note, cut=item is cut)

    def _tell(
        self, item: _Item | _CallItem, note: dict[str, Any] | None = None, *, cut: bool = False
    ) -> None:
        if isinstance(item, _CallItem):
            self._ask(item, note or {}, cut)
            return
        content = AssistantResponseContent(
            assistant_response="".join(item.text) or Unset,
            reasoning="".join(item.thought) or Unset,
        )
        self._teller.said(Message(content, sender=self._sender, id=item.id, metadata=note or None))

    def _ask(self, item: _CallItem, note: dict[str, Any], cut: bool) -> None:
        raw = "".join(item.arguments)
        arguments, problem = _read(raw)
        if cut:
            problem = "the length limit cut the call off"
        if problem:
            note = {**note, "arguments_text": raw, "problem": problem}
        content = ActionRequestContent(
            function=item.name or Unset,
            arguments=arguments if arguments is not None else Unset,
            call_id=self._call_id(item),
        )
        message = Message(content, sender=self._sender, id=item.id, metadata=note or None)
        self.requests.append(message)
        self._teller.asked(message)

    def _call_id(self, item: _CallItem) -> str:
        taken = {
            message.content.call_id
            for message in self.requests
            if isinstance(message.content, ActionRequestContent)
        }
        blank = not item.call_id or item.call_id in taken
        return f"call_{item.id.hex}" if blank else item.call_id


class Collector:
    """Someone who only gathers the messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def show(self, message_id: UUID, text: str, *, reasoning: bool) -> None:
        """Nobody watches."""

    def said(self, message: Message) -> None:
        """Keep it."""
        self.messages.append(message)

    def asked(self, message: Message) -> None:
        """Keep it."""
        self.messages.append(message)

    def dropped(self, message_id: UUID) -> None:
        """It was never kept."""


def _end_note(end: Finished) -> dict[str, Any]:
    note: dict[str, Any] = {"finish_reason": end.reason, "usage": end.usage.noted()}
    return {**note, "model": end.model} if end.model else note


def _read(raw: str) -> tuple[dict[str, Any] | None, str]:
    """The arguments in a text, or what is wrong with it; no text at all is no arguments."""
    if not raw.strip():
        return {}, ""
    try:
        value = loads(raw)
    except CodecError as error:
        return None, f"the arguments are not valid JSON ({error})"
    if not isinstance(value, dict):
        return None, "the arguments must be a JSON object"
    return cast("dict[str, Any]", value), ""
