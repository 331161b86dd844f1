"""Indexed text, query words and snippets.

This module decides for every store which text of a message is indexed: instructions, replies, tool
calls and results, not ids or settings, and the sender and date, as people ask for both. Stop words
are dropped from queries. `plain` leaves nothing to split to an index with tokenizer rules of its
own.

Chinese, Japanese, Thai and related scripts put no spaces between words. There each letter is a
token, and a run of letters in a query is a phrase, so that any substring is found. A longer run is
a sentence, and is searched by its letter pairs.

An index row is deleted by the text it was created with, so that text must not change: a change of
`indexed` or `apart` requires a new SCHEMA_VERSION.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, cast

from sennit import clock
from sennit.errors import CodecError, ValidationError
from sennit.messages.codec import loads

_UNSPACED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3031-\u3035\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
_LETTER = re.compile(f"[{_UNSPACED}]")
_UNSPACED_LEAD_BYTES = (
    b"\xe0\xe1\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xef\xf0"  # first bytes of these letters in UTF-8
)
_WORD = re.compile(f"[{_UNSPACED}]+|[^\\W{_UNSPACED}]+")
_TEXT_FIELDS = (
    "system_message",
    "instruction",
    "context",
    "assistant_response",
    "function",
    "arguments",
    "result",
    "error",
)
_STOP_WORD_LIST = """
    a about an and any are aren as at be been but by can could d did didn do does doesn don for
    from get got had has have he her his how i if in into is isn it its just ll m many me much my
    no not of on or our re s she so some t than that the their them then there these they this to
    too up us ve was wasn we were what when where which who whom whose why will with won would you
    your
"""
STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
MAX_QUERY_LENGTH = 16_384
"""Maximum characters of a query that are tokenized: it may be a whole file."""
MAX_QUERY_WORDS = 64
"""Maximum words of a query; more than people ask, and few enough for every index."""
_ROLES = frozenset({"user", "assistant", "system", "tool"})
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SNIPPET_WORDS = 8
_LAZY_SPLIT_LENGTH = 65_536  # characters of a text that is not split in one go
_NON_SPACE = re.compile(r"\S+")
_MAX_WORD_LENGTH = 500
_MAX_PHRASE_LENGTH = 4  # letters that are asked for together where no spaces tell words apart
_MAX_SNIPPET_LENGTH = 300
_PUNCTUATION = re.compile(r"[\W_]+")
_ASCII_TRANSLATION = "".join(sign if sign.isalnum() else " " for sign in map(chr, range(128)))


def message_text(body: bytes) -> str:
    """Return the text of a stored message; "" if it cannot be parsed, so that a search goes on."""
    return _text_of(_parse(body))


def speaker(body: bytes) -> str:
    """Return the sender's name; "" if it is only a role or an id."""
    return _speaker(_parse(body))


class SpokenText(NamedTuple):
    """The text of a stored message and its speaker."""

    text: str
    """"" if the message cannot be parsed."""
    speaker: str
    """The name; "" if it is only a role or an id."""
    is_from_user: bool


def utterance(body: bytes) -> SpokenText:
    """Return the text of a stored message and its speaker."""
    message = _parse(body)
    is_from_user = message.get("type") == "instruction" or message.get("role") == "user"
    return SpokenText(_text_of(message), _speaker(message), is_from_user)


def indexed_text(body: bytes, created: int) -> str:
    """Return the indexed text of a message: speaker, date and text."""
    message = _parse(body)
    return space_letters(f"{_speaker(message)} {day(created)}\n{_text_of(message)}")


def embedded_text(body: bytes, created: int) -> str:
    """Return the embedded text of a message: speaker, date and text; "" if it has no text."""
    message = _parse(body)
    if not (text := _text_of(message).strip()):
        return ""
    name = _speaker(message)
    return f"{name} ({day(created)}): {text}" if name else f"{day(created)}: {text}"


def day(created: int) -> str:
    """Return a timestamp's date in UTC, such as "Tuesday 14 January 2025"."""
    try:
        moment = clock.to_datetime(created)
    except ValidationError:
        return ""
    return f"{_DAYS[moment.weekday()]} {moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = loads(body)
    except CodecError:
        return {}
    return cast("dict[str, Any]", message) if isinstance(message, dict) else {}


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, dict):
        return ""
    content = cast("dict[str, Any]", content)
    # A custom content type is stored with its role: all its fields are text.
    names = content if "role" in message else _TEXT_FIELDS
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


