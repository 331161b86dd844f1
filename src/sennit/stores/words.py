"""What is searched: the words of a message, and the words of a question.

One place decides what of a message is text, for every store: what was said, asked, found and
called, not ids or settings. Words too common to tell messages apart are left out of questions. For
an index that would split words by rules of its own, `plain` leaves nothing to split.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, cast

from sennit.errors import CodecError
from sennit.messages.codec import loads

_WORD = re.compile(r"\w+", re.UNICODE)
_SAID = (
    "system_message",
    "instruction",
    "context",
    "assistant_response",
    "function",
    "arguments",
    "result",
    "error",
)
_STOP = """
    a about an and any are as at be been but by can could did do does for from had has have he
    her his how i if in into is it its just me my no not of on or our she so some than that the
    their them then there these they this to too up us was we were what when where which who why
    will with would you your
"""
STOP_WORDS = frozenset(_STOP.split())
_AROUND = 8
_LONGEST_WORD = 500
_SIGNS = re.compile(r"[\W_]+")
_ASCII = "".join(sign if sign.isalnum() else " " for sign in map(chr, range(128)))


def said(body: bytes) -> str:
    """All the text in a stored message; none if it cannot be read: a search goes on."""
    try:
        content = loads(body)["content"]
    except (CodecError, KeyError, TypeError):
        return ""
    if not isinstance(content, dict):
        return ""
    content = cast("dict[str, Any]", content)
    return "\n".join(piece for name in _SAID for piece in _texts(content.get(name)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def asked(text: str) -> list[str]:
    """The words of a question that can tell messages apart; all of them if none can."""
    words = [word.lower() for word in _WORD.findall(text)]
    return [word for word in words if word not in STOP_WORDS] or words


def plain(text: str) -> str:
    """The words of a text without signs, accents and capitals, and without endless ones."""
    if text.isascii():
        found = text.lower().translate(_ASCII)
    else:
        parts = unicodedata.normalize("NFKD", text)
        bare = "".join(part for part in parts if not unicodedata.combining(part))
        found = _SIGNS.sub(" ", bare.lower())
    if len(found) > _LONGEST_WORD:
        found = " ".join(word for word in found.split() if len(word) <= _LONGEST_WORD)
    return found


def pieces(text: str, size: int) -> list[str]:
    """A plain text in pieces of at most `size`, a size no word reaches; at least one."""
    found: list[str] = []
    while len(text) > size:
        end = text.rindex(" ", 0, size)
        found.append(text[:end])
        text = text[end:]
    return [*found, text]


def snippet(text: str, words: list[str]) -> str:
    """The part of a text around the first place where one of the words stands."""
    pieces = text.split()
    wanted = tuple(word[: max(4, len(word) - 3)] for word in words)
    at = next((n for n, piece in enumerate(pieces) if _begins(piece, wanted)), 0)
    first, last = max(0, at - _AROUND), at + _AROUND + 1
    shown = " ".join(pieces[first:last])
    return f"{'…' if first else ''}{shown}{'…' if last < len(pieces) else ''}"


def _begins(piece: str, wanted: tuple[str, ...]) -> bool:
    found = _WORD.search(piece.lower())
    return found is not None and found.group().startswith(wanted)
