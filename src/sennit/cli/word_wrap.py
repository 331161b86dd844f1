"""Word wrap for text that arrives in pieces.

A word is written as soon as it is certain to stay on its line. One that begins near the edge is
buffered until it is known whether it fits, so written text is never redrawn.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

_TOKENS = re.compile(r"\n|[^\S\n]+|\S+")
_USUAL_WORD_WIDTH = 24  # columns; nearly every word is shorter


class WordWrap:
    """A streaming word wrapper; a word longer than a line is left to the terminal."""

    def __init__(self) -> None:
        self._column = 0
        self._gap = ""  # whitespace, written when a word follows on the same line
        self._held = ""  # a buffered word that may move to the next line
        self._in_word = False  # whether the last word is written and may continue

    def add(self, text: str, width: int) -> str:
        """Add a piece of text; return the part that can be written now."""
        return "".join(self._token(token, width) for token in _TOKENS.findall(text))

    def end(self) -> str:
        """Return the buffered text and reset."""
        rest = self._gap + self._held
        self._column, self._gap, self._held, self._in_word = 0, "", "", False
        return rest

    def _token(self, token: str, width: int) -> str:
        if token == "\n":
            return f"{self.end()}\n"
        if token.isspace():
            word = self._write_held()
            self._gap += token
            self._in_word = False
            return word
        if self._in_word:
            self._column += cell_len(token)
            return token
        self._held += token
        start = self._column + cell_len(self._gap)
        if start + cell_len(self._held) > width and self._column:
            self._column, self._gap = 0, ""
            return f"\n{self._write_held(going_on=True)}"
        return self._write_held(going_on=True) if start + _USUAL_WORD_WIDTH <= width else ""

    def _write_held(self, *, going_on: bool = False) -> str:
        if not self._held:
            return ""
        written = self._gap + self._held
        self._column += cell_len(written)
        self._gap, self._held, self._in_word = "", "", going_on
        return written


def wrap_text(text: str, width: int) -> str:
    """Wrap a complete text between words."""
    wrap = WordWrap()
    return wrap.add(text, width) + wrap.end()
