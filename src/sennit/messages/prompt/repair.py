"""Repair of broken histories: missing, orphaned and misplaced tool results.

Chat APIs with tool calling refuse a conversation in which a call has no result, a result has no
call, or the two are out of order, as after a crash or a cancellation. `repair` gives every call a
unique id and exactly one result, right after the assistant's turn that made it, and leaves out
empty contents. It is idempotent.

A turn is a run of texts and calls of the assistant; a result, an instruction or a system message
ends it. A result belongs to the call whose `call_id` (or message id) it names, the latest turn
first. A result without one belongs to the oldest open call of the latest turn before it.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import msgspec

from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    MessageContent,
    MessageRole,
)
from sennit.messages.message import Message
from sennit.messages.provider_state import STATE_KEY

INTERRUPTED = "interrupted: the call ended without a result"
_VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")


@dataclass(slots=True, eq=False)
class _Result:
    content: ActionResponseContent
    index: int
    """The index of its message."""
    before: int
    """The number of turns before it."""


@dataclass(slots=True, eq=False)
class _Call:
    request: ActionRequestContent
    names: tuple[str, ...]
    """The ids by which a result may refer to it: its call id and its message id."""
    id: str = ""
    result: _Result | None = None
    is_final: bool = False
    """Whether no later message can change its result."""


class AssistantTurn(msgspec.Struct, eq=False):
    """Consecutive messages of the assistant; any other message is a turn of its own."""

    first: int
    """The index of its first message."""
    items: list[MessageContent] = []
    calls: list[_Call] = []
    shares: list[Any] = []
    """The provider state of each of its items; None for one without."""
    speaks: bool = False
    """Whether it is the assistant's."""
    open: bool = False
    """Whether the next message may still belong to it."""

    @property
    def contents(self) -> list[MessageContent]:
        """The contents in a valid order: as stored, then the results in the order of the calls."""
        if not self.calls:
            return self.items
        numbered = iter(self.calls)
        items = [
            _request_with_id(next(numbered))
            if isinstance(content, ActionRequestContent)
            else content
            for content in self.items
        ]
        return [*items, *(_result_with_id(call) for call in self.calls)]

    @property
    def last_result(self) -> int | None:
        """The index of the last tool result; None if results can still change."""
        if not self.calls:
            return -1
        if not all(call.is_final for call in self.calls):
            return None
        return max((call.result.index for call in self.calls if call.result), default=-1)


def is_valid_call_id(id: str) -> bool:
    """Return whether every provider accepts this as a call id."""
    return _VALID_ID.fullmatch(id) is not None


def repair(messages: Iterable[Message | MessageContent]) -> list[MessageContent]:
    """Return the contents of a history in an order and form that every provider accepts."""
    contents = (content for turn in repaired_turns(messages) for content in turn.contents)
    return [content for content in contents if not content.empty]


def repaired_turns(
    messages: Iterable[Message | MessageContent], used: AbstractSet[str] = frozenset()
) -> list[AssistantTurn]:
    """Return the history as turns; each call has its result and a unique id not in `used`."""
    turns, results = _turns(messages)
    _match_named(turns, results)
    _match_unnamed(turns, results)
    _identify(turns, set(used))
    return turns


def _turns(
    messages: Iterable[Message | MessageContent],
) -> tuple[list[AssistantTurn], list[_Result]]:
    turns: list[AssistantTurn] = []
    results: list[_Result] = []
    for index, message in enumerate(messages):
        content = message.content if isinstance(message, Message) else message
        if content.empty and not _has_state(message):
            continue
        if isinstance(content, ActionResponseContent):
            results.append(_Result(content, index, len(turns)))
            if turns and turns[-1].calls:
                turns[-1].open = False
            continue
        speaks = content.role is MessageRole.ASSISTANT
        if speaks and turns and turns[-1].open:
            turns[-1].items.append(content)
        else:
            turns.append(AssistantTurn(index, [content], speaks=speaks, open=speaks))
        if speaks:
            is_message = isinstance(message, Message)
            turns[-1].shares.append(message.metadata.get(STATE_KEY) if is_message else None)
        if isinstance(content, ActionRequestContent):
            turns[-1].calls.append(_Call(content, _names(message, content)))
    return turns, results


def _has_state(message: Message | MessageContent) -> bool:
    """Return whether a message belongs to a reply that goes back to its provider as it came.

    One that only reasons has no text, but its reply would not be whole without it.
    """
    return isinstance(message, Message) and STATE_KEY in message.metadata


def _names(message: Message | MessageContent, request: ActionRequestContent) -> tuple[str, ...]:
    own = (str(message.id),) if isinstance(message, Message) else ()
    return (request.call_id, *own) if request.call_id else own


def _match_named(turns: list[AssistantTurn], results: list[_Result]) -> None:
    """Match results by call id: the latest turn before the result, else a later one."""
    open_calls: dict[str, list[tuple[int, deque[_Call]]]] = {}
    unmatched: list[_Result] = []
    ordered = iter(results)
    pending = next(ordered, None)
    for count, turn in enumerate([*turns, AssistantTurn(-1)]):
        while pending is not None and pending.before <= count:
            if pending.content.request_id and not _answer(open_calls, pending, is_final=True):
                unmatched.append(pending)
            pending = next(ordered, None)
        for call in turn.calls:
            for name in call.names:
                stack = open_calls.setdefault(name, [])
                if not stack or stack[-1][0] != count:
                    stack.append((count, deque()))
                stack[-1][1].append(call)
    for result in unmatched:
        _answer(open_calls, result, is_final=False)


def _answer(
    open_calls: dict[str, list[tuple[int, deque[_Call]]]], result: _Result, *, is_final: bool
) -> bool:
    stack = open_calls.get(result.content.request_id or "", [])
    while stack:
        calls = stack[-1][1]
        while calls:
            call = calls.popleft()
            if call.result is None:
                call.result, call.is_final = result, is_final
                return True
        stack.pop()
    return False


def _match_unnamed(turns: list[AssistantTurn], results: list[_Result]) -> None:
    """Match results without call id to the oldest open call of the latest turn before."""
    stack: list[deque[_Call]] = []
    at = 0
    for result in results:
        if result.content.request_id:
            continue
        stack += [_open_calls(turn) for turn in turns[at : result.before]]
        at = max(at, result.before)
        while stack and not stack[-1]:
            stack.pop()
        if stack:
            stack[-1].popleft().result = result


def _open_calls(turn: AssistantTurn) -> deque[_Call]:
    return deque(call for call in turn.calls if call.result is None)


def _identify(turns: list[AssistantTurn], used: set[str]) -> None:
    """Give each call a unique id, replacing blank, invalid and duplicate ones."""
    numbers = itertools.count()
    for turn in turns:
        for call in turn.calls:
            call.id = next(name for name in _candidates(call, numbers) if name not in used)
            used.add(call.id)


def _candidates(call: _Call, numbers: Iterator[int]) -> Iterable[str]:
    if call.request.call_id and is_valid_call_id(call.request.call_id):
        yield call.request.call_id
    for name in call.names:
        if is_valid_call_id(candidate := f"call_{name.replace('-', '')}"):
            yield candidate
    for number in numbers:
        yield f"call_{number}"


def _request_with_id(call: _Call) -> ActionRequestContent:
    return (
        call.request if call.request.call_id == call.id else call.request.replaced(call_id=call.id)
    )


def _result_with_id(call: _Call) -> ActionResponseContent:
    if call.result is None:
        return ActionResponseContent(request_id=call.id, error=INTERRUPTED)
    result = call.result.content
    return result if result.request_id == call.id else result.replaced(request_id=call.id)
