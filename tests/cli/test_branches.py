"""`sennit fork`, `rename` and `diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sennit
from sennit import FilePart, ImagePart, Message, SystemContent, ToolPart
from sennit.cli.app import app


@pytest.fixture
def store(tmp_path: Path) -> str:
    file = tmp_path / "some.db"
    with sennit.open(file) as client:
        session = client.session("rope")
        session.add_message("user", "Name a knot.")
        session.add_message("assistant", "A bowline.")
        session.add_message("user", "Another.")
    return str(file)


def run(store: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, "--store", store])


def told(store: str, *arguments: str) -> Any:
    ran = run(store, *arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_fork_keeps_what_comes_up_to_a_message(store: str) -> None:
    ran = run(store, "fork", "rope", "--at", "2", "--name", "other")
    assert ran.stdout == "other\n"
    assert "sennit chat --session rope --branch other" in ran.stderr
    with sennit.open(store) as client:
        assert len(client.session("rope").get_branch("other")) == 2


def test_a_fork_without_a_place_keeps_everything_and_gets_a_name(store: str) -> None:
    made = told(store, "fork", "rope")
    assert (made["branch"], made["forked_from"], made["messages"]) == ("main_fork_1", "main", 3)


def test_a_fork_by_the_id_of_a_message_keeps_the_system_message(store: str) -> None:
    with sennit.open(store) as client:
        session = client.session("rope")
        session.set_branch_system("main", Message(SystemContent(system_message="Be brief.")))
        first = str(session.get_branch("main")[1])
    made = told(store, "fork", "rope", "--at", first, "--branch", "main")
    assert made["messages"] == 2


def test_a_branch_is_renamed(store: str) -> None:
    fork = told(store, "fork", "rope", "--name", "other")
    assert run(store, "rename", "rope", "other", "the\x1bnext").stdout == "other is now thenext.\n"
    done = {"session": "rope", "branch": "sheet bends", "id": fork["id"], "was": "the\x1bnext"}
    assert told(store, "rename", "rope", fork["id"], "sheet bends") == done
    assert "sheet bends (3 messages, forked after 3)" in run(store, "tree", "rope").stdout


def test_two_branches_are_compared(store: str) -> None:
    told(store, "fork", "rope", "--at", "1", "--name", "other")
    with sennit.open(store) as client:
        client.session("rope").add_message("assistant", "A sheet bend.", branches="other")
    assert run(store, "diff", "rope", "main", "other").stdout == (
        "main and other share 1 message.\n"
        "  1 user: Name a knot.\n"
        "main has 2 messages since:\n"
        "  2 assistant: A bowline.\n"
        "  3 user: Another.\n"
        "other has 1 message since:\n"
        "  2 assistant: A sheet bend.\n"
    )
    found = told(store, "diff", "rope", "main", "other")
    assert (found["common"], found["a"]["branch"], len(found["a"]["since"])) == (1, "main", 2)
    assert found["ancestor"]["content"] == {"instruction": "Name a knot."}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["fork", "rop"], "There is no session 'rop'. Did you mean 'rope'?"),
        (["fork", "rope", "--at", "4"], "Branch 'main' has 3 messages, numbered from 1; got '4'"),
        (["fork", "rope", "--at", "0"], "Branch 'main' has 3 messages, numbered from 1; got '0'"),
        (["fork", "rope", "--at", "x"], "Branch 'main' has no message 'x'"),
        (["fork", "rope", "--name", "main"], "There is already a branch named 'main'"),
        (["rename", "rope", "main", "other"], "fork it under the name 'other' instead"),
        (["rename", "rope", "mian", "other"], "There is no branch 'mian'. Did you mean 'main'?"),
        (["rename", "rope", "main", ""], "A branch's name must not be empty"),
        (["diff", "rope", "main", "mian"], "There is no branch 'mian'. Did you mean 'main'?"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(store: str, arguments: list[str], why: str) -> None:
    ran = run(store, *arguments)
    assert ran.exit_code == 1
    assert why in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_diff_indents_every_line_of_a_message(store: str) -> None:
    run(store, "fork", "rope", "--at", "1", "--name", "b")
    with sennit.open(store) as client:
        session = client.session("rope")
        session.add_message("assistant", "One:\n\ntwo", branches="b")
    shown = run(store, "diff", "rope", "main", "b").stdout
    assert "  2 assistant: One:\n\n  two\n" in shown


def test_show_fork_and_tree_have_the_same_numbers_also_with_a_system_message(store: str) -> None:
    with sennit.open(store) as client:
        session = client.session("rope")
        session.set_branch_system("main", Message(SystemContent(system_message="Be brief.")))
    lines = run(store, "show", "rope").stdout.splitlines()
    assert lines[:3] == ["1 system: Be brief.", "2 user: Name a knot.", "3 assistant: A bowline."]
    run(store, "fork", "rope", "--at", "3", "--name", "b")
    assert run(store, "show", "rope", "--branch", "b").stdout.splitlines() == lines[:3]
    assert "b (3 messages, forked after 3)" in run(store, "tree", "rope").stdout


def test_show_names_the_files_of_messages_and_results(store: str) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(2_000)
    with sennit.open(store) as client:
        session = client.session("files")
        session.add_message("user", ["Read.", ImagePart(png), FilePart(b"a,b", "t.csv")])
        draw = ToolPart("draw", {}, files=(ImagePart(png),))
        session.add_message("assistant", [draw])
    shown = run(store, "show", "files").stdout
    assert "Read.\n[image/png, 2,008 bytes]\n[t.csv: text/csv, 3 bytes]\n" in shown
    assert "← [image/png, 2,008 bytes]" in shown
