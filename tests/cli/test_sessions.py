"""`sennit ls`, `show`, `title`, `find`, `rm` and `backup`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sennit
from sennit import AssistantResponseContent, Message
from sennit.cli.app import app


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "some.db"
    with sennit.open(file) as client:
        session = client.session("rope")
        session.add_message("user", "Name a knot\nthat holds")
        session.add_message(Message(AssistantResponseContent("A bowline.")), branches="main")
        session.fork("main", name="my idea", at=0)
        session.add_message(
            Message(AssistantResponseContent("A zeppelin bend.")), branches="my idea"
        )
    monkeypatch.setenv("SENNIT_URL", str(file))
    return str(file)


def run(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, arguments, input=stdin)


def told(*arguments: str) -> Any:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_list_has_the_title_the_number_of_messages_and_the_last_words() -> None:
    line = run("ls").stdout
    assert line.endswith("  rope  2 messages  Name a knot that holds … A zeppelin bend.\n")
    row = told("ls")[0]
    shown = {name: row[name] for name in ("name", "title", "messages", "branches", "last")}
    assert shown == {
        "name": "rope",
        "title": "Name a knot that holds",
        "messages": 2,
        "branches": 2,
        "last": "A zeppelin bend.",
    }


def test_a_title_is_the_first_words_until_one_is_set_and_again_when_it_is_removed() -> None:
    assert run("title", "rope").stdout == "Name a knot that holds\n"
    assert run("title", "rope", "Knots and bends").stdout == "Knots and bends\n"
    assert "rope · Knots and bends · my idea · 2 messages" in run("show", "rope").stderr
    assert told("ls")[0]["title"] == "Knots and bends"
    assert told("title", "rope", "--remove")["title"] == "Name a knot that holds"
    both = run("title", "rope", "x", "--remove")
    assert (both.exit_code, both.stderr.count("\n")) == (1, 1)


def test_a_session_without_a_word_has_no_title(store: str) -> None:
    with sennit.open(store) as client:
        client.session("empty")
    assert run("title", "empty").stdout == ""
    assert told("title", "empty")["title"] is None
    assert "  empty  0 messages" in run("ls").stdout


def test_each_hit_leads_to_the_message_that_was_found() -> None:
    ran = run("find", "zeppelin bend")
    command = ran.stdout.splitlines()[1].strip()
    assert command == "sennit show rope --message 2 --branch 'my idea'"
    shown = run("show", "rope", "--message", "2", "--branch", "my idea")
    assert shown.stdout == "2 assistant: A zeppelin bend.\n"
    found = told("find", "zeppelin bend")[0]
    assert (found["session"], found["branch"], found["number"]) == ("rope", "my idea", 2)


def test_one_message_is_shown_by_its_number_or_its_id() -> None:
    all_of_it = told("show", "rope", "--branch", "main")["messages"]
    assert [message["number"] for message in all_of_it] == [1, 2]
    by_id = told("show", "rope", "--branch", "main", "--message", all_of_it[1]["id"])
    assert by_id["messages"] == [all_of_it[1]]
    for number in ("0", "3", "99999999999"):
        wrong = run("show", "rope", "--branch", "main", "--message", number)
        assert (wrong.exit_code, wrong.stderr.count("\n")) == (1, 1)


def test_an_answer_is_labelled_by_the_number_that_show_prints() -> None:
    assert run("label", "rope", "up", "--message", "2", "--branch", "main").exit_code == 0
    ((row),) = told("label", "rope", "--branch", "main")
    assert row["said"] == "A bowline."


def test_a_session_is_deleted_once_it_is_confirmed(store: str) -> None:
    asked = run("rm", "rope", stdin="n\n")
    assert asked.exit_code == 1
    assert "rope (3 messages): Name a knot that holds" in asked.stderr
    assert [row["name"] for row in told("ls")] == ["rope"]
    wrong = run("rm", "rop", "--yes")
    assert (wrong.exit_code, "Did you mean 'rope'?" in wrong.stderr) == (1, True)
    assert [row["name"] for row in told("ls")] == ["rope"]
    assert run("rm", "rope", stdin="y\n").exit_code == 0
    assert told("ls") == []


def test_a_title_cannot_write_to_the_terminal_when_its_session_is_deleted(store: str) -> None:
    with sennit.open(store) as client:
        client.session("rope").set_title("a\n\x1b]0;b\x07\rc")
    asked = CliRunner().invoke(app, ["rm", "rope", "--store", store], input="n\n", color=True)
    assert "\x1b" not in asked.stderr
    assert "\r" not in asked.stderr
    assert "rope (3 messages): a" in asked.stderr


def test_memories_of_a_deleted_session_stay_unless_they_are_named(store: str) -> None:
    for name in ("one", "two"):
        with sennit.open(store) as client:
            client.session(name).add_message("user", f"My name is Ada {name.title()}.")
            client.session(name).commit()
    assert told("rm", "one", "--yes") == {"deleted": ["one"]}
    assert told("memory", "ls")
    assert told("rm", "two", "--memories", "--yes") == {"deleted": ["two"]}
    assert "Two" not in run("memory", "ls").stdout


def test_a_backup_holds_everything_and_overwrites_nothing(tmp_path: Path, store: str) -> None:
    copy = tmp_path / "copy.db"
    assert told("backup", str(copy))["bytes"] == copy.stat().st_size
    assert [row["name"] for row in told("ls", "--store", str(copy))] == ["rope"]
    assert "already exists" in run("backup", str(copy)).stderr


@pytest.mark.parametrize(
    "command", [["backup"], ["export"], ["export", "--format", "openai"]], ids=" ".join
)
def test_a_path_whose_folder_does_not_exist_is_refused(tmp_path: Path, command: list[str]) -> None:
    name = "x.jsonl" if "openai" in command else "x.zip"
    ran = run(command[0], str(tmp_path / "none" / name), *command[1:])
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert f"there is no folder {str(tmp_path / 'none')!r}" in ran.stderr
    assert not (tmp_path / "none").exists()


def test_an_export_says_that_memories_are_elsewhere(tmp_path: Path) -> None:
    assert "sennit backup FILE copies everything" in run("export", str(tmp_path / "x.zip")).stderr
