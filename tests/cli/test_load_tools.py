"""Tools named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sennit import ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.cli.load_tools import tools_at, tools_named

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
    [add] = tools_at(f"{mine}:add")
    assert (add.name, add.description) == ("add", "Add.")
    [wipe] = tools_at(f"{mine}:wipe")
    assert wipe.needs_approval
    [calculate] = tools_at("sennit.cli.builtin_tools:calculate")
    assert calculate.name == "calculate"
    for wrong in (f"{mine}:odd", f"{mine}:none", f"{tmp_path}/no.py:add", "no_such_module:add"):
        with pytest.raises(NotFoundError):
            tools_at(wrong)
    with pytest.raises(ValidationError, match="Did you mean time"):
        tools_at("tme")


def test_all_tools_and_functions_of_a_file_are_loaded_and_none_that_it_imports(mine: str) -> None:
    loaded = tools_named([mine])
    assert {tool.name: tool.needs_approval for tool in loaded} == {"wipe": True, "add": False}


@pytest.mark.parametrize("ask", [True, False])
def test_whether_one_is_asked_can_be_said_for_all_tools(mine: str, ask: bool) -> None:
    assert {tool.needs_approval for tool in tools_named([mine, "time"], ask)} == {ask}


def test_files_that_cannot_be_tools_are_explained(mine: str, tmp_path: Path) -> None:
    empty, untyped = tmp_path / "empty.py", tmp_path / "untyped.py"
    empty.write_text("x = 1")
    untyped.write_text("def f(*anything: int) -> None: ...")
    with pytest.raises(NotFoundError, match="a typed function"):
        tools_at(str(empty))
    with pytest.raises(InvalidTypeError, match="underscore"):
        tools_at(str(untyped))
    with pytest.raises(ExistsError, match="Duplicate tool name 'add'"):
        tools_named([mine, f"{mine}:add"])
