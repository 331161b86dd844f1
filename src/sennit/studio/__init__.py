"""The studio: the web page of the server, served as static files.

Nothing is built: what stands in `static` is what a browser runs, and what is not ours there is
listed with its source and licence in `static/vendor/VENDORED.md`. This module says which files
there are; it imports nothing of ours, so that a server can serve them without knowing the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

STATIC = Path(__file__).parent / "static"
"""Where the files stand."""

INDEX = "index.html"
"""The page itself; all other files are asked for by it."""

MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".mjs": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
    }
)
"""What may be served, by the end of its name."""


def files() -> list[str]:
    """The names of all files that belong to the page, relative to STATIC."""
    found = (path for path in STATIC.rglob("*") if path.suffix in MEDIA_TYPES and path.is_file())
    return sorted(path.relative_to(STATIC).as_posix() for path in found)
