"""`to_model_messages`: a conversation for chat APIs with tool calling.

The turn loop sends this form: a separate system message, one assistant message with all tool calls
of a turn, one tool message per call. The history is repaired, so that every provider accepts it
after a crash, a cancellation or an import.

Like the plain form it is read incrementally: turns that no later message can change are settled and
not read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any
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
from sennit.messages.media import block_of, part_of_record
from sennit.messages.message import Message
from sennit.messages.prompt.incremental import read, unread
from sennit.messages.prompt.plain_chat import (
    Messages,
    NewInstruction,
    Order,
    as_history,
    instruction_of,
    select_messages,
)
from sennit.messages.prompt.repair import AssistantTurn, repaired_turns
from sennit.messages.provider_state import STATE_KEY, joined_shares
from sennit.messages.unset import Unset

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def to_model_messages(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
) -> list[dict[str, Any]]:
    """Return the conversation as chat messages with tool calls; new_instruction comes last.

    Raises NotFoundError for an id in `progression` that is not among the messages.
    """
    return [_copy(message) for message in model_messages(messages, progression, new_instruction)]


def model_messages(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
) -> list[dict[str, Any]]:
    """Return the same without copies: the messages are cached and must not be changed."""
    newest = None if new_instruction is None else instruction_of(new_instruction)
    if isinstance(messages, Pile) and isinstance(progression, Progression):
        return read(_ToolChatReader, messages, progression, lambda reader: reader.chat(newest))
    reader = _ToolChatReader()
    reader.feed(list(select_messages(messages, progression)))
    return reader.chat(newest)


def instruction_places(
    messages: Pile[Message], progression: Progression | Sequence[UUID]
) -> dict[UUID, int]:
    """Return the index of each message of the user in the result of `model_messages`."""

    def places(reader: _ToolChatReader) -> dict[UUID, int]:
        reader.chat(None)
        return reader.places()

    if isinstance(progression, Progression):
        return read(_ToolChatReader, messages, progression, places)
    reader = _ToolChatReader()
    reader.feed(list(select_messages(messages, progression)))
    return places(reader)


def unread_messages(messages: Pile[Message], progression: Progression | Sequence[UUID]) -> int:
    """Return how many messages `model_messages` has not read yet."""
    if isinstance(progression, Progression):
        return unread(_ToolChatReader, messages, progression)
    return len(progression)


def _copy(message: dict[str, Any]) -> dict[str, Any]:
    """Return a copy without the provider state, which only its provider understands."""
    nested = isinstance(message["content"], list) or "tool_calls" in message
    copied = deepcopy(message) if nested else dict(message)
    copied.pop(STATE_KEY, None)
    return copied


class _ToolChatReader:
    """A reader with the settled turns as chat messages, and the messages after them."""

    __slots__ = ("_instructions", "_newest", "_out", "_rest", "_systems", "_used")

    def __init__(self) -> None:
        self._out: list[dict[str, Any]] = []
        self._rest: list[Message] = []
        self._systems: list[
            tuple[int, SystemContent]
        ] = []  # by index, as they may contain the time
        self._used: set[str] = set()  # the ids of settled calls
        # The user's messages by index: settled ones, and those after them in the last result.
        self._instructions: list[tuple[int, UUID]] = []
        self._newest: list[tuple[int, UUID]] = []

    def feed(self, messages: Sequence[Message]) -> None:
        """Consume the next messages."""
        self._rest += messages

    def chat(self, newest: InstructionContent | None) -> list[dict[str, Any]]:
        """Return the chat messages of the conversation so far."""
        turns = repaired_turns(self._rest, self._used)
        current = _open_instruction(turns)
        # The last turn is not settled: calls may still join its text.
        turns = turns[self._settle(turns, _open_instruction(turns[:-1])) :]
        if newest is not None:
            current = AssistantTurn(len(self._rest), [newest])
            turns.append(current)
        pending: list[dict[str, Any]] = []
        self._newest = []
        for turn in turns:
            rendered = _render_turn(turn, turn is current)
            if rendered and (uid := self._instruction_id(turn)) is not None:
                self._newest.append((len(self._out) + len(pending), uid))
            pending += rendered
        out = [*self._out, *pending]
        for at, system in reversed(self._systems):
            out[at : at + 1] = _render_other(system, False)
        return out

    def places(self) -> dict[UUID, int]:
        """Return the index of each message of the user in the last result."""
        blank = [at for at, system in self._systems if not _render_other(system, False)]
        places = [*self._instructions, *self._newest]
        return {uid: at - sum(other < at for other in blank) for at, uid in places}

    def _instruction_id(self, turn: AssistantTurn) -> UUID | None:
        """Return the id of the user's message that is a turn; None for any other, or a new one."""
        if not turn.items[0].from_user or turn.first >= len(self._rest):
            return None
        return self._rest[turn.first].id

    def _settle(self, turns: list[AssistantTurn], current: AssistantTurn | None) -> int:
        """Cache the turns that can no longer change; return their number."""
        count = _count_settled(turns, current)
        if not count:
            return 0
        for turn in turns[:count]:
            if isinstance(turn.items[0], SystemContent):
                self._systems.append((len(self._out), turn.items[0]))
                self._out.append({})  # rendered on each call
            else:
                rendered = _render_turn(turn, False)
                if rendered and (uid := self._instruction_id(turn)) is not None:
                    self._instructions.append((len(self._out), uid))
                self._out += rendered
            self._used.update(call.id for call in turn.calls)
        first = turns[count].first
        matched = {
            call.result.index for turn in turns[:count] for call in turn.calls if call.result
        }
        early = [
            message
            for index, message in enumerate(self._rest[:first])
            if _may_come_early(message) and index not in matched
        ]
        self._rest = early + self._rest[first:]
        return count


