"""Lenient JSON: values in code fences or prose, trailing commas, comments, odd quotes.

Every value that begins with a brace or a bracket and is closed again is found, and written down as
strict JSON on the way. Half an answer is no answer: what is cut off is not completed, and what
stands inside of broken JSON is not taken for the whole. Nothing is evaluated.

The text is read once, from left to right. Where reading a value fails, the search goes on from that
place and not from where the value began, so the cost stays in proportion to the text; and open
braces are counted on a list, so nesting costs no stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from sennit.errors import CodecError
from sennit.messages.codec import loads

_FENCED = re.compile(r"\s*```[\w-]*[ \t]*\n(.*)```\s*", re.DOTALL)
_MARK = re.compile(r"[{}\[\]]|```")
_CLOSES = {"{": "}", "[": "]"}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_STRINGS = {
    end: re.compile(rf"[^{end}\\]*+(?:\\.[^{end}\\]*+)*+{end}", re.DOTALL)
    for end in _QUOTES.values()
}
_PIECE = re.compile(
    r"(?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*(?s:.*?)\*/)"
    r"|(?P<word>[^\W\d][\w$-]*|\$[\w$-]*)"
    r"|(?P<number>[-+]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)"
)
_ODD = re.compile(r'\\(?:u[0-9a-fA-F]{4}|.)|["\x00-\x1f]', re.DOTALL)
_WORDS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
    "NaN": "null",
    "undefined": "null",
}

_Next: TypeAlias = Literal["key", "colon", "value", "comma"]
_End: TypeAlias = Literal["whole", "broken", "cut off"]


def values_in(text: str) -> Iterator[Any]:
    """The JSON values in a text: the text itself, else all that stand in it side by side."""
    whole = _strict(text) or _strict(_unfenced(text))
    if whole is not None:
        yield whole[0]
        return
    at, inside, endless = 0, 0, set[str]()
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == "```":
            inside = 0  # what was broken before a fence has nothing to do with what is in it
        elif mark[0] in "}]":
            inside = max(0, inside - 1)
        elif inside:
            inside += 1
        else:
            reader = _Reader(text, mark.start(), endless)
            end = reader.read()
            if end == "cut off":
                return
            if end == "whole" and (value := _strict(reader.written)) is not None:
                yield value[0]
            at, inside = reader.at, reader.still_inside


def _unfenced(text: str) -> str:
    found = _FENCED.fullmatch(text)
    return found[1] if found else text


def _strict(text: str) -> tuple[Any] | None:
    try:
        return (loads(text.strip()),)
    except CodecError:
        return None


class _Reader:
    """Reads one value that begins with a brace or bracket, and writes it as strict JSON."""

    def __init__(self, text: str, start: int, endless: set[str]) -> None:
        self.at = start
        """How far it has read."""
        self._text = text
        self._endless = endless  # quotes that are known not to be closed any more
        self._out: list[str] = []
        self._closers: list[str] = []
        self._next: _Next = "value"
        self._members = False

    @property
    def written(self) -> str:
        """The value as strict JSON."""
        return "".join(self._out)

    @property
    def still_inside(self) -> int:
        """The number of open braces of broken JSON; braces in prose do not count."""
        return len(self._closers) if self._members else 0

    def read(self) -> _End:
        """Read on until the value is whole, makes no sense, or the text ends."""
        while self.at < len(self._text):
            sign = self._text[self.at]
            if sign in _QUOTES:
                end = self._string(_QUOTES[sign])
            elif sign in ",:{}[]":
                end = self._sign(sign)
            else:
                end = self._piece()
            if end is not None:
                return end
        return "cut off"

    def _sign(self, sign: str) -> _End | None:
        self.at += 1
        if sign in _CLOSES:
            fits = self._value(sign)
            self._closers.append(_CLOSES[sign])
            self._next = "key" if sign == "{" else "value"
        elif sign in "}]":
            fits = self._close(sign)
            if fits and not self._closers:
                return "whole"
        elif sign == ":":
            fits = self._next == "colon"
            self._write(sign, "value")
        else:
            fits = self._next == "comma"
            self._write(sign, "key" if self._closers[-1] == "}" else "value")
        if fits:
            return None
        self.at -= 1  # the search goes on with it: it may begin a value, or end what is broken
        self._closers = self._closers[: -1 if sign in _CLOSES else None]
        return "broken"

    def _close(self, sign: str) -> bool:
        """Close the innermost brace, after a value, a trailing comma or nothing at all."""
        empty = self._out[-1] in ("{", "[", ",")
        fits = self._closers[-1] == sign and (self._next == "comma" or empty)
        if fits:
            self._closers.pop()
            if self._out[-1] == ",":
                self._out.pop()
            self._write(sign, "comma")
            self._members = True
        return fits

    def _value(self, written: str) -> bool:
        """Write a value, or the beginning of one, where one may stand."""
        fits = self._next == "value"
        self._write(written, "comma")
        return fits

    def _write(self, written: str, next: _Next) -> None:
        self._out.append(written)
        self._next = next

    def _string(self, end: str) -> _End | None:
        """A string, its end included; the other quotes may stand in it as they are."""
        if self._next not in ("key", "value") or end in self._endless:
            return "broken"
        found = _STRINGS[end].match(self._text, self.at + 1)
        if found is None:
            self._endless.add(end)
            return "cut off" if end == '"' else "broken"  # prose has apostrophes
        self._scalar(f'"{_ODD.sub(_escaped, found[0][:-1])}"')
        self._members = True  # a key in quotes, too: whoever writes that does not write prose
        self.at = found.end()
        return None

    def _scalar(self, written: str) -> None:
        if self._next == "key":
            self._write(written, "colon")
        else:
            self._write(written, "comma")
            self._members = True

    def _piece(self) -> _End | None:
        found = _PIECE.match(self._text, self.at)
        if found is None:
            # A comment that never ends takes all the rest with it.
            return "cut off" if self._text.startswith("/*", self.at) else "broken"
        if found.lastgroup != "blank":
            written = self._plain(found[0], found.lastgroup == "word")
            if written is None:
                return "broken"
            self._scalar(written)
        self.at = found.end()
        return None

    def _plain(self, said: str, is_word: bool) -> str | None:
        """A key without quotes, a word that is a value, or a number."""
        if self._next == "key":
            return f'"{said}"'
        if self._next != "value":
            return None
        return _WORDS.get(said) if is_word else _number(said)


def _escaped(found: re.Match[str]) -> str:
    """Return the content of a string as strict JSON; unknown escapes are kept literally."""
    said = found[0]
    if len(said) == 1:
        return '\\"' if said == '"' else f"\\u{ord(said):04x}"
    if len(said) > 2 or said[1] in '"\\/bfnrt':
        return said
    sign = said[1]
    if sign in "'“”‘’":
        return sign
    return "\\\\" + (sign if sign >= " " else f"\\u{ord(sign):04x}")


def _number(said: str) -> str:
    said = said.replace("_", "").lstrip("+")
    sign, digits = ("-", said[1:]) if said.startswith("-") else ("", said)
    if digits.startswith("."):
        digits = "0" + digits
    return sign + (digits + "0" if digits.endswith(".") else digits)
