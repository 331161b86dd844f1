"""The studio's files: what is vendored is as published, and the page keeps to its own budget."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from sennit.studio import STATIC, files

ROOT = Path(__file__).parents[2]
VENDOR = STATIC / "vendor"
SCRIPTS = [name for name in files() if name.endswith((".js", ".mjs"))]
OURS = [name for name in SCRIPTS if not name.startswith("vendor/")]
MOST_BYTES = 320_000

# How to get back what was published, by file: what was put in, and what it stands for.
CHANGES = {
    "hooks.mjs": (b'from"./preact.mjs"', b'from"preact"'),
    "uPlot.mjs": (b"export default uPlot;\n", b""),
}


def vendored() -> list[tuple[str, str, str]]:
    """File, package and hash of every line in VENDORED.md."""
    page = (VENDOR / "VENDORED.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S+) \S+ \|.*\| ([0-9a-f]{64}) \|$", page, re.MULTILINE)
    return [(file, package, digest) for file, package, digest in rows]


@pytest.mark.parametrize(("file", "package", "digest"), vendored())
def test_a_vendored_file_is_as_published_and_has_its_licence(
    file: str, package: str, digest: str
) -> None:
    content = (VENDOR / file).read_bytes()
    if file in CHANGES:
        put_in, stood = CHANGES[file]
        assert content.count(put_in) == 1
        content = content.replace(put_in, stood)
    assert sha256(content).hexdigest() == digest
    assert (VENDOR / f"LICENSE.{package}.txt").stat().st_size > 200


def test_nothing_stands_among_the_vendored_files_unnamed() -> None:
    named = {file for file, _, _ in vendored()}
    licences = {f"LICENSE.{package}.txt" for _, package, _ in vendored()}
    assert {path.name for path in VENDOR.iterdir()} == named | licences | {"VENDORED.md"}


def test_all_scripts_together_stay_small() -> None:
    assert sum((STATIC / name).stat().st_size for name in SCRIPTS) < MOST_BYTES


def test_the_page_asks_early_for_every_script_it_starts_with() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    early = set(re.findall(r'(?:modulepreload" href|src)="/studio/([^"]+)"', page))
    late = {"vendor/uPlot.mjs"}  # loaded when a chart is first shown
    assert early == set(SCRIPTS) - late


def test_the_page_has_no_script_or_style_of_its_own_inside() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=", page)


@pytest.mark.parametrize("name", OURS)
def test_only_the_markdown_module_makes_html_from_text(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    makes = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text, re.I
    )
    assert not makes or name == "markdown.js"


def test_the_page_about_the_studio_lists_every_shortcut() -> None:
    keys = (STATIC / "keys.js").read_text(encoding="utf-8")
    table = keys[keys.index("const SHORTCUTS") : keys.index("];")]
    shown = [key for row in re.findall(r"\['([^']+)',", table) for key in row.split(" / ")]
    page = (ROOT / "docs" / "studio.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    assert len(shown) > 15
    assert sorted(shown) == sorted(key for row in listed for key in re.findall("`(.+?)`", row))


@pytest.mark.parametrize("name", OURS)
def test_a_script_opens_with_why_it_is_there(name: str) -> None:
    assert (STATIC / name).read_text(encoding="utf-8").startswith("// ")
