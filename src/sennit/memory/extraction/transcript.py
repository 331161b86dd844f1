"""The transcript of a conversation for a model: numbered, within a token budget.

What the user says comes first when room is short, then what the assistant says, then tools; of each
the latest. Continued lines are indented, so no text can pretend to be another message. What is not
shown, or only in part, is named in `left_out`, so that somebody else can read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sennit.memory.extraction.utterances import ToolUse, Utterance, Utterances
from sennit.messages.codec import dumps
from sennit.services.models.protocol import Model

CHARS_PER_TOKEN = 4
_MOST = {"user": 4000, "assistant": 800, "tool": 300}
_ANSWER_TOKENS = 2000


@dataclass(frozen=True, slots=True)
class Transcript:
    """The part of a conversation that a model is shown."""

    text: str
    shown: dict[int, Utterance | ToolUse]
    """Who said what, by the number it is shown under."""
    left_out: tuple[Utterance | ToolUse, ...] = ()
    """What did not fit, in whole or in part; what the assistant and tools say may be shortened."""


def material_budget(model: Model, tokens: int, told: int) -> int:
    """Return the number of characters left for material after `told` characters of prompt."""
    window = model.window
    most = tokens if window is None else min(tokens, max(0, window - _ANSWER_TOKENS))
    return max(0, most * CHARS_PER_TOKEN - told)


def transcript(conversation: Utterances, letters: int) -> Transcript:
    """The conversation in at most about so many characters."""
    lines = [(number, one, _line(number, one)) for number, one in enumerate(conversation.said, 1)]
    chosen: set[int] = set()
    for speaker in ("user", "assistant", "tool"):
        for number, one, line in reversed(lines):
            if _speaker(one) == speaker and len(line) < letters:
                chosen.add(number)
                letters -= len(line) + 1
    return Transcript(
        "\n".join(line for number, _, line in lines if number in chosen),
        {number: one for number, one, _ in lines if number in chosen},
        tuple(one for number, one, _ in lines if number not in chosen or _is_cut(one)),
    )


def _speaker(one: Utterance | ToolUse) -> str:
    return one.speaker if isinstance(one, Utterance) else "tool"


def _is_cut(one: Utterance | ToolUse) -> bool:
    """Return whether something the user said is shown in part."""
    return isinstance(one, Utterance) and one.speaker == "user" and len(one.text) > _MOST["user"]


def _line(number: int, one: Utterance | ToolUse) -> str:
    speaker = _speaker(one)
    return f"[{number}] {speaker}: {_indented(_shortened(text_of(one), _MOST[speaker]))}"


def text_of(one: Utterance | ToolUse) -> str:
    """Return the text of an utterance or a tool use."""
    if isinstance(one, Utterance):
        return one.text
    arguments = dumps(one.arguments).decode()
    return f"{one.name} {arguments} {'gave' if one.success else 'failed:'} {one.result}"


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} […] {text[-half:]}"


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines())