def _count_settled(turns: list[AssistantTurn], current: AssistantTurn | None) -> int:
    """Return the number of turns that no later message can change."""
    count = 0
    answered = -1
    for at, turn in enumerate(turns[:-1]):
        last = turn.last_result
        if last is None or (turn is current and not _is_plain(turn.items[0])):
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


def _render_turn(turn: AssistantTurn, newest: bool) -> list[dict[str, Any]]:
    return _assistant(turn) if turn.speaks else _render_other(turn.items[0], newest)


def _open_instruction(turns: list[AssistantTurn]) -> AssistantTurn | None:
    """Return the newest instruction if no text answers it: it keeps its response model.

    Text beside a tool call is not an answer yet.
    """
    for turn in reversed(turns):
        if isinstance(turn.items[0], InstructionContent):
            return turn
        if not turn.calls and any(content.from_assistant for content in turn.items):
            return None
    return None


def _render_other(content: MessageContent, newest: bool) -> list[dict[str, Any]]:
    return request_message(content if newest else history_content(content))


def history_content(content: MessageContent) -> MessageContent:
    """Return a content as prompts show it once it is history."""
    return as_history(content) if isinstance(content, InstructionContent) else content


def request_message(content: MessageContent) -> list[dict[str, Any]]:
    """Return the chat message of a system message or instruction; none if it is blank."""
    if isinstance(content, InstructionContent):
        role, text = "user", _instruction(content)
    else:
        role, text = content.chat_role, content.rendered
    return [{"role": role, "content": text}] if has_text(text) else []


def has_text(text: str | list[dict[str, Any]]) -> bool:
    """Return whether a content is not blank; providers refuse blank text."""
    return bool(text.strip() if isinstance(text, str) else text)


def _instruction(content: InstructionContent) -> str | list[dict[str, Any]]:
    """Return an instruction that is only text unchanged, any other with headings."""
    more = content.context or content.tool_schemas or content.response_model is not Unset
    text = content.rendered_text if more else content.instruction or ""
    return content.blocks(text) if content.has_media else text


def _assistant(turn: AssistantTurn) -> list[dict[str, Any]]:
    texts = [content.words for content in turn.items if content.from_assistant]
    state = joined_shares(turn.shares)
    if not turn.calls:
        return assistant_messages(texts, [], [], state)
    contents = turn.contents
    return assistant_messages(
        texts,
        [tool_call(content) for content in contents if isinstance(content, ActionRequestContent)],
        [
            tool_message(content)
            for content in contents
            if isinstance(content, ActionResponseContent)
        ],
        state,
    )


def assistant_messages(
    texts: Iterable[str],
    calls: list[dict[str, Any]],
    results: list[dict[str, Any]],
    state: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return one assistant message with texts, calls and provider state, then a tool message per
    call.
    """
    text = "\n\n".join(filter(has_text, texts)) or None
    if not text and not calls and state is None:
        return []
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    if state is not None:
        message[STATE_KEY] = state
    return [message, *results]


def call_ids(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ids of all calls in chat messages."""
    call_lists = [message["tool_calls"] for message in messages if "tool_calls" in message]
    return [call["id"] for calls in call_lists for call in calls]


def tool_call(request: Any) -> dict[str, Any]:
    """Return a call in the form of an assistant message."""
    # Models invent invalid names, and providers then refuse the whole conversation.
    name = _INVALID_NAME_CHARS.sub("_", request.function or "")[:64] or "unknown"
    return {
        "id": request.call_id,
        "type": "function",
        "function": {"name": name, "arguments": dumps(request.arguments or {}).decode()},
    }


def tool_message(result: Any) -> dict[str, Any]:
    """Return the outcome of a call as a tool message; with files, its content is blocks."""
    text = tool_text(result)
    content: str | list[dict[str, Any]] = text
    if result.files:
        content = [{"type": "text", "text": text}] if text else []
        content += (block_of(part_of_record(file)) for file in result.files)
    return {"role": "tool", "tool_call_id": result.request_id, "content": content}


def tool_text(content: Any) -> str:
    """Return a tool result for the model: text as it is, other values as JSON."""
    if content.error is not Unset:
        return f"Error: {content.error}"
    if content.result is Unset:
        return ""
    return content.result if isinstance(content.result, str) else dumps(content.result).decode()
