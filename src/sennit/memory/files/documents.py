"""Documents as text: what a file says, in sections that a search can return whole.

A document is cut at its headings. Sections below SMALL_TOKENS are joined with those that follow
them, and sections above MAX_TOKENS are cut at paragraphs, lines or, at last, anywhere. Every
section but the first begins with the headings that it is below, so that it can be understood, and
found, alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO
from typing import Any, Final

from sennit.errors import MissingExtraError, ValidationError
from sennit.services.models.usage import tokens_of_chars

MAX_TOKENS: Final = 1_024
SMALL_TOKENS: Final = 512
MAX_DOCUMENT_BYTES: Final = 32 << 20
_MAX_TEXT_CHARS = 8 << 20
_MAX_PAGES = 10_000
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_DEFINITION = re.compile(
    r"(?:@|(?:export |pub |public |async |static |default )*"
    r"(?:class|def|func|function|fn|interface|impl|struct|enum|trait|module|type) )"
)
_MARKDOWN = frozenset({"md", "markdown", "mdx", "rst", "txt", "text", ""})
_HTML = frozenset({"html", "htm", "xhtml"})
_BREAKS = ("\n\n", "\n", " ")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document."""

    headings: tuple[str, ...]
    """The headings that it is below, the outermost first."""
    text: str
    """Its text, with its own heading."""


def read_document(name: str, data: bytes) -> str:
    """Return the text of a file, with headings as in Markdown; raises ValidationError."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValidationError(
            f"it has {len(data):,} bytes, more than the {MAX_DOCUMENT_BYTES:,} of a document"
        )
    if data.startswith(b"%PDF-"):
        text = _pdf_text(data)
    else:
        text = _decoded(data)
        if _kind(name) in _HTML:
            text = _html_text(text)
    if len(text) > _MAX_TEXT_CHARS:
        raise ValidationError(f"it has more than {_MAX_TEXT_CHARS:,} characters of text")
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    if not text.strip():
        raise ValidationError("it contains no text")
    return text


def sections_of(name: str, text: str) -> list[Section]:
    """Return the sections of a text, none of them larger than MAX_TOKENS."""
    parts = _by_headings(text) if _is_prose(name) else _by_definitions(text)
    return list(_joined(piece for part in parts for piece in _pieces(part)))


def is_text_kind(name: str) -> bool:
    """Return whether a file with this name is stored as it is, if it is one section."""
    return _kind(name) not in _HTML | {"pdf"}


def _kind(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return suffix.lower() if stem and dot else ""


def _is_prose(name: str) -> bool:
    return _kind(name) in _MARKDOWN | _HTML | {"pdf"}


def _decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif b"\0" in data:
        raise ValidationError("it is not a text, an HTML page or a PDF")
    else:
        encoding = "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValidationError(f"it is not text in UTF-8, at byte {error.start:,}") from None
    if "\0" in text:
        raise ValidationError("it is not a text, an HTML page or a PDF")
    return text


def _pdf_text(data: bytes) -> str:
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise MissingExtraError.of("reading PDFs", "pdf") from error
    try:
        reader = PdfReader(BytesIO(data))
        if len(reader.pages) > _MAX_PAGES:
            raise ValidationError(f"it has more than {_MAX_PAGES:,} pages")
        pages: list[str] = []
        size = 0
        for page in reader.pages:
            pages.append(page.extract_text())
            size += len(pages[-1])
            if size > _MAX_TEXT_CHARS:
                break
    except ValidationError:
        raise
    except Exception as error:  # pypdf raises many kinds for damaged files
        raise ValidationError(f"it cannot be read as a PDF: {error}") from error
    return "\n\n".join(filter(None, map(str.strip, pages)))


class _PageText(HTMLParser):
    """The text of an HTML page, with headings and list items as in Markdown."""

    _SKIPPED = frozenset({"script", "style", "template", "noscript", "svg", "head"})
    _BLOCKS = frozenset(
        {"p", "div", "section", "article", "header", "footer", "main", "ul", "ol", "table", "tr"}
        | {"blockquote", "pre", "br", "hr"}
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._skipped: list[str] = []
        self._is_pre = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        if self._skipped or tag in self._SKIPPED:
            self._skipped += [tag] if tag in self._SKIPPED else []
        elif tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.pieces.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag in self._BLOCKS:
            self.pieces.append("\n" if tag in ("br", "tr") else "\n\n")
        self._is_pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
        elif tag in self._BLOCKS or tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.pieces.append("\n\n")
        self._is_pre -= tag == "pre" and self._is_pre > 0

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.pieces.append(data if self._is_pre else re.sub(r"\s+", " ", data))


def _html_text(page: str) -> str:
    parser = _PageText()
    parser.feed(page)
    parser.close()
    lines = (line.rstrip() for line in "".join(parser.pieces).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line if line else "" for line in lines))


def _by_headings(text: str) -> Iterator[Section]:
    """Cut a text before each heading in the style of Markdown."""
    headings: dict[int, str] = {}
    above: tuple[str, ...] = ()
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if match := _FENCE.match(line):
            fence = "" if fence == match[1] else fence or match[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        if any(map(str.strip, lines)):
            yield Section(above, "\n".join(lines))
        level = len(heading[1])
        headings = {at: words for at, words in headings.items() if at < level}
        above = tuple(headings.values())
        headings[level] = heading[2]
        lines = [line]
    if any(map(str.strip, lines)):
        yield Section(above, "\n".join(lines))


def _by_definitions(text: str) -> Iterator[Section]:
    """Cut code before each definition that is not indented."""
    lines: list[str] = []
    was_decorator = False
    for line in text.split("\n"):
        if _DEFINITION.match(line) and not was_decorator and any(map(str.strip, lines)):
            yield Section((), "\n".join(lines))
            lines = []
        was_decorator = line.startswith("@")
        lines.append(line)
    if any(map(str.strip, lines)):
        yield Section((), "\n".join(lines))


def _pieces(section: Section) -> Iterator[Section]:
    """Cut a section at MAX_TOKENS; all pieces but the first are below its own heading too."""
    own = _HEADING.fullmatch(section.text.partition("\n")[0])
    below = section.headings if own is None else (*section.headings, own[2])
    for number, text in enumerate(_cut(section.text, MAX_TOKENS * 4)):
        yield Section(below if number else section.headings, text)


def _cut(text: str, chars: int) -> Iterator[str]:
    """Cut a text into pieces of at most so many characters, at the best places."""
    start = 0
    while len(text) - start > chars:
        end = start + chars
        for mark in _BREAKS:
            at = text.rfind(mark, start + chars // 2, end)
            if at > 0:
                end = at + len(mark)
                break
        yield text[start:end]
        start = end
    if text[start:].strip():
        yield text[start:]


def _joined(pieces: Iterable[Section]) -> Iterator[Section]:
    """Join small sections with the next ones."""
    current: Section | None = None
    for piece in pieces:
        if current is None:
            current = piece
            continue
        joined = f"{current.text.rstrip()}\n\n{piece.text}"
        is_small = tokens_of_chars(min(len(current.text), len(piece.text))) < SMALL_TOKENS
        if is_small and tokens_of_chars(len(joined)) <= MAX_TOKENS:
            current = Section(current.headings, joined)
        else:
            yield current
            current = piece
    if current is not None:
        yield current
