"""Utterances: sentences by speaker, read from messages.

Only what was said in this conversation is read: all texts of user and assistant, and the results of
tools. System messages, an instruction's `context`, contexts recorded as used, messages marked as
injected and texts that the caller names as injected are never read, so a recalled memory cannot be
extracted again as if it had been said. The same holds for quotations in a text: code, quotation
marks, quoted lines and tagged blocks.

A transcript shows utterances to a model, numbered and within a budget. If space is short, the
user's messages come first, then the assistant's, then tool calls; of each the latest. Continuation
lines are indented, so no text can pass for another message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sennit.memory.extraction.terms import fold, tokens
from sennit.messages.codec import dumps
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.message import Message
from sennit.messages.opaque_content import OpaqueContent
from sennit.messages.unset import Unset

Speaker: TypeAlias = Literal["user", "assistant"]

_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED_BLOCK = re.compile(
    r"<(context|contexts|memory|memories|system|document|documents|quote|retrieved)\b[^<>]*>"
    r".*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTATION = re.compile(r"[\"“„«]([^\"“”„«»\n]*)[\"”»]")
_QUOTE_MARK = re.compile(r"[\"“„«]")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])|\n+|;\s+")
_ABBREVIATION = re.compile(
    r"\b(?:mr|mrs|ms|dr|st|prof|e\.g|i\.e|vs|no|approx|etc)\.$", re.IGNORECASE
)
_MAX_SENTENCE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Utterance:
    """One text by a speaker."""

    message_id: UUID
    speaker: Speaker
    text: str
    at: datetime
    sentences: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The sentences in the speaker's own words, without quotations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentences", tuple(sentences(own_words(self.text))))


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call with its result."""

    message_id: UUID
    result_id: UUID
    name: str
    arguments: dict[str, Any]
    result: str
    success: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class Utterances:
    """The utterances and tool calls of a conversation, in order."""

    items: tuple[Utterance | ToolUse, ...]

    @property
    def utterances(self) -> list[Utterance]:
        """The utterances alone."""
        return [item for item in self.items if isinstance(item, Utterance)]

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tool calls alone."""
        return [item for item in self.items if isinstance(item, ToolUse)]


def read(messages: Iterable[Message], injected: Iterable[str] = ()) -> Utterances:
    """Read utterances from messages; `injected` are texts that a program inserted itself.

    A message marked as injected is not read, and its text is ignored in later messages.
    """
    injected_texts = _InjectedTexts(injected)
    items: list[Utterance | ToolUse] = []
    calls: dict[str, tuple[Message, ActionRequestContent]] = {}
    for message in messages:
        content = message.content
        if message.metadata.get("injected"):
            injected_texts.add(content.words)
            continue
        match content:
            case InstructionContent():
                items += _utterances(message, "user", content.words, injected_texts)
            case AssistantResponseContent():
                items += _utterances(message, "assistant", content.words, injected_texts)
            case ActionRequestContent():
                calls[content.call_id or str(message.id)] = (message, content)
            case ActionResponseContent() if call := calls.pop(content.request_id or "", None):
                items.append(_tool_use(*call, message, content))
            case SystemContent() | ActionResponseContent() | OpaqueContent():
                pass
            case _ if content.from_assistant:
                items += _utterances(message, "assistant", content.words, injected_texts)
            case _ if message.role is MessageRole.USER:
                items += _utterances(message, "user", content.words, injected_texts)
            case _:
                pass
    return Utterances(tuple(items))


class _InjectedTexts:
    """Texts that a program put into prompts, recognised where they are pasted elsewhere."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sentences: set[str] = set()
        self._texts: list[str] = []
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text."""
        self._sentences.update(map(_normalize, sentences(text)))
        self._texts.append(_normalize(text))

    def __bool__(self) -> bool:
        return bool(self._sentences)

    def __contains__(self, sentence: str) -> bool:
        """Return whether a sentence is part of one, or the truncated rest of one."""
        if _normalize(sentence) in self._sentences:
            return True
        cut_off = [_normalize(part) for part in sentence.split("…")]
        return len(cut_off) > 1 and all(
            any(part in text for text in self._texts) for part in cut_off
        )


def _utterances(
    message: Message, speaker: Speaker, text: str, injected: _InjectedTexts
) -> Iterator[Utterance]:
    if injected:
        text = "\n".join(sentence for sentence in sentences(text) if sentence not in injected)
    if text.strip():
        yield Utterance(message.id, speaker, text, message.created_at)


def _tool_use(
    call: Message, request: ActionRequestContent, answer: Message, response: ActionResponseContent
) -> ToolUse:
    output = response.error if response.error is not Unset else response.result
    result = (
        output if isinstance(output, str) else "" if output is Unset else dumps(output).decode()
    )
    return ToolUse(
        call.id,
        answer.id,
        request.function or "",
        dict(request.arguments or {}),
        result,
        response.success,
        answer.created_at,
    )


def _normalize(text: str) -> str:
    return " ".join(tokens(fold(text)))


def own_words(text: str) -> str:
    """Return a text without code, quoted lines, tagged blocks and longer quotations."""
    text = _CODE_BLOCK.sub("\n", text) if "```" in text or "~~~" in text else text
    text = _TAGGED_BLOCK.sub("\n", text) if "<" in text else text
    text = _QUOTED_LINE.sub("", text) if ">" in text else text
    return _QUOTATION.sub(_short_quotation, text) if _QUOTE_MARK.search(text) else text


def _short_quotation(match: re.Match[str]) -> str:
    """Return a quoted name, which is the speaker's own word; a quoted sentence becomes "…"."""
    quoted = match[1]
    return quoted if len(quoted.split()) < 3 and quoted[:1].isupper() else "…"


