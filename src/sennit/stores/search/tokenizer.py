"""Indexed text, query words and snippets.

One place decides what of a message is text, for every store: what was said, asked, found and
called, not ids or settings, and who said it on which day, as people ask for both. Words too common
to tell messages apart are left out of questions. For an index that would split words by rules of
its own, `plain` leaves nothing to split.

Chinese, Japanese, Thai and their neighbours put no space between words. There each letter is a word
of its own, and a run of them in a question is a phrase: so any part of a text is found. A longer
run is a sentence, of which every two letters are asked for, as every word is of others.

An index takes back a row by the text it was given, so that text must not change: whoever changes
`indexed` or `apart` raises SCHEMA_VERSION.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, cast

from sennit import clock
from sennit.errors import CodecError, ValidationError
from sennit.messages.codec import loads

_UNSPACED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3031-\u3035\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
_LETTER = re.compile(f"[{_UNSPACED}]")
_LEADS = (
    b"\xe0\xe1\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xef\xf0"  # bytes with which all of them begin in UTF-8
)
_WORD = re.compile(f"[{_UNSPACED}]+|[^\\W{_UNSPACED}]+")
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
LONGEST_QUESTION = 16_384
"""Characters of a text that are looked at for the words of a question: it may be a whole file."""
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
_LONG = 65_536  # characters of a text that is not split in one go
_PIECE = re.compile(r"\S+")
_LONGEST_WORD = 500
_LONGEST_PHRASE = 4  # letters that are asked for together where no spaces tell words apart
_LONGEST_SNIPPET = 300
_SIGNS = re.compile(r"[\W_]+")
_ASCII = "".join(sign if sign.isalnum() else " " for sign in map(chr, range(128)))


def said(body: bytes) -> str:
    """All the text in a stored message; none if it cannot be read: a search goes on."""
    return _said(_read(body))


def speaker(body: bytes) -> str:
    """The name of who said it; "" for a mere role or id, which tells no message from another."""
    return _speaker(_read(body))


def indexed(body: bytes, created: int) -> str:
    """Return the indexed text of a message: speaker, date and text."""
    message = _read(body)
    return apart(f"{_speaker(message)} {day(created)}\n{_said(message)}")


def told(body: bytes, created: int) -> str:
    """Return the embedded text of a message: speaker, date and text; "" if it has no text."""
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
    # A content that a program defined itself is stored with its role: all its fields are words.
    names = content if "role" in message else _SAID
    return "\n".join(piece for name in names for piece in _texts(content.get(name)))


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
    found = _WORD.findall(text[:LONGEST_QUESTION])
    words = dict.fromkeys(part for word in found for part in _parts(word.lower()))
    return ([word for word in words if word not in STOP_WORDS] or list(words))[:MOST_WORDS]


def _parts(word: str) -> list[str]:
    """A word, or if it is a whole sentence without spaces each two letters that follow in it."""
    if len(word) <= _LONGEST_PHRASE or not is_unspaced(word):
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)]


def plain(text: str) -> str:
    """The words of a text without signs, accents and capitals, and without endless ones."""
    found = bare(text)
    if len(found) > _LONGEST_WORD:
        found = " ".join(word for word in found.split() if len(word) <= _LONGEST_WORD)
    return found


def bare(text: str) -> str:
    """The words of a text without signs, accents and capitals."""
    if text.isascii():
        return text.lower().translate(_ASCII)
    parts = unicodedata.normalize("NFKD", text)
    kept = "".join(part for part in parts if not unicodedata.combining(part))
    return _SIGNS.sub(" ", kept.lower())


def is_unspaced(text: str) -> bool:
    """Return whether it has letters of scripts that have no spaces between words."""
    return _may_be_unspaced(text) and _LETTER.search(text) is not None


def apart(text: str) -> str:
    """A text with spaces between the letters of scripts that have none between words."""
    return _LETTER.sub(r" \g<0> ", text) if _may_be_unspaced(text) else text


def _may_be_unspaced(text: str) -> bool:
    """False if it certainly is not, which is told much faster than by looking at each letter."""
    if text.isascii():
        return False
    data = text.encode(errors="surrogatepass")
    return len(data.translate(None, _LEADS)) < len(data)


def pieces(text: str, size: int) -> list[str]:
    """A plain text in pieces of at most `size`, a size no word reaches; at least one."""
    found: list[str] = []
    while len(text) > size:
        end = text.rindex(" ", 0, size)
        found.append(text[:end])
        text = text[end:]
    return [*found, text]


def snippet(text: str, words: list[str]) -> str:
    """The part of a text around the first place where one of the words stands; never a long one."""
    at = _first(text, words)
    first, last = max(0, at - _AROUND), at + _AROUND + 1
    around = list(islice(_split(text), first, last + 1))
    shown = " ".join(around[: last - first])
    begins, ends = _cut(shown, words)
    before = "…" if first or begins else ""
    after = "…" if len(around) > last - first or ends < len(shown) else ""
    return f"{before}{shown[begins:ends]}{after}"


def _split(text: str) -> Iterable[str]:
    """The pieces between spaces; those of a long text one by one, so that no thread waits."""
    if len(text) <= _LONG:
        return text.split()
    return (piece.group() for piece in _PIECE.finditer(text))


def _first(text: str, words: list[str]) -> int:
    """Return the position of the first query word: as a whole word, then inside others."""
    begun = tuple(_stem(word) for word in words)
    held = [f" {_stem(_words(word))}" for word in words]
    begins = (n for n, piece in enumerate(_split(text)) if _begins(piece, begun))
    holds = (n for n, piece in enumerate(_split(text)) if _holds(piece, held))
    return next(chain(begins, holds), 0)


def _stem(word: str) -> str:
    return word[: max(4, len(word) - 3)]


def _begins(piece: str, wanted: tuple[str, ...]) -> bool:
    found = _WORD.search(piece.lower())
    return found is not None and found.group().startswith(wanted)


def _holds(piece: str, wanted: list[str]) -> bool:
    said = f" {_words(piece)}"
    return any(word in said for word in wanted)


def _cut(text: str, words: list[str]) -> tuple[int, int]:
    """Return where to cut a long text so that the first query word is visible."""
    if len(text) <= _LONGEST_SNIPPET:
        return 0, len(text)
    low = text.lower()
    at = min((place for place in map(low.find, words) if place >= 0), default=0)
    begins = max(0, min(at - _LONGEST_SNIPPET // 2, len(text) - _LONGEST_SNIPPET))
    return begins, begins + _LONGEST_SNIPPET


def _words(text: str) -> str:
    return " ".join(apart(bare(text)).split())
