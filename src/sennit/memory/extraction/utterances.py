"""Utterances: sentences by speaker, read from messages.

Only what somebody said in this conversation is read: all texts of user and assistant, and what
tools gave. System messages, an instruction's `context`, contexts recorded as used, messages marked
as injected and texts that the caller names as injected are never read, so what was recalled from
memory cannot be remembered again as if it had been said. Inside a text the same holds for what is
quoted: code, quote marks, quoted lines and tagged blocks.
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

_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_BLOCK = re.compile(
    r"<(context|contexts|memory|memories|system|document|documents|quote|retrieved)\b[^<>]*>"
    r".*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»\n]*)[\"”»]")
_QUOTES = re.compile(r"[\"“„«]")
_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])|\n+|;\s+")
_SHORT = re.compile(r"\b(?:mr|mrs|ms|dr|st|prof|e\.g|i\.e|vs|no|approx|etc)\.$", re.IGNORECASE)
_LONGEST = 1000


@dataclass(frozen=True, slots=True)
class Utterance:
    """One text that somebody said."""

    message_id: UUID
    speaker: Speaker
    text: str
    at: datetime
    sentences: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Those of its own words: what it quotes is left out."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentences", tuple(sentences(own_words(self.text))))


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that was called and has answered."""

    message_id: UUID
    result_id: UUID
    name: str
    arguments: dict[str, Any]
    result: str
    success: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class Utterances:
    """All that can be remembered of some messages, in order."""

    said: tuple[Utterance | ToolUse, ...]

    @property
    def utterances(self) -> list[Utterance]:
        """The utterances in words."""
        return [one for one in self.said if isinstance(one, Utterance)]

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tools that were called."""
        return [one for one in self.said if isinstance(one, ToolUse)]


def read(messages: Iterable[Message], injected: Iterable[str] = ()) -> Utterances:
    """Read utterances from messages; `injected` are texts that a program inserted itself.

    A message marked as injected is not read, nor is what it says in those after it.
    """
    known = _Injected(injected)
    said: list[Utterance | ToolUse] = []
    calls: dict[str, tuple[Message, ActionRequestContent]] = {}
    for message in messages:
        content = message.content
        if message.metadata.get("injected"):
            known.add(content.words)
            continue
        match content:
            case InstructionContent():
                said += _uttered(message, "user", content.words, known)
            case AssistantResponseContent():
                said += _uttered(message, "assistant", content.words, known)
            case ActionRequestContent():
                calls[content.call_id or str(message.id)] = (message, content)
            case ActionResponseContent() if call := calls.pop(content.request_id or "", None):
                said.append(_tool_use(*call, message, content))
            case SystemContent() | ActionResponseContent() | OpaqueContent():
                pass
            case _ if content.from_assistant:
                said += _uttered(message, "assistant", content.words, known)
            case _ if message.role is MessageRole.USER:
                said += _uttered(message, "user", content.words, known)
            case _:
                pass
    return Utterances(tuple(said))


class _Injected:
    """Texts that a program put into prompts, to be known again where it pastes them elsewhere."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sentences: set[str] = set()
        self._whole: list[str] = []
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Know a text from now on."""
        self._sentences.update(map(_plain, sentences(text)))
        self._whole.append(_plain(text))

    def __bool__(self) -> bool:
        return bool(self._sentences)

    def __contains__(self, sentence: str) -> bool:
        """Return whether it is one of theirs, or what a prompt left of one that it cut off."""
        if _plain(sentence) in self._sentences:
            return True
        cut_off = [_plain(one) for one in sentence.split("…")]
        return len(cut_off) > 1 and all(any(one in text for text in self._whole) for one in cut_off)


def _uttered(
    message: Message, speaker: Speaker, text: str, known: _Injected
) -> Iterator[Utterance]:
    if known:
        text = "\n".join(one for one in sentences(text) if one not in known)
    if text.strip():
        yield Utterance(message.id, speaker, text, message.created_at)


def _tool_use(
    call: Message,
    request: ActionRequestContent,
    answer: Message,
    response: ActionResponseContent,
) -> ToolUse:
    given = response.error if response.error is not Unset else response.result
    result = given if isinstance(given, str) else "" if given is Unset else dumps(given).decode()
    return ToolUse(
        call.id,
        answer.id,
        request.function or "",
        dict(request.arguments or {}),
        result,
        response.success,
        answer.created_at,
    )


def _plain(text: str) -> str:
    return " ".join(tokens(fold(text)))


def own_words(text: str) -> str:
    """A text without what it quotes: code, quoted lines, tagged blocks and longer quotations."""
    text = _CODE.sub("\n", text) if "```" in text or "~~~" in text else text
    text = _BLOCK.sub("\n", text) if "<" in text else text
    text = _QUOTED_LINE.sub("", text) if ">" in text else text
    return _QUOTED.sub(_short_quotation, text) if _QUOTES.search(text) else text


def _short_quotation(found: re.Match[str]) -> str:
    """A name in quotation marks is the speaker's own word; a sentence is somebody else's."""
    quoted = found[1]
    return quoted if len(quoted.split()) < 3 and quoted[:1].isupper() else "…"


def sentences(text: str) -> list[str]:
    """The sentences of a text, with the sign they end with; endless ones come in pieces."""
    groups: list[list[str]] = []
    for said in _END.split(text):
        if not (piece := said.strip(" \t-*•")):
            continue
        if groups and _SHORT.search(groups[-1][-1]):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    found = [" ".join(group) for group in groups]
    if len(text) <= _LONGEST:
        return found
    return [piece for one in found for piece in _pieces(one)]


def _pieces(sentence: str) -> Iterator[str]:
    while len(sentence) > _LONGEST:
        end = sentence.rfind(" ", 1, _LONGEST) + 1 or _LONGEST
        yield sentence[:end].rstrip()
        sentence = sentence[end:]
    yield sentence
