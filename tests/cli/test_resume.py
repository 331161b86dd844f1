"""`sennit approve`, `deny` and `resume`: decisions from another process than that of the chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sennit.cli.app import app
from sennit.testing import ScriptedModel, ToolCall

_TOOL = """
from pathlib import Path
from sennit import Tool


def _note(text: str) -> str:
    "Write something down."
    with Path({file!r}).open("a") as notes:
        notes.write(text + "\\n")
    return "written"


note = Tool(_note, name="note", needs_approval=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SENNIT_URL", str(tmp_path / "some.db"))
    (tmp_path / "tools.py").write_text(_TOOL.format(file=str(tmp_path / "notes")))
    return tmp_path


def run(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, arguments, input=stdin)


def told(*arguments: str) -> Any:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture
def tools(folder: Path) -> list[str]:
    return ["--tool", str(folder / "tools.py")]


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """The model of every command: it calls the tool twice, and then says what it was told."""
    calls = [ToolCall("note", {"text": text}, id=text) for text in ("bowline", "hitch")]
    scripted = ScriptedModel([calls, lambda request: str(request.messages[-1]["content"])])
    monkeypatch.setattr("sennit.cli.chat.options.iModel", lambda *_, **__: scripted)
    monkeypatch.setattr("sennit.cli.chat.options.check_model", lambda _: None)
    return scripted


@pytest.fixture
def waiting(tools: list[str]) -> None:
    assert run("chat", *tools, stdin="Note two knots.\n").exit_code == 3


@pytest.mark.usefixtures("waiting")
def test_approved_calls_run_when_the_answer_is_resumed(folder: Path, tools: list[str]) -> None:
    early = run("resume", "chat", *tools)
    assert early.exit_code == 3
    assert "sennit approve chat" in early.stderr
    approved = run("approve", "chat", "all", stdin="y\n")
    assert 'note(text="bowline")' in approved.stderr, "a person sees what is approved"
    assert "To continue, with the same tools: sennit resume chat" in approved.stderr
    assert not (folder / "notes").exists(), "approving runs nothing"
    resumed = run("resume", "chat", *tools)
    assert resumed.exit_code == 0, resumed.stderr
    assert "written" in resumed.stdout
    assert (folder / "notes").read_text() == "bowline\nhitch\n"
    again = run("resume", "chat", *tools)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "No answer was interrupted on branch 'main'." in again.stderr


@pytest.mark.usefixtures("waiting")
def test_each_call_is_decided_by_its_id_and_the_model_hears_the_reason(
    folder: Path, tools: list[str]
) -> None:
    which = run("approve", "chat", "--yes")
    assert which.exit_code == 1
    assert 'bowline: note(text="bowline"); hitch: note(text="hitch")' in which.stderr
    typo = run("approve", "chat", "bowlin", "--yes")
    assert "No tool call 'bowlin' is waiting. Did you mean 'bowline'?" in typo.stderr
    assert told("approve", "chat", "bowline", "--yes")["approved"] == ["bowline"]
    assert told("deny", "chat", "--reason", "I know that one.")["denied"] == ["hitch"]
    assert "I know that one." in run("resume", "chat", *tools).stdout
    assert (folder / "notes").read_text() == "bowline\n"


@pytest.mark.usefixtures("waiting")
def test_nothing_is_approved_without_a_yes(folder: Path, tools: list[str]) -> None:
    assert run("approve", "chat", "all", stdin="n\n").exit_code == 1
    assert run("resume", "chat", *tools).exit_code == 3
    assert not (folder / "notes").exists()


@pytest.mark.parametrize("command", ["approve", "deny", "resume"])
def test_a_session_without_a_waiting_call_is_one_line(command: str, tools: list[str]) -> None:
    run("chat", *tools, "--session", "other", stdin="")
    ran = run(command, "other")
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
