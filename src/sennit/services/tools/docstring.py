"""Parsing of docstrings into descriptions of a function and its parameters.

The description tells a model when to call a tool, and the descriptions of its parameters how. The
Google, NumPy and Sphinx styles are parsed; anything else is plain text. The description ends where
the first section begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from itertools import pairwise

_PARAMETER_SECTIONS = {
    *{"args", "arguments", "params", "parameters", "other parameters"},
    *{"keyword args", "keyword arguments"},
}
_OTHER_SECTIONS = {
    *{"return", "returns", "yield", "yields", "raises", "warns", "example", "examples"},
    *{"note", "notes", "see also", "warning", "warnings", "references", "attributes", "todo"},
}

_UNDERLINE = re.compile(r"-{3,}\s*$")
_SPHINX = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)$")
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_SPHINX_OTHER = {
    *{"type", "return", "returns", "rtype", "raise", "raises", "except", "yield", "yields"},
    *{"var", "ivar", "cvar", "vartype", "meta"},
}
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A parsed docstring."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse(doc: str | None) -> Docstring:
    """Parse a docstring; any text is accepted."""
    lines = cleandoc(doc).splitlines() if doc else []
    starts = [index for index in range(len(lines)) if _heading(lines, index) is not None]
    parameters: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        parameters.update(_section(lines, start, end))
    description = lines[: starts[0]] if starts else lines
    return Docstring("\n".join(description).strip(), parameters)


def _heading(lines: Sequence[str], index: int) -> str | None:
    """Return the lower-case name of the section that begins in this line, or None."""
    line = lines[index].rstrip()
    if (field := _SPHINX.match(line)) and field[1] in _SPHINX_PARAMETERS | _SPHINX_OTHER:
        return field[1]
    google = line.endswith(":")
    numpy = index + 1 < len(lines) and _UNDERLINE.match(lines[index + 1])
    name = line.removesuffix(":").lower()
    return name if (google or numpy) and name in _PARAMETER_SECTIONS | _OTHER_SECTIONS else None


def _section(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[str, str]]:
    """Yield the parameters of one section with their descriptions."""
    name = _heading(lines, start)
    if field := _SPHINX.match(lines[start]):
        if name in _SPHINX_PARAMETERS and field[2]:
            yield field[2].split()[-1].lstrip("*"), _join([field[3], *lines[start + 1 : end]])
    elif name in _PARAMETER_SECTIONS and lines[start].rstrip().endswith(":"):
        yield from _google(lines[start + 1 : end])
    elif name in _PARAMETER_SECTIONS:
        yield from _numpy(lines[start + 2 : end])


def _google(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Parse entries such as `city (str): where to look`, continued by indented lines."""
    for head, rest in _entries(lines):
        if entry := _GOOGLE_ENTRY.match(head):
            yield entry[1], _join([entry[2] or "", *rest])


def _numpy(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Parse entries such as `x, y : float`, described by the indented lines below."""
    for head, rest in _entries(lines):
        if entry := _NUMPY_ENTRY.match(head):
            for name in entry[1].split(","):
                yield name.strip().lstrip("*"), _join(rest)


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each line at the section's indentation with the more indented lines that follow it."""
    indent = next((_indent(line) for line in lines if line.strip()), 0)
    head, rest = "", list[str]()
    for line in lines:
        if line.strip() and _indent(line) <= indent:
            if head:
                yield head, rest
            head, rest = line.strip(), []
        else:
            rest.append(line)
    if head:
        yield head, rest


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _join(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
