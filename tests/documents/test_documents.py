"""docs/internals/documents.md names what there is: names of ours, and tests of the documents."""

from __future__ import annotations

import ast
import re
from functools import reduce
from pathlib import Path

import pytest

import sennit
import sennit.learning.dspy as dspy_names
import sennit.messages
import sennit.turns
from sennit import containers

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "internals" / "documents.md"
_ROW = re.compile(r"^\| (.+?) \| `(test_\w+)` \|$", re.MULTILINE)
_FILE = re.compile(r"tests/documents/(test_\d+_\w+\.py)")


def rows() -> list[tuple[str, str, str]]:
    """Test file, what it shows, and the test, for each row of the page."""
    _, *parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    return [
        (found[1], what, test)
        for part in parts
        if (found := _FILE.search(part)) is not None
        for what, test in _ROW.findall(part)
    ]


def test_the_page_has_a_row_for_each_line_of_its_tables() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    heads = [line for line in lines if line.endswith("| test |")]
    assert len(rows()) == len(lines) - len(heads) > 100


@pytest.mark.parametrize("file", sorted({file for file, _, _ in rows()}))
def test_every_test_on_the_page_exists(file: str) -> None:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert [test for named, _, test in rows() if named == file and test not in there] == []


def test_every_class_and_method_on_the_page_exists() -> None:
    named = {what.split("`")[1] for _, what, _ in rows() if what.startswith("`")}
    for name in named:
        *room, rest = name.rpartition("learning.dspy.")
        homes = [dspy_names] if any(room) else [sennit, sennit.messages, sennit.turns, containers]
        first = rest.split(".")[0]
        home = next((home for home in homes if hasattr(home, first)), homes[0])
        reduce(getattr, rest.split("."), home)


def test_every_name_that_document_000_exports_is_on_the_page() -> None:
    exported = {
        *{"Session", "Branch", "Message", "MessageContent", "MessageRole", "SenderRecipient"},
        *{"SystemContent", "InstructionContent", "AssistantResponseContent"},
        *{"ActionRequestContent", "ActionResponseContent", "prepare_messages_for_chat"},
    }
    shown = {what.strip("`") for file, what, _ in rows() if file.startswith("test_000")}
    assert exported <= shown


def test_every_type_of_document_004_is_on_the_page() -> None:
    types = {"ConversationSession", "ConversationObserver", "SessionOptions", "StreamingOptions"}
    types |= {"SpecialTurn", "InteractionFilter"}
    shown = {what.split("`")[1] for file, what, _ in rows() if "004" in file and "`" in what}
    for kind in types:
        made = getattr(sennit, kind)
        own = {name for name in vars(made) if name.startswith("on_")}
        assert {kind, *(f"{kind}.{name}" for name in own - {"on_cancel"})} <= shown
