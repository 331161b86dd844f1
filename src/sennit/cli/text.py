"""Terminal text: untrusted output escaped and shortened.

A model's text may hold control characters, and a terminal obeys them: it could rewrite the screen,
the window's title or the clipboard. They are left out wherever a terminal is written to.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import Any

from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
)
from sennit.messages.message import Message
from sennit.messages.unset import Unset

# The last two ranges turn the direction of text: what stands behind them is shown elsewhere.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Characters that nobody sees besides: who allows a call is to know of them.
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\U000e0000-\U000e007f]"
)
LINE = 72


def clean(text: str) -> str:
    """The text without characters that a terminal would obey; lines and tabs stay."""
    return _CONTROL.sub("", text)


def one_line(text: str, width: int = LINE) -> str:
    """The text in one line, cut short."""
    flat = " ".join(clean(text[: 4 * width]).split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def said(message: Message) -> str:
    """Return the text of a message; a tool call or result takes one line."""
    if (about := message.about) is not None:
        return f"[{clean(about)}]"
    match message.content:
        case ActionRequestContent() as call:
            return call_card(call)
        case ActionResponseContent() as result:
            return result_card(result)
        case InstructionContent(instruction=str(words)) as asked if _plain(asked):
            return clean(words)
        case content:
            rendered = content.rendered
            return clean(rendered if isinstance(rendered, str) else _blocks_text(rendered))


def call_card(call: ActionRequestContent, width: int = LINE) -> str:
    """A tool call in one line, as it is shown when it is made."""
    return f"→ {call_text(call, width - 2)}"


def call_text(call: ActionRequestContent, width: int = LINE) -> str:
    """A tool call in one line, to be spoken of."""
    return one_line(call_in_full(call), width)


def call_in_full(call: ActionRequestContent) -> str:
    """Return a tool call with all that it is given, for a person who decides about it.

    Characters that would not be seen stand there as JSON escapes them.
    """
    arguments = {} if call.arguments is Unset else call.arguments
    given = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    return _UNSEEN.sub(_escaped, f"{call.function or '?'}({given})")


def result_card(result: ActionResponseContent, width: int = LINE) -> str:
    """A tool's result in one line."""
    if not result.success:
        return one_line(f"✗ {result.error}", width)
    return one_line(f"← {_short(None if result.result is Unset else result.result)}", width)


def nearest(word: str, known: list[str]) -> str:
    """ " Did you mean …?" for a word that is nearly a known one; else nothing."""
    found = get_close_matches(word, known, n=1, cutoff=0.5)
    return f" Did you mean {found[0]}?" if found else ""


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _plain(asked: InstructionContent) -> bool:
    return not (asked.context or asked.images or asked.tool_schemas or asked.response_model)


def _escaped(sign: re.Match[str]) -> str:
    units = sign[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _blocks_text(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in blocks)
