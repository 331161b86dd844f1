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
from html import unescape
from io import BytesIO
from time import monotonic
from typing import Final, Literal

from sennit.errors import MissingExtraError, ValidationError
from sennit.services.models.usage import tokens_of_chars

MAX_TOKENS: Final = 1_024
SMALL_TOKENS: Final = 512
MAX_DOCUMENT_BYTES: Final = 32 << 20
_MAX_TEXT_CHARS = 8 << 20
_MAX_PAGES = 10_000
_MAX_PDF_SECONDS = 60
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(?=[^ \t#])")
_MAX_HEADING_CHARS = 200
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
        size, deadline = 0, monotonic() + _MAX_PDF_SECONDS
        for page in reader.pages:
            if monotonic() > deadline:
                raise ValidationError(f"reading it takes more than {_MAX_PDF_SECONDS} s; split it")
            pages.append(page.extract_text())
            size += len(pages[-1])
            if size > _MAX_TEXT_CHARS:
                break
    except ValidationError:
        raise
    except Exception as error:  # pypdf raises many kinds for damaged files
        raise ValidationError(f"it cannot be read as a PDF: {error}") from error
    return "\n\n".join(filter(None, map(str.strip, pages)))


_TAG = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9]*)")
_HIDDEN = ("script", "style", "template", "noscript", "svg", "math", "title")
_CLOSINGS = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in _HIDDEN}
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = frozenset(
    {"p", "div", "section", "article", "header", "footer", "main", "ul", "ol", "table", "tr"}
    | {"blockquote", "pre", "br", "hr"}
)


def _html_text(page: str) -> str:
    """Return the text of an HTML page, with headings and list items as in Markdown."""
    pieces: list[str] = []
    is_pre = False
    for kind, text in _html_tokens(page):
        if kind == "text":
            unescaped = unescape(text)
            pieces.append(unescaped if is_pre else re.sub(r"\s+", " ", unescaped))
        elif text in _HEADINGS:
            pieces.append(f"\n\n{'#' * int(text[1])} " if kind == "open" else "\n\n")
        elif text == "li" and kind == "open":
            pieces.append("\n- ")
        elif text in ("td", "th") and kind == "open":
            pieces.append(" ")
        elif text in _BLOCKS:
            pieces.append("\n" if text in ("br", "tr") else "\n\n")
            is_pre = kind == "open" if text == "pre" else is_pre
    lines = (line.rstrip() for line in "".join(pieces).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _html_tokens(page: str) -> Iterator[tuple[Literal["text", "open", "close"], str]]:
    """Yield the texts and the names of the tags, in linear time.

    Elements that are not shown are left out, unless they never end.
    """
    at, last_end = 0, page.rfind(">")
    endless: set[str] = set()
    while (start := page.find("<", at)) >= 0:
        yield "text", page[at:start]
        if page.startswith("<!--", start):
            end = page.find("-->", start)
            at = len(page) if end < 0 else end + 3
            continue
        tag = _TAG.match(page, start + 1)
        if start > last_end or (tag is None and page[start + 1 : start + 2] not in ("!", "?")):
            yield "text", "<"
            at = start + 1
            continue
        at = page.find(">", start) + 1
        if tag is None:
            continue
        name = tag[2].lower()
        closing = None if tag[1] or name in endless else _CLOSINGS.get(name)
        if closing is None:
            yield ("close" if tag[1] else "open"), name
        elif (found := closing.search(page, at)) is not None:
            at = found.start()
        elif name in ("script", "style"):
            return
        else:
            endless.add(name)
    yield "text", page[at:]


def _heading(line: str) -> tuple[int, str] | None:
    """Return the level and the text of a heading in the style of Markdown."""
    match = _HEADING.match(line)
    if match is None:
        return None
    text = line[match.end() :].rstrip(" \t")
    without_marks = text.rstrip("#")
    if without_marks.endswith((" ", "\t")):
        text = without_marks.rstrip(" \t")
    return len(match[1]), text[:_MAX_HEADING_CHARS]


def _by_headings(text: str) -> Iterator[Section]:
    """Cut a text before each heading in the style of Markdown."""
    headings: dict[int, str] = {}
    above: tuple[str, ...] = ()
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if match := _FENCE.match(line):
            fence = "" if fence == match[1] else fence or match[1]
        heading = None if fence else _heading(line)
        if heading is None:
            lines.append(line)
            continue
        if any(map(str.strip, lines)):
            yield Section(above, "\n".join(lines))
        level, title = heading
        headings = {at: words for at, words in headings.items() if at < level}
        above = tuple(headings.values())
        headings[level] = title
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
    own = _heading(section.text.partition("\n")[0])
    below = section.headings if own is None else (*section.headings, own[1])
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