def sentences(text: str) -> list[str]:
    """Return the sentences of a text with their punctuation; overlong ones are split."""
    groups: list[list[str]] = []
    for raw in _SENTENCE_END.split(text):
        if not (piece := raw.strip(" \t-*•")):
            continue
        if groups and _ABBREVIATION.search(groups[-1][-1]):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    result = [" ".join(group) for group in groups]
    if len(text) <= _MAX_SENTENCE_CHARS:
        return result
    return [piece for sentence in result for piece in _pieces(sentence)]


def _pieces(sentence: str) -> Iterator[str]:
    while len(sentence) > _MAX_SENTENCE_CHARS:
        end = sentence.rfind(" ", 1, _MAX_SENTENCE_CHARS) + 1 or _MAX_SENTENCE_CHARS
        yield sentence[:end].rstrip()
        sentence = sentence[end:]
    yield sentence


_MAX_CHARS = {"user": 4000, "assistant": 800, "tool": 300}


@dataclass(frozen=True, slots=True)
class Transcript:
    """The part of a conversation that a model is shown."""

    text: str
    shown: dict[int, Utterance | ToolUse]
    """The items shown, by number."""
    left_out: tuple[Utterance | ToolUse, ...] = ()
    """Items that are not shown, and user messages that are shown in part."""


def transcript(conversation: Utterances, budget: int) -> Transcript:
    """Return the conversation in at most about `budget` characters."""
    lines = [
        (number, item, _line(number, item)) for number, item in enumerate(conversation.items, 1)
    ]
    chosen: set[int] = set()
    for speaker in ("user", "assistant", "tool"):
        for number, item, line in reversed(lines):
            if _speaker(item) == speaker and len(line) < budget:
                chosen.add(number)
                budget -= len(line) + 1
    return Transcript(
        "\n".join(line for number, _, line in lines if number in chosen),
        {number: item for number, item, _ in lines if number in chosen},
        tuple(item for number, item, _ in lines if number not in chosen or _is_cut(item)),
    )


def _speaker(item: Utterance | ToolUse) -> str:
    return item.speaker if isinstance(item, Utterance) else "tool"


def _is_cut(item: Utterance | ToolUse) -> bool:
    """Return whether a user message is shown only in part."""
    return (
        isinstance(item, Utterance)
        and item.speaker == "user"
        and len(item.text) > _MAX_CHARS["user"]
    )


def _line(number: int, item: Utterance | ToolUse) -> str:
    speaker = _speaker(item)
    return f"[{number}] {speaker}: {_indent(_shorten(text_of(item), _MAX_CHARS[speaker]))}"


def text_of(item: Utterance | ToolUse) -> str:
    """Return the text of an utterance or a tool use."""
    if isinstance(item, Utterance):
        return item.text
    arguments = dumps(item.arguments).decode()
    return f"{item.name} {arguments} {'gave' if item.success else 'failed:'} {item.result}"


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} […] {text[-half:]}"


def _indent(text: str) -> str:
    return "\n  ".join(text.splitlines())
