"""Hooks of the documentation site (mkdocs.yml).

The pages are written for GitHub, and shown there as they are. On the site, links to files of the
repository lead to GitHub, an escaped `|` in a table cell is shown as `|`, and the contents of a
page of the reference list methods without their class.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """Return the text of a page with links out of docs/ replaced by links to the repository."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        return match[1] if path.startswith("docs/") else f"{config.repo_url}/blob/main/{path}"

    return _LINK.sub(replace, markdown)


def on_page_content(html: str, *, page: Any, **_: object) -> str:
    """Return the HTML of a page with plain `|` in its tables, and shorten its contents."""
    if page.file.src_uri.startswith("reference/"):
        for entry in (entry for title in page.toc for entry in title.children):
            for member in entry.children:
                member.title = member.title.removeprefix(f"{entry.title}.")
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
