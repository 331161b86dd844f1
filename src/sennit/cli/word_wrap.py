"""Word wrap for text that arrives in pieces.

A word is written as soon as it is certain to stay on its line. One that begins near the edge is
buffered until it is known whether it fits, so written text is never redrawn.
"""

from __future__ import annotations

import re
from typing import Generic, TypeAlias, TypeVar

from rich.cells import cell_len

_TOKENS = re.compile(r"\n|[^\S\n]+|\S+")
_USUAL_WORD_WIDTH = 24  # columns; nearly every word is shorter

_S = TypeVar("_S")
Pieces: TypeAlias = list[tuple[str, _S]]
"""Texts with their styles."""


class WordWrap(Generic[_S]):
    """A streaming word wrapper; a word longer than a line is left to the terminal."""

    def __init__(self, plain: _S) -> None:
        self._plain = plain
        self._hanging: tuple[str, _S] = ("", plain)
        self._column = 0
        self._gap: Pieces[_S] = []  # whitespace, written when a word follows on the same line
        self._held: Pieces[_S] = []  # a buffered word that may move to the next line
        self._in_word = False  # whether the last word is written and may continue

    def begin(self, first: str, hanging: str, style: _S) -> Pieces[_S]:
        """Begin a paragraph with a prefix of its first line, and one of the following lines."""
        self._hanging = (hanging, style)
        self._column += cell_len(first)
        return [(first, style)]

    def add(self, text: str, width: int, style: _S) -> Pieces[_S]:
        """Add a piece of text; return the part that can be written now."""
        pieces: Pieces[_S] = []
        for token in _TOKENS.findall(text):
            pieces += self._token(token, width, style)
        return pieces

    def end(self) -> Pieces[_S]:
        """Return the buffered text and reset."""
        rest = self._gap + self._held
        self._column, self._gap, self._held, self._in_word = 0, [], [], False
        self._hanging = ("", self._plain)
        return rest

    def _token(self, token: str, width: int, style: _S) -> Pieces[_S]:
        if token == "\n":
            return [*self.end(), ("\n", self._plain)]
        if token.isspace():
            word = self._write_held()
            self._gap.append((token, style))
            self._in_word = False
            return word
        if self._in_word:
            self._column += cell_len(token)
            return [(token, style)]
        self._held.append((token, style))
        start = self._column + _width(self._gap)
        if start + _width(self._held) > width and self._column > cell_len(self._hanging[0]):
            self._column, self._gap = cell_len(self._hanging[0]), []
            return [("\n", self._plain), self._hanging, *self._write_held(going_on=True)]
        return self._write_held(going_on=True) if start + _USUAL_WORD_WIDTH <= width else []

    def _write_held(self, *, going_on: bool = False) -> Pieces[_S]:
        if not self._held:
            return []
        written = self._gap + self._held
        self._column += _width(written)
        self._gap, self._held, self._in_word = [], [], going_on
        return written


def _width(pieces: Pieces[_S]) -> int:
    return sum(cell_len(text) for text, _ in pieces)


def wrap_text(text: str, width: int) -> str:
    """Wrap a complete text between words."""
    wrap = WordWrap("")
    return joined([*wrap.add(text, width, ""), *wrap.end()])


def joined(pieces: Pieces[_S]) -> str:
    """Return the texts of the pieces without their styles."""
    return "".join(text for text, _ in pieces)
