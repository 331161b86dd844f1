"""The transcript of a conversation for a model: numbered, within a token budget.

If space is short, the user's messages come first, then the assistant's, then tool calls; of each
the latest. Continuation lines are indented, so no text can pass for another message. Messages that
are not shown, or only in part, are in `left_out`, so that rules can read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.messages.codec import dumps
from sennit.services.models.protocol import Model

CHARS_PER_TOKEN = 4
_MAX_CHARS = {"user": 4000, "assistant": 800, "tool": 300}
_ANSWER_TOKENS = 2000


@dataclass(frozen=True, slots=True)
class Transcript:
    """The part of a conversation that a model is shown."""

    text: str
    shown: dict[int, Utterance | ToolUse]
    """The items shown, by number."""
    left_out: tuple[Utterance | ToolUse, ...] = ()
    """Items that are not shown, and user messages that are shown in part."""


def material_budget(model: Model, tokens: int, prompt_chars: int) -> int:
    """Return the characters left for material after a prompt of `prompt_chars`."""
    window = model.window
    max_tokens = tokens if window is None else min(tokens, max(0, window - _ANSWER_TOKENS))
    return max(0, max_tokens * CHARS_PER_TOKEN - prompt_chars)


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
