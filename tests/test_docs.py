"""Every example in README and docs runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once

from scripts import reference

ROOT = Path(__file__).parent.parent
# tests/test_tutorial.py follows the tutorial.
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
_BLOCK = re.compile(r"^(`{3,})(\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, text and the line just before, of every fenced block."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[str, str, str]] = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()].rstrip().rsplit("\n", 1)[-1]
        found.append((match[2], match[3], before))
    return found


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page != TUTORIAL],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_examples_of_a_page_run_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A page may set up a tracer provider, which can be done once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    names: dict[str, Any] = {"__name__": "example"}
    printed = ""
    for language, text, before in blocks(page):
        if language == "python":
            out = StringIO()
            with redirect_stdout(out):
                exec(compile(text, str(page), "exec", dont_inherit=True), names)
            printed = out.getvalue()
        elif language == "text" and before == "prints":
            assert printed == text


def test_there_are_examples_to_run() -> None:
    assert sum(language == "python" for page in PAGES for language, _, _ in blocks(page)) >= 10


def test_every_link_between_pages_leads_to_a_file_and_a_heading() -> None:
    pages = {page.resolve(): _without_code(page) for page in [*ROOT.glob("*.md"), *PAGES]}
    broken = [
        f"{page.relative_to(ROOT)} links to {file}#{heading or ''}"
        for page, text in pages.items()
        for file, heading in _LINK.findall(text)
        if not (target := (page.parent / file if file else page).resolve()).exists()
        or (heading and heading not in _headings(pages[target]))
    ]
    assert not broken


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = re.findall(r"([\w./-]+\.md)$", navigation, re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(
        page.relative_to(docs).as_posix() for page in docs.rglob("*.md")
    ), "give the page a place in mkdocs.yml"


def _without_code(page: Path) -> str:
    return re.sub(r"^(`{3,})\w*\n.*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def _headings(text: str) -> set[str]:
    """Return the anchors of the headings as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_reference_lists_what_is_there() -> None:
    written = {page: page.read_text(encoding="utf-8") for page in reference.FOLDER.glob("*.md")}
    assert written == reference.pages(), "run `make reference`"


def test_every_field_and_attribute_in_the_reference_has_a_meaning() -> None:
    rows = "\n".join(page.read_text(encoding="utf-8") for page in reference.FOLDER.glob("*.md"))
    assert re.findall(r"^\| `.*\|\s*\|$", rows, re.MULTILINE) == [], "write a docstring below it"


def test_every_documented_import_is_exported_by_the_module_it_names() -> None:
    shown = [
        page.read_text(encoding="utf-8") for page in [*PAGES, *(ROOT / "examples").rglob("*.py")]
    ]
    imports = re.findall(r"^ *from (sennit[\w.]*) import ([\w, ]+)", "\n".join(shown), re.MULTILINE)
    assert imports
    for module, names in imports:
        exported = {*import_module(module).__all__, *_SUBMODULES.get(module, ())}
        assert {one.split(" as ")[0].strip() for one in names.split(",")} <= exported, module


_SUBMODULES = {"sennit.testing": ("conformance", "faults")}
