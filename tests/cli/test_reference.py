"""Help, shell completion and the page about the command line all come from the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import sennit
from scripts.cli_page import PAGE, page
from sennit.cli.app import app

GIVE_NOTHING = {"serve", "mcp", "token revoke"}
"""What gives no answer that a program could read."""


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All commands that do something, by name."""
    here: Any = group or typer.main.get_command(app)
    for name, command in here.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def test_the_page_says_what_the_program_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


@pytest.mark.parametrize("name", dict(commands()))
def test_every_command_tells_what_it_does_and_speaks_json(name: str) -> None:
    command = dict(commands())[name]
    assert command.help
    options = {option for one in command.params for option in one.opts}
    assert ("--json" in options) == (name not in GIVE_NOTHING)
    assert all(one.help for one in command.params)


@pytest.mark.parametrize("name", dict(commands()))
def test_help_names_values_as_a_person_would(name: str) -> None:
    text = CliRunner().invoke(app, [*name.split(), "--help"]).stdout
    assert not any(sign in text for sign in ("<", "[[", "{S", "list[", " range")), text


def test_help_shows_the_first_steps() -> None:
    told = CliRunner().invoke(app, ["--help"]).stdout
    for step in ("sennit chat", "sennit fork chat --at 2", "sennit tree chat", "sennit find"):
        assert step in told
    named = {name.split()[0] for name, _ in commands()}
    assert {
        "chat", "ls", "show", "tree", "diff", "fork", "find", "fs", "commit", "export", "import",
        "serve", "models", "doctor",
    } <= named  # fmt: skip


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "some.db"
    with sennit.open(file) as client:
        client.session("rope").add_message("user", "Name a knot.")
        client.session("rope").fork("main", name="idea")
        client.session("sails").add_message("user", "Name a sail.")
    monkeypatch.setenv("SENNIT_URL", str(file))
    return str(file)


def completed(*words: str) -> list[str]:
    """What a shell would offer for the last word."""
    environment = {
        "_SENNIT_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("sennit", *words)),
        "COMP_CWORD": str(len(words)),
    }
    ran = CliRunner().invoke(app, [], env=environment, prog_name="sennit")
    return ran.stdout.split()


def test_the_shell_completes_commands_sessions_and_branches(store: str) -> None:
    assert completed("sh") == ["show"]
    assert completed("show", "ro") == ["rope"]
    assert sorted(completed("tree", "")) == ["rope", "sails"]
    assert completed("diff", "rope", "id") == ["idea"]
    assert completed("show", "rope", "--branch", "m") == ["main"]
    assert completed("chat", "--session", "sa") == ["sails"]


def test_a_store_that_is_named_is_the_one_that_is_looked_into(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENNIT_URL", str(tmp_path / "none.db"))
    assert completed("show", "ro") == []
    assert completed("show", "--store", store, "ro") == ["rope"]
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_is_there(shell: str) -> None:
    asked = {"_SENNIT_COMPLETE": f"source_{shell}"}  # what --show-completion finds out by itself
    ran = CliRunner().invoke(app, [], prog_name="sennit", env=asked)
    assert "_SENNIT_COMPLETE" in ran.stdout
