"""`prepare_messages_for_chat`: a conversation for chat APIs without tool calling.

A left fold over the contents: the leading system text is merged into the first instruction, tool
results into the context of the next one, adjacent assistant texts are joined, and an instruction
that is history loses its tools and response model. Later system messages are skipped; nothing else
is lost, and no input is changed.

The fold is incremental: contents and history are immutable, so the reader is cached with the branch
and preparing it again costs time only for the messages since the newest instruction, plus the copy
of the list. Parts that may still change (these messages, and a system text with the time) are added
when the reader is rendered, and are never cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast, overload

from sennit.containers.element import Ref, uids_of
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.errors import InvalidTypeError, short_repr
from sennit.messages.content import (
    CONTENT_KINDS,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    Rendered,
    SystemContent,
)
from sennit.messages.content_registry import BUILT_IN
from sennit.messages.message import Message
from sennit.messages.prompt.incremental import read
from sennit.messages.unset import Unset

Messages: TypeAlias = Pile[Message] | Iterable[Message]
Order: TypeAlias = Progression | Iterable[Ref]
NewInstruction: TypeAlias = Message | InstructionContent

_NOTHING = InstructionContent()
_content = attrgetter("content")
_ROLES = {CONTENT_KINDS[name]: CONTENT_KINDS[name].role.value for name in BUILT_IN}


@overload
def prepare_messages_for_chat(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
    to_chat: Literal[False] = False,
) -> list[MessageContent]: ...
@overload
def prepare_messages_for_chat(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
    *,
    to_chat: Literal[True],
) -> list[dict[str, Any]]: ...
@overload
def prepare_messages_for_chat(
    messages: Messages,
    progression: Order | None,
    new_instruction: NewInstruction | None,
    to_chat: Literal[True],
) -> list[dict[str, Any]]: ...
def prepare_messages_for_chat(
    messages: Messages,
    progression: Order | None = None,
    new_instruction: NewInstruction | None = None,
    to_chat: bool = False,
) -> list[MessageContent] | list[dict[str, Any]]:
    """Return the conversation as contents, or with `to_chat` as `{"role", "content"}` dicts.

    `progression` (a branch, or ids) says which messages in which order; `new_instruction` comes
    last. Raises NotFoundError for an id that is not among the messages.
    """
    newest = None if new_instruction is None else instruction_of(new_instruction)

    def render(reader: _PlainChatReader) -> list[MessageContent] | list[dict[str, Any]]:
        return reader.chat(newest) if to_chat else reader.contents(newest)

    if isinstance(messages, Pile) and isinstance(progression, Progression):
        return read(_PlainChatReader, messages, progression, render)
    reader = _PlainChatReader()
    reader.feed(select_messages(messages, progression))
    return render(reader)


def select_messages(messages: Messages, progression: Order | None) -> Iterable[Message]:
    """Return messages in the order of `progression`, or their own; raises InvalidTypeError."""
    if not isinstance(messages, Pile):
        messages = _validate_messages(messages)
        if progression is not None:  # a list may hold a message twice
            messages = Pile({message.id: message for message in messages}.values())
    if progression is None or not isinstance(messages, Pile):
        return messages
    if isinstance(progression, Progression):
        return progression.items_of(messages)
    return messages.pick(uids_of(progression))


def _validate_messages(messages: Any) -> list[Message]:
    if isinstance(messages, Progression) or not isinstance(messages, Iterable):
        raise InvalidTypeError(
            f"Expected messages, got {short_repr(messages)}; pass session.messages and the branch."
        )
    message_list = list(cast("Iterable[Any]", messages))
    for message in message_list:
        if not isinstance(message, Message):
            raise InvalidTypeError(f"Expected a Message, got {short_repr(message)}.")
    return message_list


def instruction_of(value: Any) -> InstructionContent:
    """Return the instruction of a message or content; raises InvalidTypeError."""
    content = value.content if isinstance(value, Message) else value
    if not isinstance(content, InstructionContent):
        raise InvalidTypeError(
            f"new_instruction must be an instruction, got {short_repr(content)}; "
            f"use InstructionContent(instruction=...)."
        )
    return content


class _PlainChatReader:
    """A reader of the conversation so far.

    Whatever precedes the newest instruction is settled: later messages cannot change it.
    """

    __slots__ = ("_carrier", "_newest", "_rest", "_settled", "_system", "_texts")

    def __init__(self) -> None:
        self._settled: list[MessageContent] = []
        self._texts: list[Rendered] = []  # of settled contents, as far as they were rendered
        self._system: SystemContent | None = None
        self._carrier: int | None = None  # the settled instruction that includes the system text
        self._newest: InstructionContent | None = None
        self._rest: list[MessageContent] = []  # after the newest instruction

    def feed(self, messages: Iterable[Message]) -> None:
        """Consume the next messages."""
        for content in map(_content, messages):
            if isinstance(content, InstructionContent):
                self._add_instruction(content)
            elif isinstance(content, SystemContent):
                if self._system is None and self._newest is None and not content.empty:
                    self._system = content
            elif not content.empty:
                self._rest.append(content)

    def _add_instruction(self, content: InstructionContent) -> None:
        others, results, _ = _fold(self._rest)
        if content.empty and not results:
            return
        if self._newest is not None:
            if self._system is not None and self._carrier is None:
                self._carrier = len(self._settled)
            history = as_history(self._newest)
            if not history.empty or self._carrier == len(self._settled):
                self._settled.append(history)
        self._settled += others
        self._newest, self._rest = _with_results(content, results), []

    def contents(self, last: InstructionContent | None) -> list[MessageContent]:
        """Return the contents of the conversation so far; `last` comes last."""
        lead, tail = self._unsettled(last)
        settled = list(self._settled)
        if self._system is not None and self._carrier is not None:
            settled[self._carrier] = _with_system(settled[self._carrier], self._system)
        return [*lead, *settled, *tail]

    def chat(self, last: InstructionContent | None) -> list[dict[str, Any]]:
        """Return the same as chat messages that the caller may change."""
        lead, tail = self._unsettled(last)
        self._texts += [content.rendered for content in self._settled[len(self._texts) :]]
        settled: list[dict[str, Any]] = [
            # Image blocks are mutable, so they are created for each caller.
            {
                "role": _ROLES.get(type(content)) or content.chat_role,
                "content": text if type(text) is str else content.rendered,
            }
            for content, text in zip(self._settled, self._texts, strict=True)
        ]
        if self._system is not None and self._carrier is not None:
            carrier = _with_system(self._settled[self._carrier], self._system)
            settled[self._carrier] = _chat_message(carrier)
        return [*map(_chat_message, lead), *settled, *map(_chat_message, tail)]

    def _unsettled(
        self, last: InstructionContent | None
    ) -> tuple[list[MessageContent], list[MessageContent]]:
        """Return the contents before and after the settled ones."""
        others, results, is_answered = _fold(self._rest)
        lead: list[MessageContent] = []
        tail: list[MessageContent] = []
        if self._newest is not None:
            is_history = is_answered or last is not None
            current = as_history(self._newest) if is_history else self._newest
            if self._system is not None and self._carrier is None:
                tail.append(_with_system(current, self._system))
            elif not current.empty:
                tail.append(current)
        elif self._system is not None:
            if last is not None and (results or not last.empty):
                last = _with_system(last, self._system)
            else:
                lead.append(self._system)
        last = _with_results(last or _NOTHING, results)
        return lead, [*tail, *others, *([] if last.empty else [last])]


def _fold(
    contents: Iterable[MessageContent],
) -> tuple[list[MessageContent], list[str], bool]:
    """Join adjacent assistant texts and take out the tool results, rendered.

    Returns the contents, the results, and whether the assistant has answered in text.
    """
    out: list[MessageContent] = []
    results: list[str] = []
    texts: list[AssistantResponseContent] = []
    is_answered = False
    for content in contents:
        if isinstance(content, AssistantResponseContent):
            texts.append(content)
            continue
        if isinstance(content, ActionResponseContent):
            results.append(content.rendered)
            continue
        if texts:
            out.append(_join_texts(texts))
            texts, is_answered = [], True
        out.append(content)
        is_answered = is_answered or content.from_assistant
    if texts:
        out.append(_join_texts(texts))
    return out, results, is_answered or bool(texts)


def _chat_message(content: MessageContent) -> dict[str, Any]:
    return {"role": content.chat_role, "content": content.rendered}


def _with_results(content: InstructionContent, results: list[str]) -> InstructionContent:
    if not results:
        return content
    return content.replaced(context=[*(content.context or ()), *results])


def _with_system(content: MessageContent, system: SystemContent) -> InstructionContent:
    instruction = cast("InstructionContent", content)
    texts = [system.rendered, instruction.instruction]
    return instruction.replaced(instruction="\n\n".join(text for text in texts if text))


def as_history(content: InstructionContent) -> InstructionContent:
    """Return an instruction without its tools and response model."""
    if content.tool_schemas is Unset and content.response_model is Unset:
        return content
    return content.replaced(tool_schemas=Unset, response_model=Unset)


def _join_texts(run: list[AssistantResponseContent]) -> AssistantResponseContent:
    if len(run) == 1:
        return run[0]
    text = "\n\n".join(content.assistant_response for content in run if content.assistant_response)
    reasoning = "\n\n".join(content.reasoning for content in run if content.reasoning)
    return run[0].replaced(assistant_response=text, reasoning=reasoning or Unset)
