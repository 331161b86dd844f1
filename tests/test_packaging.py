"""The package as others see it: its page, extras, release notes, and checks on each system."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import release

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOOK: dict[str, Any] = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
PAGE = "https://github.com/sennit/sennit/blob/main/"
RAW = "https://raw.githubusercontent.com/sennit/sennit/main/"


def published() -> str:
    """README as the build publishes it."""
    text = "".join((ROOT / one["path"]).read_text(encoding="utf-8") for one in HOOK["fragments"])
    for change in HOOK["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_all_links_and_pictures_of_the_published_readme_are_absolute_and_exist() -> None:
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", published())
    assert len(links) > 20
    assert any(is_image for is_image, _ in links)
    for is_image, link in links:
        assert link.startswith(("https://", "http://", "#")), link
        start = RAW if is_image else PAGE
        if link.startswith(start):
            name = link.removeprefix(start).partition("#")[0]
            assert (ROOT / name).is_file(), link


def test_the_package_has_an_author_and_addresses() -> None:
    project = PROJECT["project"]
    assert project["authors"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= project["urls"].keys()
    for address in project["urls"].values():
        if address.startswith(PAGE):
            assert (ROOT / address.removeprefix(PAGE)).is_file(), address


def test_every_extra_is_named_in_the_readme_and_every_named_one_exists() -> None:
    extras = PROJECT["project"]["optional-dependencies"].keys()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = {one for found in re.findall(r"sennit\[([\w,-]+)\]", text) for one in found.split(",")}
    assert named <= extras
    install = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Install")[2]
    install = install.partition("\n## ")[0]
    missing = {one for one in extras if not re.search(rf"[`\[,]{one}[`\],]", install)}
    assert missing <= {"mlflow"}  # of use to those alone who use dspy


def test_the_release_notes_are_the_section_of_the_version() -> None:
    changelog = "# Changelog\n\n## Unreleased: 0.2.0\n\n- New.\n\n## 0.1.0\n\n- Old.\n"
    assert release.release_notes(changelog, "0.2.0") == "# Sennit 0.2.0\n\n- New.\n"
    assert release.release_notes(changelog, "0.1.0") == "# Sennit 0.1.0\n\n- Old.\n"
    with pytest.raises(SystemExit, match=r"no section for 0\.3\.0"):
        release.release_notes(changelog, "0.3.0")
    ours = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "###" in release.release_notes(ours, PROJECT["project"]["version"])


def test_the_checks_run_on_three_systems_and_every_supported_python() -> None:
    checks = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    matrix = checks["jobs"]["install"]["strategy"]["matrix"]
    assert {one.partition("-")[0] for one in matrix["os"]} == {"ubuntu", "macos", "windows"}
    classifiers = PROJECT["project"]["classifiers"]
    supported = [one.rpartition(" ")[2] for one in classifiers if re.search(r":: 3\.\d+$", one)]
    assert matrix["python"] == supported
    if "SENNIT_RELEASE_PYTHONS" not in os.environ:
        assert supported == release.PYTHONS
    for path in re.findall(r"tests/[\w/.]+", str(checks)):
        assert (ROOT / path).exists(), path
