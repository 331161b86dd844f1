"""The words of the code: docstrings that say what a thing is, and class names with one meaning."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src/sennit"
MODULES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
RIDDLE = re.compile(r"(What|Who|Whose|Where|How|Whether|Why|Which)\b")

# Each SQL store has its own version of these, and document 003 gives `Session` to DSPy programs.
ONE_THING = {
    *{"CommitTable", "DetachedTable", "FileReader", "FileWriter"},
    *{"JournalReader", "JournalWriter", "SessionReader", "SessionWriter", "Session"},
}


def test_no_docstring_begins_with_a_question_word() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    riddles = [
        f"{path.relative_to(SOURCE)}: {text.splitlines()[0]}"
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, documented) and RIDDLE.match(text := ast.get_docstring(node) or "")
    ]
    assert riddles == []


def test_no_public_class_name_means_two_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in MODULES.items():
        if path.is_relative_to(SOURCE / "compat"):  # where the names are those of other systems
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert twice.keys() - ONE_THING == set(), twice


def test_no_folder_has_more_than_25_modules() -> None:
    counts: dict[Path, int] = defaultdict(int)
    for path in MODULES:
        counts[path.parent] += path.name != "__init__.py"
    assert {str(folder): count for folder, count in counts.items() if count > 25} == {}
