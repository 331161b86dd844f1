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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^(`{3,})(\w+)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, text and the line just before, of every fenced block."""
    text = page.read_text(encoding="utf-8")
    found: list[tuple[str, str, str]] = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()].rstrip().rsplit("\n", 1)[-1]
        found.append((match[2], match[3], before))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_reference_lists_what_is_there() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run `make docs`"


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
