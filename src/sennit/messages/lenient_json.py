"""Lenient JSON: values in code fences or prose, trailing commas, comments, odd quotes.

Every value that begins with a brace or a bracket and is closed is parsed and rewritten as strict
JSON. A truncated value is not completed, and values inside of invalid JSON are not returned.
Nothing is evaluated.

The text is scanned once, from left to right. If a value is invalid, the search continues where
parsing failed, not where the value began, so the cost is linear; and open braces are on a list, so
nesting uses no stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from sennit.errors import CodecError
from sennit.messages.codec import loads

_FENCED_TEXT = re.compile(r"\s*```[\w-]*[ \t]*\n(.*)```\s*", re.DOTALL)
_BRACKET_OR_FENCE = re.compile(r"[{}\[\]]|```")
_CLOSING = {"{": "}", "[": "]"}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_STRINGS = {
    end: re.compile(rf"[^{end}\\]*+(?:\\.[^{end}\\]*+)*+{end}", re.DOTALL)
    for end in _QUOTES.values()
}
_TOKEN = re.compile(
    r"(?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*(?s:.*?)\*/)"
    r"|(?P<word>[^\W\d][\w$-]*|\$[\w$-]*)"
    r"|(?P<number>[-+]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)"
)
_NEEDS_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|.)|["\x00-\x1f]', re.DOTALL)
_LITERALS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
    "NaN": "null",
    "undefined": "null",
}

_Expected: TypeAlias = Literal["key", "colon", "value", "comma"]
_Outcome: TypeAlias = Literal["whole", "broken", "cut off"]


def values_in(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text: the whole text, or else all values at the top level."""
    whole = _parse_strict(text) or _parse_strict(_strip_fence(text))
    if whole is not None:
        yield whole[0]
        return
    position, depth, unclosed = 0, 0, set[str]()
    while (match := _BRACKET_OR_FENCE.search(text, position)) is not None:
        position = match.end()
        if match[0] == "```":
            depth = 0  # invalid JSON before a fence does not extend into it
        elif match[0] in "}]":
            depth = max(0, depth - 1)
        elif depth:
            depth += 1
        else:
            reader = _Reader(text, match.start(), unclosed)
            outcome = reader.read()
            if outcome == "cut off":
                return
            if outcome == "whole" and (value := _parse_strict(reader.json_text)) is not None:
                yield value[0]
            position, depth = reader.position, reader.open_depth


def _strip_fence(text: str) -> str:
    match = _FENCED_TEXT.fullmatch(text)
    return match[1] if match else text


def _parse_strict(text: str) -> tuple[Any] | None:
    try:
        return (loads(text.strip()),)
    except CodecError:
        return None


class _Reader:
    """A parser of one value that begins with a brace or bracket; it writes strict JSON."""

    def __init__(self, text: str, start: int, unclosed: set[str]) -> None:
        self.position = start
        """The position in the text."""
        self._text = text
        self._unclosed = unclosed  # quotes that are not closed in the rest of the text
        self._output: list[str] = []
        self._closers: list[str] = []
        self._expected: _Expected = "value"
        self._has_members = False

    @property
    def json_text(self) -> str:
        """The value as strict JSON."""
        return "".join(self._output)

    @property
    def open_depth(self) -> int:
        """The number of open braces of invalid JSON; braces in prose do not count."""
        return len(self._closers) if self._has_members else 0

    def read(self) -> _Outcome:
        """Parse until the value is complete or invalid, or the text ends."""
        while self.position < len(self._text):
            char = self._text[self.position]
            if char in _QUOTES:
                outcome = self._read_string(_QUOTES[char])
            elif char in ",:{}[]":
                outcome = self._read_punctuation(char)
            else:
                outcome = self._read_token()
            if outcome is not None:
                return outcome
        return "cut off"

    def _read_punctuation(self, char: str) -> _Outcome | None:
        self.position += 1
        if char in _CLOSING:
            fits = self._write_value(char)
            self._closers.append(_CLOSING[char])
            self._expected = "key" if char == "{" else "value"
        elif char in "}]":
            fits = self._close(char)
            if fits and not self._closers:
                return "whole"
        elif char == ":":
            fits = self._expected == "colon"
            self._write(char, "value")
        else:
            fits = self._expected == "comma"
            self._write(char, "key" if self._closers[-1] == "}" else "value")
        if fits:
            return None
        self.position -= 1  # the search continues with it: it may begin or end a value
        self._closers = self._closers[: -1 if char in _CLOSING else None]
        return "broken"

    def _close(self, char: str) -> bool:
        """Close the innermost brace, after a value, a trailing comma or nothing."""
        empty = self._output[-1] in ("{", "[", ",")
        fits = self._closers[-1] == char and (self._expected == "comma" or empty)
        if fits:
            self._closers.pop()
            if self._output[-1] == ",":
                self._output.pop()
            self._write(char, "comma")
            self._has_members = True
        return fits

    def _write_value(self, json_text: str) -> bool:
        """Write a value or its beginning; return whether one is expected."""
        fits = self._expected == "value"
        self._write(json_text, "comma")
        return fits

    def _write(self, json_text: str, expected: _Expected) -> None:
        self._output.append(json_text)
        self._expected = expected

    def _read_string(self, quote: str) -> _Outcome | None:
        """Parse a string up to its closing quote; other quotes are part of it."""
        if self._expected not in ("key", "value") or quote in self._unclosed:
            return "broken"
        match = _STRINGS[quote].match(self._text, self.position + 1)
        if match is None:
            self._unclosed.add(quote)
            return "cut off" if quote == '"' else "broken"  # prose has apostrophes
        self._write_scalar(f'"{_NEEDS_ESCAPE.sub(_escape, match[0][:-1])}"')
        self._has_members = True  # a quoted key, too, is not prose
        self.position = match.end()
        return None

    def _write_scalar(self, json_text: str) -> None:
        if self._expected == "key":
            self._write(json_text, "colon")
        else:
            self._write(json_text, "comma")
            self._has_members = True

    def _read_token(self) -> _Outcome | None:
        match = _TOKEN.match(self._text, self.position)
        if match is None:
            # An unclosed comment extends to the end.
            return "cut off" if self._text.startswith("/*", self.position) else "broken"
        if match.lastgroup != "blank":
            json_text = self._convert_token(match[0], match.lastgroup == "word")
            if json_text is None:
                return "broken"
            self._write_scalar(json_text)
        self.position = match.end()
        return None

    def _convert_token(self, token: str, is_word: bool) -> str | None:
        """Return a key without quotes, a literal or a number as JSON; None if it is invalid."""
        if self._expected == "key":
            return f'"{token}"'
        if self._expected != "value":
            return None
        return _LITERALS.get(token) if is_word else _normalize_number(token)


def _escape(match: re.Match[str]) -> str:
    """Return the content of a string as strict JSON; unknown escapes are kept literally."""
    text = match[0]
    if len(text) == 1:
        return '\\"' if text == '"' else f"\\u{ord(text):04x}"
    if len(text) > 2 or text[1] in '"\\/bfnrt':
        return text
    char = text[1]
    if char in "'“”‘’":
        return char
    return "\\\\" + (char if char >= " " else f"\\u{ord(char):04x}")


def _normalize_number(text: str) -> str:
    text = text.replace("_", "").lstrip("+")
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits.startswith("."):
        digits = "0" + digits
    return sign + (digits + "0" if digits.endswith(".") else digits)
