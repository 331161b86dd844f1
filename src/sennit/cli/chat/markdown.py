"""Markdown rendered while it arrives, without redrawing what was written.

A line is shown word by word once its kind is known from its first characters: heading, list item,
quote, code or paragraph. A span such as `**bold**` is shown when it is closed; one that never is
closed is shown as it was written. A table is shown when it is complete. Nothing is lost but the
markup itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO

from rich.console import Console
from rich.style import Style

from sennit.cli.word_wrap import Pieces, WordWrap

_PLAIN, _BOLD, _ITALIC, _STRIKE = (
    Style(),
    Style(bold=True),
    Style(italic=True),
    Style(strike=True),
)
_CODE, _DIM, _LINK, _TITLE = (
    Style(color="cyan"),
    Style(dim=True),
    Style(underline=True),
    Style(bold=True, underline=True),
)
_MAX_SPAN_CHARS = 2000  # a longer one is shown as it was written
_MAX_RULE_WIDTH = 40

# The beginning of a line that may still become several kinds of block.
_UNDECIDED = re.compile(
    r"\s*(?:#{1,6}[ \t]*|[-*+_][-*_ \t]*|\d{1,9}(?:[.)][ \t]*)?|(?:> ?)+|`{1,2}|`{3,}[^`\n]*|~{1,2}"
    r"|~{3,}[^\n]*|\|[^\n]*|(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]?\]?)?"
)
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[^`\n]*\n?")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+")
_RULE = re.compile(r" {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})\n?")
_ITEM = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])([ \t]+)(\[[ xX]\] )?")
_QUOTE = re.compile(r" {0,3}((?:> ?)+)")

_SPECIAL = re.compile(r"[\\`*_~\[!<]")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_SPANS = (
    (re.compile(r"\*\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*\*(?!\*)"), _BOLD + _ITALIC),
    (re.compile(r"\*\*(?=[^\s*])(.+?)(?<=\S)\*\*(?!\*)"), _BOLD),
    (re.compile(r"\*(?=[^\s*])((?:[^*]|\*\*[^*]+\*\*)+?)(?<=\S)\*(?!\*)"), _ITALIC),
    (re.compile(r"_(?=[^\s_])(.+?)(?<=[^\s_])_(?!\w)"), _ITALIC),
    (re.compile(r"~~(?=[^\s~])(.+?)(?<=\S)~~(?!~)"), _STRIKE),
)
_REFERENCE = re.compile(r"!?\[([^\[\]]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?: +\"[^\"]*\")?\)")
_NO_REFERENCE = re.compile(r"!(?!\[|$)|!?\[[^\[\]]*(?:\[|\][^(])|!?\[[^\[\]]*\]\([^)]*\s[^)\"]")
_ADDRESS = re.compile(r"<((?:https?://|mailto:)[^<>\s]+)>")
_NO_ADDRESS = re.compile(r"<(?!$|h$|ht$|htt$|http|m$|ma$|mai$|mail$|mailt$|mailto)|<\S*\s")


class MarkdownStream:
    """A streaming Markdown renderer for a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._wrap = WordWrap(_PLAIN)
        self._reset()

    def _reset(self) -> None:
        self._rest = ""  # what is not rendered yet
        self._previous = ""  # the last character before it
        self._style: Style | None = None  # of the line; None before its kind is known
        self._fence = ""  # the fence of the code block around the line
        self._in_code_line = False
        self._table: list[str] = []

    def label(self, text: str) -> Pieces[Style]:
        """Begin the next line with a label, such as a number."""
        return self._wrap.begin(text, "", _DIM)

    def add(self, text: str) -> Pieces[Style]:
        """Add a piece of Markdown; return what can be written now."""
        self._rest += text
        return list(self._render(final=False))

    def end(self) -> Pieces[Style]:
        """Return the rest of the text, as it is, and reset."""
        pieces = [*self._render(final=True), *self._end_table(), *self._wrap.end()]
        self._reset()
        return pieces

    def _render(self, *, final: bool) -> Iterator[tuple[str, Style]]:
        while self._rest:
            size, style = len(self._rest), self._style
            if self._fence:
                yield from self._code(final=final)
            elif self._style is None:
                yield from self._begin_line(final=final)
            else:
                yield from self._continue_line(final=final)
            if len(self._rest) == size and self._style is style:
                return

    def _begin_line(self, *, final: bool) -> Iterator[tuple[str, Style]]:
        line, newline, _ = self._rest.partition("\n")
        if not (newline or final) and _UNDECIDED.fullmatch(line):
            return
        if line.lstrip().startswith("|"):
            self._table.append(line)
            self._drop(len(line) + len(newline))
            return
        yield from self._end_table()
        self._previous = ""
        if (fence := _FENCE.fullmatch(f"{line}{newline}")) is not None:
            self._fence = fence[2]
            self._drop(fence.end())
        elif _RULE.fullmatch(line):
            yield "─" * min(self._console.width, _MAX_RULE_WIDTH), _DIM
            self._style = _PLAIN
            self._drop(len(line))
        elif (heading := _HEADING.match(line)) is not None:
            self._style = _TITLE if heading[1] == "#" else _BOLD
            self._drop(heading.end())
        elif (item := _ITEM.match(line)) is not None:
            yield from self._begin_item(item)
        elif (quote := _QUOTE.match(line)) is not None:
            bar = "│ " * quote[1].count(">")
            yield from self._begin_paragraph(quote.end(), bar, bar, _DIM, _ITALIC)
        else:
            indent = line[: len(line) - len(line.lstrip())]
            yield from self._begin_paragraph(len(indent), indent, indent, _PLAIN, _PLAIN)

    def _begin_item(self, item: re.Match[str]) -> Iterator[tuple[str, Style]]:
        indent, mark, _, box = item.groups()
        mark = "•" if mark in "-*+" else mark
        boxed = "" if box is None else "☐ " if box[1] == " " else "☑ "
        first = f"{indent}{mark} {boxed}"
        yield from self._begin_paragraph(item.end(), first, " " * len(first), _PLAIN, _PLAIN)

    def _begin_paragraph(
        self, size: int, first: str, hanging: str, prefix_style: Style, style: Style
    ) -> Iterator[tuple[str, Style]]:
        self._style = style
        self._drop(size)
        if first:
            yield from self._wrap.begin(first, hanging, prefix_style)

    def _continue_line(self, *, final: bool) -> Iterator[tuple[str, Style]]:
        line, newline, _ = self._rest.partition("\n")
        base, complete = self._style or _PLAIN, final or bool(newline)
        used = 0
        for end, text, style in _inline(line, base, self._previous, complete=complete):
            yield from self._wrap.add(text, self._console.width, style)
            used = end
        self._previous = line[used - 1] if used else self._previous
        self._drop(used)
        if newline:
            yield from self._wrap.add("\n", self._console.width, _PLAIN)
            self._style = None
            self._drop(1)

    def _code(self, *, final: bool) -> Iterator[tuple[str, Style]]:
        line, newline, _ = self._rest.partition("\n")
        mark = line.strip()
        if not self._in_code_line and not set(mark) - {self._fence[0]}:
            if not (newline or final):
                return  # it may become the end of the block
            if len(mark) >= len(self._fence):
                self._fence = ""
                self._drop(len(line) + len(newline))
                return
        yield f"{line}{newline}", _CODE
        self._in_code_line = not newline
        self._drop(len(line) + len(newline))

    def _end_table(self) -> Iterator[tuple[str, Style]]:
        """Render the rows collected so far; rich does that."""
        if not self._table:
            return
        from rich.markdown import Markdown  # late: slow to import

        console = Console(file=StringIO(), width=self._console.width)
        table, self._table = Markdown("\n".join(self._table)), []
        for line in console.render_lines(table, pad=False):
            if any(segment.text.strip() for segment in line):
                yield from ((segment.text, segment.style or _PLAIN) for segment in line)
                yield "\n", _PLAIN

    def _drop(self, size: int) -> None:
        self._rest = self._rest[size:]


