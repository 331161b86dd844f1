"""What is searched: the words of a message, and the words of a question.

One place decides what of a message is text, for every store: what was said, asked, found and
called, not ids or settings, and who said it on which day, as people ask for both. Words too common
to tell messages apart are left out of questions. For an index that would split words by rules of
its own, `plain` leaves nothing to split.

An index takes back a row by the text it was given, so that text must not change: whoever changes
`indexed` writes a migration that empties the index and its marks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, cast

from sennit import clock
from sennit.errors import CodecError, ValidationError
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
    a about an and any are aren as at be been but by can could d did didn do does doesn don for
    from get got had has have he her his how i if in into is isn it its just ll m many me much my
    no not of on or our re s she so some t than that the their them then there these they this to
    too up us ve was wasn we were what when where which who whom whose why will with won would you
    your
"""
STOP_WORDS = frozenset(_STOP.split())
MOST_WORDS = 64
"""Of a question; more than people ask, and few enough for every index."""
_ROLES = frozenset({"user", "assistant", "system", "tool"})
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_AROUND = 8
_LONGEST_WORD = 500
_SIGNS = re.compile(r"[\W_]+")
_ASCII = "".join(sign if sign.isalnum() else " " for sign in map(chr, range(128)))


def said(body: bytes) -> str:
    """All the text in a stored message; none if it cannot be read: a search goes on."""
    return _said(_read(body))


def speaker(body: bytes) -> str:
    """The name of who said it; "" for a mere role or id, which tells no message from another."""
    return _speaker(_read(body))


def indexed(body: bytes, created: int) -> str:
    """What an index holds of a message: who said it, on which day, and all its text."""
    message = _read(body)
    return f"{_speaker(message)} {day(created)}\n{_said(message)}"


def told(body: bytes, created: int) -> str:
    """What is embedded of a message: who said it, on which day, and its text; "" if it has none."""
    message = _read(body)
    if not (text := _said(message).strip()):
        return ""
    name = _speaker(message)
    return f"{name} ({day(created)}): {text}" if name else f"{day(created)}: {text}"


def day(created: int) -> str:
    """The day of a moment in words, such as "Tuesday 14 January 2025"; in UTC for everyone."""
    try:
        moment = clock.to_datetime(created)
    except ValidationError:
        return ""
    return f"{_DAYS[moment.weekday()]} {moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def _read(body: bytes) -> dict[str, Any]:
    try:
        message = loads(body)
    except CodecError:
        return {}
    return cast("dict[str, Any]", message) if isinstance(message, dict) else {}


def _said(message: dict[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, dict):
        return ""
    content = cast("dict[str, Any]", content)
    return "\n".join(piece for name in _SAID for piece in _texts(content.get(name)))


def _speaker(message: dict[str, Any]) -> str:
    sender = message.get("sender")
    if not isinstance(sender, str) or sender in _ROLES or _UUID.fullmatch(sender):
        return ""
    return sender


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
    """The words of a question that can tell messages apart, each once; all if none can."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return ([word for word in words if word not in STOP_WORDS] or list(words))[:MOST_WORDS]


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
