"""Making a history whole again.

Chat APIs with tool calling refuse a conversation in which a call has no result, a result has no
call, or the two are out of order: after a crash or a cancel that would be the end of it. `repair`
gives every call exactly one result, right behind the assistant's turn that asked for it, and every
call an id of its own. What says nothing is left out. Repairing twice changes nothing.

A turn is what the assistant said without interruption, texts and calls; a result, an instruction or
a system message ends it. A result belongs to the call whose `call_id` (or message id) it names, the
latest turn first; one that names none belongs to the oldest open call of the latest turn before it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    MessageContent,
)
from sennit.messages.message import Message

INTERRUPTED = "interrupted: the call ended without a result"


@dataclass(slots=True, eq=False)
class _Call:
    request: ActionRequestContent
    names: tuple[str, ...]
    """What a result may call it: its call id and its message's id."""
    id: str = ""
    result: ActionResponseContent | None = None


@dataclass(slots=True, eq=False)
class Turn:
    """What the assistant said in one go; anything else is a turn of its own."""

    said: list[MessageContent] = field(default_factory=list[MessageContent])
    calls: list[_Call] = field(default_factory=list[_Call])
    speaks: bool = False
    """Whether it is the assistant's."""
    open: bool = False
    """Whether what comes next still belongs to it."""

    @property
    def contents(self) -> list[MessageContent]:
        """All of it in a sound order: as said, then the results in the order of the calls."""
        numbered = iter(self.calls)
        said = [
            _identified(next(numbered)) if isinstance(content, ActionRequestContent) else content
            for content in self.said
        ]
        return [*said, *(_result(call) for call in self.calls)]


def repair(messages: Iterable[Message | MessageContent]) -> list[MessageContent]:
    """The contents of a history in an order and shape that every provider accepts."""
    return [content for turn in repaired_turns(messages) for content in turn.contents]


def repaired_turns(messages: Iterable[Message | MessageContent]) -> list[Turn]:
    """The history as turns, each call with its id and its result."""
    turns, results = _turns(messages)
    _match_named(turns, results)
    _match_unnamed(turns, results)
    _identify(turns)
    return turns


_Result = tuple[int, ActionResponseContent]  # the number of turns before it, and itself


def _turns(messages: Iterable[Message | MessageContent]) -> tuple[list[Turn], list[_Result]]:
    turns: list[Turn] = []
    results: list[_Result] = []
    for message in messages:
        content = message.content if isinstance(message, Message) else message
        if content.empty:
            continue
        if isinstance(content, ActionResponseContent):
            results.append((len(turns), content))
            if turns and turns[-1].calls:
                turns[-1].open = False
            continue
        speaks = isinstance(content, (AssistantResponseContent, ActionRequestContent))
        if not (speaks and turns and turns[-1].open):
            turns.append(Turn(speaks=speaks, open=speaks))
        turns[-1].said.append(content)
        if isinstance(content, ActionRequestContent):
            turns[-1].calls.append(_Call(content, _names(message, content)))
    return turns, results


def _names(message: Message | MessageContent, request: ActionRequestContent) -> tuple[str, ...]:
    own = (str(message.id),) if isinstance(message, Message) else ()
    return (request.call_id, *own) if request.call_id else own


def _match_named(turns: list[Turn], results: list[_Result]) -> None:
    """Give calls the results that name them, of the latest turn before, else of a later one."""
    waiting: dict[str, list[tuple[int, deque[_Call]]]] = {}
    late: list[ActionResponseContent] = []
    ordered = iter(results)
    pending = next(ordered, None)
    for count, turn in enumerate([*turns, Turn()]):
        while pending is not None and pending[0] <= count:
            if pending[1].request_id and not _answer(waiting, pending[1]):
                late.append(pending[1])
            pending = next(ordered, None)
        for call in turn.calls:
            for name in call.names:
                stack = waiting.setdefault(name, [])
                if not stack or stack[-1][0] != count:
                    stack.append((count, deque()))
                stack[-1][1].append(call)
    for result in late:
        _answer(waiting, result)


def _answer(
    waiting: dict[str, list[tuple[int, deque[_Call]]]], result: ActionResponseContent
) -> bool:
    stack = waiting.get(result.request_id or "", [])
    while stack:
        calls = stack[-1][1]
        while calls:
            call = calls.popleft()
            if call.result is None:
                call.result = result
                return True
        stack.pop()
    return False


def _match_unnamed(turns: list[Turn], results: list[_Result]) -> None:
    """Give what is left to the oldest open call of the latest turn before each result."""
    stack: list[deque[_Call]] = []
    at = 0
    for before, result in results:
        if result.request_id:
            continue
        stack += [_open_calls(turn) for turn in turns[at:before]]
        at = max(at, before)
        while stack and not stack[-1]:
            stack.pop()
        if stack:
            stack[-1].popleft().result = result


def _open_calls(turn: Turn) -> deque[_Call]:
    return deque(call for call in turn.calls if call.result is None)


def _identify(turns: list[Turn]) -> None:
    """Give each call an id of its own; one that is blank or used before gets another."""
    used: set[str] = set()
    numbers = itertools.count()
    for turn in turns:
        for call in turn.calls:
            call.id = next(name for name in _candidates(call, numbers) if name not in used)
            used.add(call.id)


def _candidates(call: _Call, numbers: Iterator[int]) -> Iterable[str]:
    if call.request.call_id:
        yield call.request.call_id
    for name in call.names:
        yield f"call_{name.replace('-', '')}"
    for number in numbers:
        yield f"call_{number}"


def _identified(call: _Call) -> ActionRequestContent:
    return (
        call.request if call.request.call_id == call.id else call.request.replaced(call_id=call.id)
    )


def _result(call: _Call) -> ActionResponseContent:
    result = call.result
    if result is None:
        return ActionResponseContent(request_id=call.id, error=INTERRUPTED)
    return result if result.request_id == call.id else result.replaced(request_id=call.id)
