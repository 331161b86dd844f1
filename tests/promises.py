"""The promises of docs/reliability.md and docs/security.md, and the tests that hold them.

Every table row (its first cell) and every sentence of a bullet or paragraph below the introduction
is a promise. `promises.toml` names the tests that fail when it is broken; `test_promises.py` fails
for a sentence without a test and for a line without a sentence. A sentence may be marked
as advice instead, but only in the sections about the reader's part. `make promises` prints the
matrix, and on stderr what is missing.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ("docs/reliability.md", "docs/security.md")
# Here a sentence may say what the reader has to do; elsewhere each one needs a test.
ADVICE = ("What you have to do", "What is not promised", "What is left to you")

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_LABEL = re.compile(r"^\*\*[^*]+\.\*\*\s*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"*])")


@dataclass(frozen=True)
class Promise:
    """One sentence of a page, and the heading it stands under."""

    page: str
    section: str
    text: str


def promises(page: str, text: str | None = None) -> Iterator[Promise]:
    """Yield the promises of a page in their order."""
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    section = ""
    for block in _blocks(text):
        if block.startswith("#"):
            section = block.removeprefix("## ") if block.startswith("## ") else section
        elif block.startswith("|"):
            yield Promise(page, section, _plain(block.split("|")[1]))
        elif section or block.startswith("- "):
            told = _LABEL.sub("", block.removeprefix("- "))
            sentences = _SENTENCE.split(_plain(told))
            yield from (Promise(page, section, sentence) for sentence in sentences)


def _blocks(text: str) -> list[str]:
    """Split into headings, rows of tables (without the head), bullets and paragraphs."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|--"):
            found.pop()
        elif line.startswith(("#", "|", "- ")):
            found.append([line])
        elif line.strip():
            found[-1].append(line.strip())
        else:
            found.append([])
    return [" ".join(block) for block in found if block]


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", " ".join(text.split())).replace("**", "")


@cache
def table() -> dict[str, dict[str, list[str] | str]]:
    """Read which tests hold which promise, by page and sentence."""
    return tomllib.loads((ROOT / "tests/promises.toml").read_text(encoding="utf-8"))


@cache
def _names(path: str) -> frozenset[str]:
    """Name what a test file defines; nothing if there is no such file."""
    file = ROOT / path
    nodes = ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    assigned = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    return frozenset(
        {node.name for node in nodes if isinstance(node, kinds)}
        | {target.id for target in assigned if isinstance(target, ast.Name)}
    )


def exists(test: str) -> bool:
    """Tell whether a test such as `tests/test_ids.py::test_ids_grow[case]` is written down."""
    path, _, name = test.partition("::")
    return name.lower().startswith("test") and name.partition("[")[0] in _names(path)


def mistakes() -> list[str]:
    """Name every promise without a test, every test that does not exist and every stale line."""
    found: list[str] = []
    for page in PAGES:
        lines, told = table().get(page, {}), list(promises(page))
        for promise in told:
            held = lines.get(promise.text)
            if held is None:
                found.append(f"{page}: no line in tests/promises.toml for {promise.text!r}")
            elif isinstance(held, str) and promise.section not in ADVICE:
                found.append(f"{page}: advice only stands under {ADVICE}, not {promise.text!r}")
            elif not held:
                found.append(f"{page}: no test holds {promise.text!r}")
        texts = {promise.text for promise in told}
        found += [
            f"tests/promises.toml: {page} does not say {key!r}" for key in lines if key not in texts
        ]
    return found + [
        f"tests/promises.toml: no test {test!r}" for test in tests() if not exists(test)
    ]


def tests() -> list[str]:
    """List the tests that the table names."""
    lines = [
        held for page in table().values() for held in page.values() if not isinstance(held, str)
    ]
    return sorted({test for held in lines for test in held})


def matrix() -> str:
    """Lay the table out as Markdown, in the order of the pages."""
    rows = ["| page | promise | test |", "|---|---|---|"]
    for page in PAGES:
        for promise in promises(page):
            held = table().get(page, {}).get(promise.text, "**none**")
            told = held if isinstance(held, str) else "<br>".join(f"`{test}`" for test in held)
            rows.append(f"| {Path(page).stem} | {promise.text} | {told} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(matrix())
    wrong = mistakes()
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(bool(wrong))
