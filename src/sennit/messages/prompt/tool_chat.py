"""`to_model_messages`: a conversation for chat APIs with tool calling.

The form the turn loop sends: the system message apart, one assistant message with all the tool
calls of a turn, one tool message per call. The history is repaired on the way, so that whatever
happened to it (a crash, a cancel, an import), every provider accepts what comes out.

Like the plain form it is a fold that goes on where it stopped: turns that no later message can
change are settled, and are not looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol
from uuid import UUID

from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.messages.codec import dumps
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
    MessageContent,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.messages.prompt.incremental import read, unread
from sennit.messages.prompt.plain_chat import (
    Messages,
    NewInstruction,
    Order,
    as_history,
    chosen,
    instruction_of,
)
from sennit.messages.prompt.repair import AssistantTurn, repaired_turns
from sennit.messages.unset import MaybeUnset, Unset

_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def to_model_messages(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
) -> list[dict[str, Any]]:
    """The conversation as chat messages with native tool calls; new_instruction comes last.

    Raises NotFoundError for an id in `progression` that is not among the messages.
    """
    return [_copied(message) for message in model_messages(messages, progression, new_instruction)]


def model_messages(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
) -> list[dict[str, Any]]:
    """The same, but each message is shared with later readings and must not be changed."""
    newest = None if new_instruction is None else instruction_of(new_instruction)
    if isinstance(messages, Pile) and isinstance(progression, Progression):
        return read(_Native, messages, progression, lambda fold: fold.chat(newest))
    fold = _Native()
    fold.feed(list(chosen(messages, progression)))
    return fold.chat(newest)


def unread_messages(messages: Pile[Message], progression: Progression | Sequence[UUID]) -> int:
    """Return how many messages `model_messages` has to read that it has not read before."""
    if isinstance(progression, Progression):
        return unread(_Native, messages, progression)
    return len(progression)


def _copied(message: dict[str, Any]) -> dict[str, Any]:
    nested = isinstance(message["content"], list) or "tool_calls" in message
    return deepcopy(message) if nested else dict(message)


class _Native:
    """The conversation so far: settled turns as they are told, and the messages after them."""

    __slots__ = ("_out", "_rest", "_systems", "_used")

    def __init__(self) -> None:
        self._out: list[dict[str, Any]] = []
        self._rest: list[Message] = []
        self._systems: list[tuple[int, SystemContent]] = []  # which may tell the time of day
        self._used: set[str] = set()  # the ids of settled calls

    def feed(self, messages: Sequence[Message]) -> None:
        """Take in what comes next."""
        self._rest += messages

    def chat(self, newest: InstructionContent | None) -> list[dict[str, Any]]:
        """Return the messages of a prompt made now."""
        turns = repaired_turns(self._rest, self._used)
        current = _unanswered(turns)
        # The last turn may still grow: a text that stands there now may get calls beside it.
        turns = turns[self._settle(turns, _unanswered(turns[:-1])) :]
        if newest is not None:
            current = AssistantTurn(len(self._rest), [newest])
            turns.append(current)
        told = [message for turn in turns for message in _told(turn, turn is current)]
        out = [*self._out, *told]
        for at, system in reversed(self._systems):
            out[at : at + 1] = _other(system, False)
        return out

    def _settle(self, turns: list[AssistantTurn], current: AssistantTurn | None) -> int:
        """Keep as told what can no longer change; gives how many turns that were."""
        count = _settled(turns, current)
        if not count:
            return 0
        for turn in turns[:count]:
            if isinstance(turn.said[0], SystemContent):
                self._systems.append((len(self._out), turn.said[0]))
                self._out.append({})  # told anew each time
            else:
                self._out += _told(turn, False)
            self._used.update(call.id for call in turn.calls)
        first = turns[count].first
        taken = {call.result.index for turn in turns[:count] for call in turn.calls if call.result}
        early = [
            message
            for index, message in enumerate(self._rest[:first])
            if _may_come_early(message) and index not in taken
        ]
        self._rest = early + self._rest[first:]
        return count


def _settled(turns: list[AssistantTurn], current: AssistantTurn | None) -> int:
    """Return the number of turns that no later message can change."""
    count = 0
    answered = -1
    for at, turn in enumerate(turns[:-1]):
        last = turn.last_result
        if last is None or (turn is current and not _is_plain(turn.said[0])):
            break
        answered = max(answered, last)
        if answered < turns[at + 1].first:
            count = at + 1
    return count


def _is_plain(content: MessageContent) -> bool:
    """Return whether an instruction reads the same when it is history."""
    return isinstance(content, InstructionContent) and as_history(content) is content


def _may_come_early(message: Message) -> bool:
    """Return whether this is a result whose call may still come."""
    content = message.content
    return isinstance(content, ActionResponseContent) and bool(content.request_id)


def _told(turn: AssistantTurn, newest: bool) -> list[dict[str, Any]]:
    return _assistant(turn) if turn.speaks else _other(turn.said[0], newest)


def _unanswered(turns: list[AssistantTurn]) -> AssistantTurn | None:
    """The newest instruction, as long as no text has answered it: it keeps its response model.

    What is said beside a call is on the way to an answer, and none yet.
    """
    for turn in reversed(turns):
        if isinstance(turn.said[0], InstructionContent):
            return turn
        if not turn.calls and any(one.from_assistant for one in turn.said):
            return None
    return None


def _other(content: MessageContent, newest: bool) -> list[dict[str, Any]]:
    return asked_message(content if newest else as_told(content))


def as_told(content: MessageContent) -> MessageContent:
    """Return a content as prompts show it once it is history."""
    return as_history(content) if isinstance(content, InstructionContent) else content


def asked_message(content: MessageContent) -> list[dict[str, Any]]:
    """A system message or an instruction; one that says nothing is left out."""
    if isinstance(content, InstructionContent):
        role, said = "user", _instruction(content)
    else:
        role, said = content.chat_role, content.rendered
    return [{"role": role, "content": said}] if says(said) else []


def says(said: str | list[dict[str, Any]]) -> bool:
    """Return whether there is more than blanks; providers refuse a conversation for a text of
    those.
    """
    return bool(said.strip() if isinstance(said, str) else said)


def _instruction(content: InstructionContent) -> str | list[dict[str, Any]]:
    """An instruction that is only text goes as it was typed; anything more, under its headings."""
    more = content.context or content.tool_schemas or content.response_model is not Unset
    said = content.text if more else content.instruction or ""
    return content.blocks(said) if content.images else said


def _assistant(turn: AssistantTurn) -> list[dict[str, Any]]:
    texts = [content.words for content in turn.said if content.from_assistant]
    if not turn.calls:
        return speaking(texts, [], [])
    contents = turn.contents
    return speaking(
        texts,
        [call_of(content) for content in contents if isinstance(content, ActionRequestContent)],
        [tool_message(one) for one in contents if isinstance(one, ActionResponseContent)],
    )


def speaking(
    texts: Iterable[str], calls: list[dict[str, Any]], results: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One assistant message with its texts and calls, then a tool message per call."""
    said = "\n\n".join(filter(says, texts)) or None
    if not calls:
        return [{"role": "assistant", "content": said}] if said else []
    return [{"role": "assistant", "content": said, "tool_calls": calls}, *results]