def _inline(
    text: str, style: Style, previous: str, *, complete: bool
) -> Iterator[tuple[int, str, Style]]:
    """Yield the spans of a line: the position after each, its text and its style.

    An open span at the end of an incomplete line is left out.
    """
    at = 0
    while at < len(text):
        special = _SPECIAL.search(text, at)
        start = len(text) if special is None else special.start()
        if start > at:
            yield start, text[at:start], style
            at = start
            continue
        before = text[at - 1] if at else previous
        span = _span(text, at, style, before)
        if span is not None and (complete or span[0] < len(text)):
            at = span[0]
            for shown, shown_style in span[1]:
                yield at, shown, shown_style
        elif complete or (span is None and _is_literal(text, at, before)):
            run = len(text[at:]) - len(text[at:].lstrip(text[at]))
            if not complete and at + run == len(text):
                return  # more of them may come, and a run is one
            at += run
            yield at, text[at - run : at], style
        else:
            return


def _span(text: str, at: int, style: Style, before: str) -> tuple[int, Pieces[Style]] | None:
    """Return the end and the pieces of the span that begins at a special character, if one does."""
    if (escape := _ESCAPE.match(text, at)) is not None:
        return escape.end(), [(escape[1], style)]
    if (code := _CODE_SPAN.match(text, at)) is not None:
        return code.end(), [(code[2], style + _CODE)]
    if (address := _ADDRESS.match(text, at)) is not None:
        return address.end(), [(address[1], style + _LINK)]
    if (reference := _REFERENCE.match(text, at)) is not None:
        label, address = reference.groups()
        pieces = _nested(label, style + _LINK)
        shown = [] if address in ("", label) else [(f" ({address})", style + _DIM)]
        return reference.end(), pieces + shown
    if text[at] == "_" and before.isalnum():
        return None  # in the middle of a word
    for pattern, span_style in _SPANS:
        if (match := pattern.match(text, at)) is not None:
            return match.end(), _nested(match[1], style + span_style)
    return None


def _nested(text: str, style: Style) -> Pieces[Style]:
    return [
        (shown, shown_style) for _, shown, shown_style in _inline(text, style, "", complete=True)
    ]


def _is_literal(text: str, at: int, before: str) -> bool:
    """Return whether the special character is certainly not the beginning of a span."""
    rest = text[at:]
    if len(rest) > _MAX_SPAN_CHARS:
        return True
    following = rest.lstrip(rest[0])[:1]
    match rest[0]:
        case "*":
            return following.isspace()
        case "_":
            return before.isalnum() or following.isspace()
        case "~":
            return bool(following) and (not rest.startswith("~~") or following.isspace())
        case "\\":
            return bool(rest[1:]) and _ESCAPE.match(rest) is None
        case "[" | "!":
            return _NO_REFERENCE.match(rest) is not None
        case "<":
            return _NO_ADDRESS.match(rest) is not None
        case _:
            return False
