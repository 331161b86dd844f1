"""Hooks of the documentation site (mkdocs.yml).

Pages link to files of the repository, such as `../examples/chatbot.py`. These are not part of the
site, so the links lead to the repository there.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """Return the text of a page with links out of docs/ replaced by links to the repository."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        return match[1] if path.startswith("docs/") else f"{config.repo_url}/blob/main/{path}"

    return _LINK.sub(replace, markdown)