def call_ids(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of all calls in a conversation as chat messages."""
    asking = [message["tool_calls"] for message in messages if "tool_calls" in message]
    return [call["id"] for calls in asking for call in calls]


class CallRequest(Protocol):
    """A tool call: an ActionRequestContent, or its fields."""

    @property
    def function(self) -> MaybeUnset[str]:
        """The name of the tool."""
        ...

    @property
    def arguments(self) -> MaybeUnset[dict[str, Any]]:
        """The arguments."""
        ...

    @property
    def call_id(self) -> MaybeUnset[str]:
        """The id of the call."""
        ...


class CallResult(Protocol):
    """The outcome of a call: an ActionResponseContent, or its fields."""

    @property
    def request_id(self) -> MaybeUnset[str]:
        """The id of the call."""
        ...

    @property
    def result(self) -> MaybeUnset[Any]:
        """The result."""
        ...

    @property
    def error(self) -> MaybeUnset[str]:
        """The error."""
        ...


def call_of(asked: CallRequest) -> dict[str, Any]:
    """A call as it stands in an assistant message."""
    # Providers refuse a whole conversation for one odd name, and models do invent odd names.
    name = _NOT_IN_A_NAME.sub("_", asked.function or "")[:64] or "unknown"
    return {
        "id": asked.call_id,
        "type": "function",
        "function": {"name": name, "arguments": dumps(asked.arguments or {}).decode()},
    }


def tool_message(given: CallResult) -> dict[str, Any]:
    """Return the outcome of a call as a tool message."""
    return {"role": "tool", "tool_call_id": given.request_id, "content": tool_text(given)}


def tool_text(content: CallResult) -> str:
    """Return a tool result for the model: text as it is, other values as JSON."""
    if content.error is not Unset:
        return f"Error: {content.error}"
    if content.result is Unset:
        return ""
    return content.result if isinstance(content.result, str) else dumps(content.result).decode()
