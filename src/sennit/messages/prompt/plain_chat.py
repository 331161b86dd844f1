"""`prepare_messages_for_chat`: a conversation for chat APIs without tool calling.

A left fold over the contents: the leading system text is merged into the first instruction, tool
results into the context of the next one, adjacent assistant texts are joined, and an instruction
that is history loses its tools and response model. Later system messages are skipped; nothing else
is lost, and no input is changed.

The fold is incremental: contents and history are immutable, so the reader is cached with the branch
and preparing it again costs time only for new messages, plus the copy of the list. Parts that may
still change (the newest instruction, a system text with the time, unmerged results) are added when
the reader is rendered, and are never cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from sennit.containers.element import Ref, uids_of
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.errors import InvalidTypeError, short_repr
from sennit.messages.content import (
    CONTENT_KINDS,
    ActionRequestContent,
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
from sennit.messages.render import context_item, text_with_results
from sennit.messages.unset import Unset

Messages: TypeAlias = Pile[Message] | Iterable[Message]
Order: TypeAlias = Progression | Iterable[Ref]
NewInstruction: TypeAlias = Message | InstructionContent

_T = TypeVar("_T")
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

    `_out` has the contents as history, `_texts` the rendered text of its first entries.
    """

    __slots__ = (
        "_empty_positions",
        "_first",
        "_lines",
        "_merged",
        "_newest",
        "_out",
        "_results",
        "_results_at",
        "_run",
        "_system",
        "_texts",
        "_with_blocks",
    )

    def __init__(self) -> None:
        self._out: list[MessageContent] = []
        self._texts: list[Rendered] = []
        # Positions in _out of contents with images or files, and of those empty as history.
        self._with_blocks: list[int] = []
        self._empty_positions: list[int] = []
        # The system message, and the position of the first instruction, which includes it.
        self._system: SystemContent | None = None
        self._first: int | None = None
        # Tool results by the position of the instruction that includes them, and a cache of the
        # merged instructions.
        self._results_at: dict[int, list[str]] = {}
        self._merged: dict[int, InstructionContent] = {}
        # The newest instruction, unchanged, until a text answers it.
        self._newest: tuple[int, InstructionContent] | None = None
        # Tool results not yet merged into an instruction, and a cache of their text.
        self._results: list[str] = []
        self._lines: list[str] = []
        # Adjacent assistant texts; the first of them is the last entry of _out.
        self._run: list[AssistantResponseContent] = []

    def feed(self, messages: Iterable[Message]) -> None:
        """Consume the next messages."""
        out, run = self._out, self._run
        for content in map(_content, messages):
            if isinstance(content, InstructionContent):
                self._add_instruction(content)
            elif isinstance(content, AssistantResponseContent):
                if content.assistant_response:
                    if not run:
                        out.append(content)
                    run.append(content)
                    self._newest = None
            elif isinstance(content, ActionResponseContent):
                self._results.append(content.rendered)
            elif isinstance(content, SystemContent):
                if self._system is None and self._first is None and not content.empty:
                    self._system = content
            elif isinstance(content, ActionRequestContent):
                self._close_run()
                out.append(content)
            elif not content.empty:
                self._close_run()
                if content.from_assistant:
                    self._newest = None
                if not isinstance(content.rendered, str):
                    self._with_blocks.append(len(out))
                out.append(content)

    def _add_instruction(self, content: InstructionContent) -> None:
        at = len(self._out)
        if self._results:
            self._results_at[at] = self._results
            self._results, self._lines = [], []
        elif not content.instruction and content.empty:
            return
        if self._run:
            self._close_run()
        if self._first is None:
            self._first = at
        self._newest = (at, content)
        if content.tool_schemas is not Unset or content.response_model is not Unset:
            content = as_history(content)
            if content.empty and at not in self._results_at:
                self._empty_positions.append(at)
        if content.has_media:
            self._with_blocks.append(at)
        self._out.append(content)

    def _close_run(self) -> None:
        run = self._run
        if len(run) > 1:
            self._out[-1] = _join_texts(run)
        run.clear()

    def contents(self, newest: InstructionContent | None) -> list[MessageContent]:
        """Return the contents of the conversation so far."""
        changed, lead, tail = self._unsettled(newest)
        out = list(self._out)
        for at in self._results_at:
            out[at] = self._content_at(at)
        for at, content in changed.items():
            out[at] = content
        return [*lead, *self._drop_empty(out, changed), *tail]

    def chat(self, newest: InstructionContent | None) -> list[dict[str, Any]]:
        """Return the same as chat messages that the caller may change."""
        changed, lead, tail = self._unsettled(newest)
        # Blocks are mutable, so they are created for each caller.
        changed |= {at: self._content_at(at) for at in self._with_blocks if at not in changed}
        self._render(len(self._out) - bool(self._run))
        chat: list[dict[str, Any]] = [
            {"role": _ROLES.get(type(content)) or content.chat_role, "content": text}
            for content, text in zip(self._out, self._texts, strict=False)
        ]
        if self._run:
            chat.append({})  # a placeholder: the open run is in `changed`
        for at, content in changed.items():
            chat[at] = _chat_message(content)
        return [*_chat(lead), *self._drop_empty(chat, changed), *_chat(tail)]

    def _render(self, stop: int) -> None:
        """Render the texts of `_out` up to `stop`."""
        start = len(self._texts)
        self._texts += [  # most are assistant texts, which need no rendering
            content.assistant_response or ""
            if type(content) is AssistantResponseContent
            else content.rendered
            for content in self._out[start:stop]
        ]
        for at in reversed(self._results_at):
            if at < start:
                break
            content = cast("InstructionContent", self._out[at])
            self._texts[at] = text_with_results(content, self._results_at[at])

    def _content_at(self, at: int) -> MessageContent:
        """Return the content with the tool results collected for it."""
        if at not in self._results_at:
            return self._out[at]
        merged = self._merged.get(at)
        if merged is None:
            content = cast("InstructionContent", self._out[at])
            merged = self._merged[at] = _with_results(content, self._results_at[at])
        return merged

    def _drop_empty(self, prepared: list[_T], changed: dict[int, MessageContent]) -> list[_T]:
        for at in reversed(self._empty_positions):
            if at not in changed:
                del prepared[at]
        return prepared

    def _unsettled(
        self, newest: InstructionContent | None
    ) -> tuple[dict[int, MessageContent], list[MessageContent], list[MessageContent]]:
        """Return the contents that may still change, by position, and those before and after."""
        changed: dict[int, MessageContent] = {}
        lead: list[MessageContent] = []
        tail: list[MessageContent] = []
        if self._run:
            changed[len(self._out) - 1] = _join_texts(self._run)
        if newest is not None:
            newest = _with_results(newest, self._results)
            if newest.empty:
                newest = None
        elif self._newest is not None:
            at, instruction = self._newest
            changed[at] = _with_results(instruction, self._results_at.get(at, []))
        if self._system is not None and self._first is not None:
            carrier = changed.get(self._first) or self._content_at(self._first)
            changed[self._first] = _with_system(carrier, self._system)
        elif self._system is not None and newest is not None:
            newest = _with_system(newest, self._system)
        elif self._system is not None:
            lead.append(self._system)
        if newest is not None:
            tail.append(newest)
        elif self._results:
            tail.append(self._results_alone())
        return changed, lead, tail

    def _results_alone(self) -> InstructionContent:
        self._lines += [context_item(result) for result in self._results[len(self._lines) :]]
        content = _NOTHING.replaced(context=list(self._results))
        content.cache_text("\n".join(["Context:", *self._lines]))
        return content


def _chat(contents: list[MessageContent]) -> list[dict[str, Any]]:
    return [_chat_message(content) for content in contents]


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