def query_words(text: str) -> list[str]:
    """Return the distinct words of a query without stop words; all if only stop words remain."""
    matches = _WORD.findall(text[:MAX_QUERY_LENGTH])
    words = dict.fromkeys(part for word in matches for part in _parts(word.lower()))
    return ([word for word in words if word not in STOP_WORDS] or list(words))[:MAX_QUERY_WORDS]


def _parts(word: str) -> list[str]:
    """Return the word, or the letter pairs of a long run in an unspaced script."""
    if len(word) <= _MAX_PHRASE_LENGTH or not is_unspaced(word):
        return [word]
    return [word[start : start + 2] for start in range(len(word) - 1)]


def known_words(words: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Return the query words that occur in any of the texts, perhaps in another form."""
    joined = f" {' '.join(map(_normalize, texts))}"
    return {word for word in words if f" {_stem(_normalize(word))}" in joined}


def normalize(text: str) -> str:
    """Return the text in lower case, without accents, punctuation and overlong words."""
    words = strip_marks(text)
    if len(words) > _MAX_WORD_LENGTH:
        words = " ".join(word for word in words.split() if len(word) <= _MAX_WORD_LENGTH)
    return words


def strip_marks(text: str) -> str:
    """Return the text in lower case, without accents and punctuation."""
    if text.isascii():
        return text.lower().translate(_ASCII_TRANSLATION)
    decomposed = unicodedata.normalize("NFKD", text)
    letters = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _PUNCTUATION.sub(" ", letters.lower())


def is_unspaced(text: str) -> bool:
    """Return whether a text has letters of an unspaced script."""
    return _may_be_unspaced(text) and _LETTER.search(text) is not None


def space_letters(text: str) -> str:
    """Return the text with spaces around each letter of an unspaced script."""
    return _LETTER.sub(r" \g<0> ", text) if _may_be_unspaced(text) else text


def _may_be_unspaced(text: str) -> bool:
    """Return False if no such letter can occur, by a fast look at the UTF-8 bytes."""
    if text.isascii():
        return False
    data = text.encode(errors="surrogatepass")
    return len(data.translate(None, _UNSPACED_LEAD_BYTES)) < len(data)


def pieces(text: str, size: int) -> list[str]:
    """Split a plain text into pieces of at most `size`, which must exceed the longest word."""
    parts: list[str] = []
    while len(text) > size:
        end = text.rindex(" ", 0, size)
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text]


def snippet(text: str, words: list[str]) -> str:
    """Return a short excerpt of a text around the first of the query words."""
    index = _find_word(text, words)
    first, last = max(0, index - _SNIPPET_WORDS), index + _SNIPPET_WORDS + 1
    words_around = list(islice(_split(text), first, last + 1))
    text_around = " ".join(words_around[: last - first])
    start, end = _clip(text_around, words)
    before = "…" if first or start else ""
    after = "…" if len(words_around) > last - first or end < len(text_around) else ""
    return f"{before}{text_around[start:end]}{after}"


def _split(text: str) -> Iterable[str]:
    """Split a text at spaces; a long one lazily, so as not to hold the GIL."""
    if len(text) <= _LAZY_SPLIT_LENGTH:
        return text.split()
    return (piece.group() for piece in _NON_SPACE.finditer(text))


def _find_word(text: str, words: list[str]) -> int:
    """Return the position of the first query word: as a whole word, then inside others."""
    stems = tuple(_stem(word) for word in words)
    normalized_stems = [f" {_stem(_normalize(word))}" for word in words]
    starting = (index for index, piece in enumerate(_split(text)) if _starts_with(piece, stems))
    containing = (
        index for index, piece in enumerate(_split(text)) if _contains(piece, normalized_stems)
    )
    return next(chain(starting, containing), 0)


def _stem(word: str) -> str:
    return word[: max(4, len(word) - 3)]


def _starts_with(piece: str, stems: tuple[str, ...]) -> bool:
    match = _WORD.search(piece.lower())
    return match is not None and match.group().startswith(stems)


def _contains(piece: str, stems: list[str]) -> bool:
    text = f" {_normalize(piece)}"
    return any(stem in text for stem in stems)


def _clip(text: str, words: list[str]) -> tuple[int, int]:
    """Return where to cut a long text so that the first query word is visible."""
    if len(text) <= _MAX_SNIPPET_LENGTH:
        return 0, len(text)
    lowered = text.lower()
    position = min((found_at for found_at in map(lowered.find, words) if found_at >= 0), default=0)
    start = max(0, min(position - _MAX_SNIPPET_LENGTH // 2, len(text) - _MAX_SNIPPET_LENGTH))
    return start, start + _MAX_SNIPPET_LENGTH


def _normalize(text: str) -> str:
    return " ".join(space_letters(strip_marks(text)).split())
