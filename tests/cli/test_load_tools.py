"""Tools named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit import ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.cli.load import load_tools, load_tools_from

MINE = """
from os.path import join
from sennit import Tool

def add(a: int, b: int) -> int:
    'Add.'
    return a + b

def _private(anything):
    pass

def _wipe(path: str) -> str:
    return path

wipe = Tool(_wipe, name="wipe", needs_approval=True)
odd = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return str(file)


def test_a_tool_comes_from_a_file_or_a_module(mine: str, tmp_path: Path) -> None:
    [add] = load_tools_from(f"{mine}:add")
    assert (add.name, add.description) == ("add", "Add.")
    [wipe] = load_tools_from(f"{mine}:wipe")
    assert wipe.needs_approval
    [calculate] = load_tools_from("sennit.cli.builtin_tools:calculate")
    assert calculate.name == "calculate"
    for wrong in (f"{mine}:odd", f"{mine}:none", f"{tmp_path}/no.py:add", "no_such_module:add"):
        with pytest.raises(NotFoundError):
            load_tools_from(wrong)
    with pytest.raises(ValidationError, match="Did you mean 'time'"):
        load_tools_from("tme")


def test_all_tools_and_functions_of_a_file_are_loaded_and_none_that_it_imports(mine: str) -> None:
    loaded = load_tools([mine])
    assert {tool.name: tool.needs_approval for tool in loaded} == {"wipe": True, "add": False}


@pytest.mark.parametrize("ask", [True, False])
def test_whether_one_is_asked_can_be_said_for_all_tools(mine: str, ask: bool) -> None:
    assert {tool.needs_approval for tool in load_tools([mine, "time"], ask)} == {ask}


def test_files_that_cannot_be_tools_are_explained(mine: str, tmp_path: Path) -> None:
    empty, untyped = tmp_path / "empty.py", tmp_path / "untyped.py"
    empty.write_text("x = 1")
    untyped.write_text("def f(*anything: int) -> None: ...")
    with pytest.raises(NotFoundError, match="a typed function"):
        load_tools_from(str(empty))
    with pytest.raises(InvalidTypeError, match="underscore"):
        load_tools_from(str(untyped))
    with pytest.raises(ExistsError, match="Duplicate tool name 'add'"):
        load_tools([mine, f"{mine}:add"])
