"""The program `sennit`: its small commands, and how it ends when something is wrong."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sennit
from sennit import AssistantResponseContent, Message
from sennit.cli.app import app
from sennit.cli.load import load_tools_from

pytest_plugins = ("tests.postgres",)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("SENNIT_URL", raising=False)
    return tmp_path


@pytest.fixture
def store(tmp_path: Path) -> str:
    file = tmp_path / "some.db"
    with sennit.open(file) as client:
        session = client.session("rope")
        session.add_message("user", "Name a knot")
        session.add_message(Message(AssistantResponseContent("A bowline.")), branches="main")
        session.fork("main", name="idea", at=0)
    return str(file)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def told(*arguments: str) -> Any:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_version_is_told() -> None:
    assert run("--version").stdout == "sennit 0.1.0\n"


def test_sessions_are_listed(store: str) -> None:
    assert run("ls", "--store", store).stdout.endswith(
        "  rope  2 messages  Name a knot … A bowline.\n"
    )
    assert [one["name"] for one in told("ls", "ro", "--store", store)] == ["rope"]
    assert told("ls", "zzz", "--store", store) == []
    with sennit.open(store) as client:
        client.session("rope").describe({"title": "Knots\nand bends"})
    assert run("ls", "bends", "--store", store).stdout.endswith(
        "  rope  2 messages  Knots and bends … A bowline.\n"
    )
    assert [one["title"] for one in told("ls", "--store", store)] == ["Knots\nand bends"]


def test_a_branch_is_shown(store: str) -> None:
    main = run("show", "rope", "--branch", "main", "--store", store)
    assert main.stdout == "1 user: Name a knot\n2 assistant: A bowline.\n"
    idea = told("show", "rope", "--branch", "idea", "--store", store)
    assert [one["type"] for one in idea["messages"]] == ["instruction"]


def test_looking_at_an_empty_session_makes_no_branch(store: str) -> None:
    with sennit.open(store) as client:
        client.session("empty")
    assert told("show", "empty", "--store", store)["messages"] == []
    assert run("show", "empty", "--store", store).stdout == ""
    assert "has no messages yet" in run("fork", "empty", "--store", store).stderr
    assert told("tree", "empty", "--store", store) == []


def test_the_way_on_after_a_fork_can_be_pasted(store: str) -> None:
    with sennit.open(store) as client:
        client.session("my talk").add_message("user", "Hello")
    ran = run("fork", "my talk", "--name", "b c", "--store", store)
    assert "--session 'my talk' --branch 'b c'" in ran.stderr


def test_the_tree_is_drawn(store: str) -> None:
    assert "└─ idea (1 message" in run("tree", "rope", "--store", store).stdout
    main, idea = told("tree", "rope", "--store", store)
    assert (main["forked_from"], idea["forked_from"], idea["forked_after"]) == (None, "main", 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "rop"], "There is no session 'rop'. Did you mean 'rope'?"),
        (["tree", "zzz"], "There is no session 'zzz'."),
        (["show", "rope", "--branch", "iddea"], "Did you mean 'idea'?"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_nearest(
    store: str, arguments: list[str], expected: str
) -> None:
    ran = run(*arguments, "--store", store)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert expected in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert [one["name"] for one in told("ls", "--store", store)] == ["rope"]


def test_reading_leaves_no_empty_store_behind(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    assert "no store" in run("ls", "--store", str(missing)).stderr
    assert told("doctor", "--store", str(missing))["findings"] == []
    assert not missing.exists()


def test_a_tilde_in_an_option_is_the_users_home(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [one["name"] for one in told("ls", "--store=~/some.db")] == ["rope"]
    assert told("doctor", "--store=~/some.db")["store"] == "~/some.db (ok)"
    assert told("token", "create", "--tokens=~/tokens.json")["id"]
    assert (tmp_path / "tokens.json").exists()
    (tmp_path / "mine.py").write_text("def knot() -> str:\n    return 'bowline'\n")
    assert [one.name for one in load_tools_from("~/mine.py")] == ["knot"]


def test_a_path_that_no_file_can_have_is_one_line() -> None:
    ran = run("ls", "--store", "x" * 300)
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)


def test_the_doctor_says_what_is_here(store: str) -> None:
    ran = run("doctor", "--store", store)
    assert ran.exit_code == 0
    assert "(ok)" in ran.stdout
    assert "ready" in ran.stdout


def test_the_doctor_finds_and_mends_damage(store: str) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE segments SET base = 9999 WHERE base IS NOT NULL")
    hurt = run("doctor", "--store", store)
    assert hurt.exit_code == 1, hurt.stdout
    assert "damaged" in hurt.stdout
    assert "repaired" in run("doctor", "--repair", "--store", store).stdout
    assert run("doctor", "--store", store).exit_code == 0


def test_the_doctor_looks_into_a_database_too(emptied: str) -> None:
    with sennit.open(emptied) as client:
        client.session("rope").add_message("user", "Name a knot")
    assert told("doctor", "--store", emptied)["store"].endswith("(ok)")


def test_the_doctor_shows_no_password() -> None:
    ran = run("doctor", "--store", "postgresql://ada:secret@127.0.0.1:1/none")
    assert ran.exit_code == 1
    assert "secret" not in ran.output


def test_models_that_are_here_are_listed(home: Path) -> None:
    folder = home / "data/sennit/models"
    folder.mkdir(parents=True)
    (folder / "large.gguf").write_bytes(b"GGUF")
    first, second = told("models", "list")
    assert (first["model"], first["name"]) == ("local", "smollm2-135m")
    assert (second["model"], second["bytes"]) == ("local:large", 4)
    assert "local:large" in run("models", "list").stdout


def test_pulling_what_cannot_be_had_is_one_line() -> None:
    ran = run("models", "pull", "nope")
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "requires its sha256" in run("models", "pull", "https://example.com/a.gguf").stderr


def test_pulling_prints_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pulled(model: str, *, sha256: str | None, progress: Any) -> Path:
        progress(5, 10)
        progress(10, 10)
        return tmp_path / model

    monkeypatch.setattr("sennit.cli.models.models_pull", pulled)
    assert run("models", "pull").stdout == f"{tmp_path / 'smollm2-135m'}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "gpt4"], "is not a model name"),
        (["--base-url", "http://localhost"], "base_url"),
        (["--model", "local:/nope.gguf"], "sennit models pull URL --sha256 HASH"),
        (["--branch", "idea"], "is new and has no branch 'idea'"),
        (["--tool", "nowhere"], "FILE.py:FUNCTION"),
    ],
)
def test_a_chat_that_cannot_begin_is_one_line_and_leaves_nothing(
    arguments: list[str], expected: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "chat.db")
    ran = run("chat", "--store", file, *arguments)
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert expected in ran.stderr
    assert "chat" not in run("ls", "--store", file).stdout


def test_without_weights_the_exact_command_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sennit.services.local.weights.find_spec", lambda _: None)
    ran = run("chat", "--store", str(tmp_path / "chat.db"))
    assert ran.exit_code == 1
    assert "sennit models pull" in ran.stderr
    assert "not downloaded; run sennit models pull smollm2-135m" in run("models", "list").stdout


def test_without_the_engine_the_exact_command_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sennit.services.local.model.find_spec", lambda _: None)
    assert "pip install 'sennit[local]'" in run("chat").stderr


@pytest.mark.parametrize("package", ["typer", "rich", "prompt_toolkit"])
def test_without_the_extra_the_exact_command_is_told(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from sennit.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "pip install 'sennit[cli]'" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_the_chat_refuses_a_tool_that_is_not_there_in_one_line() -> None:
    ran = run("chat", "--tool", "nowhere.py:f")
    assert ran.exit_code == 1
    assert ran.stderr.startswith("sennit: There is no file 'nowhere.py'.")


def test_find_shows_what_fits_and_where_it_stands(store: str) -> None:
    ran = run("find", "which knots", "--store", store)
    assert ran.exit_code == 0
    assert "Name a knot" in ran.stdout
    assert "      sennit show rope --message 1\n" in ran.stdout


def test_find_tells_programs_everything(store: str) -> None:
    found = told("find", "bowlines", "--store", store, "--explain", "--limit", "1")
    assert found[0]["abstract"].endswith("A bowline.")
    assert found[0]["category"] == "message"
    assert found[0]["evidence"][0].keys() == {"session", "message"}
    assert sum(found[0]["explained"].values()) == pytest.approx(found[0]["score"])


def test_find_keeps_to_what_it_is_told(store: str) -> None:
    for options in (["--until", "2001-01-01"], ["--category", "events"], ["--in", "viking://user"]):
        assert told("find", "knot", "--store", store, *options) == []
    assert told("find", "knot", "--store", store, "--since", "2001-01-01")
    assert run("find", "knot", "--store", store, "--category", "secrets").exit_code == 1
    nothing = run("find", "zeppelin", "--store", store)
    assert (nothing.exit_code, nothing.stdout) == (0, "")


def test_sessions_are_exported_and_imported_again(store: str, tmp_path: Path) -> None:
    archive = str(tmp_path / "all.zip")
    assert told("export", archive, "--store", store)["sessions"] == 1
    other = str(tmp_path / "other.db")
    taken = told("import", archive, "--store", other)
    assert taken == {
        "format": "archive",
        "sessions": 1,
        "new_sessions": 1,
        "new_branches": 2,
        "new_messages": 2,
        "new_memories": 0,
        "different_memories": 0,
        "skipped": 0,
        "problems": [],
    }
    assert run("import", archive, "--store", other).stdout == "1 session: nothing new\n"


def test_an_export_takes_the_memories_along_if_asked_and_says_so_if_not(
    store: str, tmp_path: Path
) -> None:
    with sennit.open(store) as client:
        client.session("rope").add_message("user", "My name is Ada.")
        client.session("rope").commit()
    without = run("export", str(tmp_path / "a.zip"), "--store", store)
    assert "--memories takes them along" in without.stderr
    full = run("export", str(tmp_path / "b.zip"), "--memories", "--store", store)
    assert full.stdout.endswith("b.zip  3 messages of 1 session, with the memories\n")
    assert full.stderr == ""
    some = run("export", str(tmp_path / "c.zip"), "rope", "--memories", "--store", store)
    assert (some.exit_code, "Memories come from all sessions" in some.stderr) == (1, True)
    other = str(tmp_path / "other.db")
    taken = run("import", str(tmp_path / "b.zip"), "--store", other)
    assert (
        taken.stdout == "1 session: 1 new session, 2 new branches, 3 new messages, 1 new memory\n"
    )
    assert "My name is Ada." in run("memory", "ls", "--store", other).stdout


def test_what_an_export_leaves_out_is_told_with_the_reason(store: str, tmp_path: Path) -> None:
    options = ["--format", "openai", "--min-score", "0.5", "--store", store]
    ran = run("export", str(tmp_path / "a.jsonl"), *options)
    assert ran.stderr == "skipped: 1 (has no answer that is scored high enough)\n"
    written = told("export", str(tmp_path / "b.jsonl"), *options)
    assert written["left_out"] == {"has no answer that is scored high enough": 1}


def test_an_export_of_preferences_without_any_says_why(store: str, tmp_path: Path) -> None:
    options = ["--format", "dpo", "--store", store]
    ran = run("export", str(tmp_path / "a.jsonl"), *options)
    assert ran.exit_code == 0
    assert "skipped: 1 (is an answer without a score)" in ran.stderr
    written = told("export", str(tmp_path / "b.jsonl"), *options)
    assert written["left_out"] == {"is an answer without a score": 1}


def test_training_data_is_exported_in_parts(store: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    ran = run("export", str(path), "--format", "openai", "--split", "a=1", "--store", store)
    assert ran.stdout == f"{tmp_path / 'data.a.jsonl'}  1 row of 1 session\n"
    [line] = (tmp_path / "data.a.jsonl").read_text().splitlines()
    assert json.loads(line)["messages"][-1] == {"role": "assistant", "content": "A bowline."}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--format", "csv"], "Unknown format 'csv'"),
        (["--min-score", "1"], "An archive contains all messages"),
        (["--format", "dpo", "--split", "train"], "got 'train'"),
        (["--format", "dpo", "--strict"], "needs a min_score"),
        (["rop"], "Did you mean 'rope'?"),
    ],
)
def test_an_export_that_makes_no_sense_says_why(
    store: str, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    ran = run("export", str(tmp_path / "a"), *arguments, "--store", store)
    assert ran.exit_code == 1
    assert expected in ran.stderr
    assert not (tmp_path / "a").exists()


METRIC = """
def knots(example):
    return len(example.answered) / 10

def broken(example):
    return 1 / 0

def words(example):
    return "good"
"""


@pytest.fixture
def metric(tmp_path: Path) -> str:
    (tmp_path / "metric.py").write_text(METRIC)
    return str(tmp_path / "metric.py")


def test_answers_are_scored_by_a_function_of_ones_own(store: str, metric: str) -> None:
    ran = run("score", f"{metric}:knots", "--store", store)
    assert ran.stdout == "rope  1 answer, mean score 1\n"
    assert f"Running the code in {metric}." in ran.stderr
    found = told("score", f"{metric}:knots", "rope", "--by", "me", "--store", store)
    assert found == [{"session": "rope", "answers": 1, "mean": 1.0}]
    with sennit.open(store) as client:
        (example,) = client.session("rope").to_examples()
        assert {(label.by, label.score) for label in example.labels} == {("knots", 1), ("me", 1)}


@pytest.mark.parametrize(
    ("function", "sessions", "expected"),
    [
        ("knots", ["rop"], "Did you mean 'rope'?"),
        ("missing", [], "There is no function 'missing'"),
        ("broken", [], "The metric failed on session 'rope': ZeroDivisionError"),
        ("words", [], "A score must be a finite number"),
    ],
)
def test_scoring_that_fails_says_why_and_keeps_nothing(
    store: str, metric: str, function: str, sessions: list[str], expected: str
) -> None:
    ran = run("score", f"{metric}:{function}", *sessions, "--store", store)
    assert ran.exit_code == 1
    assert expected in ran.stderr
    with sennit.open(store) as client:
        assert [example.labels for example in client.session("rope").to_examples()] == [()]


@pytest.mark.parametrize("option", ["--by", "--message", "--branch"])
def test_an_empty_name_does_not_mean_the_default(store: str, option: str) -> None:
    ran = run("label", "rope", "up", option, "", "--store", store)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert told("label", "rope", "--store", store) == []


def test_the_last_answer_is_judged_shown_and_judged_again(store: str) -> None:
    ran = run("label", "rope", "up", "--store", store)
    assert ran.stdout == "1 by user: A bowline.\n"
    given = told("label", "rope", "0.25", "--by", "ann", "--store", store)
    assert (given["score"], given["by"], given["said"]) == (0.25, "ann", "A bowline.")
    told("label", "rope", "down", "--store", store)
    listed = told("label", "rope", "--store", store)
    assert [(one["by"], one["score"]) for one in listed] == [("ann", 0.25), ("user", 0)]
    assert told("label", "rope", "--by", "ann", "--store", store) == [given]
    assert run("label", "rope", "--by", "ann", "--store", store).stdout == "0.25  ann  A bowline.\n"
    assert told("label", "rope", "none", "--by", "ann", "--store", store) is None
    assert [one["by"] for one in told("label", "rope", "--store", store)] == ["user"]


def test_another_message_is_judged_by_its_id(store: str) -> None:
    question = told("show", "rope", "--store", store)["messages"][0]
    options = ["--message", question["id"], "--store", store, "--json"]
    given = json.loads(run("label", "rope", *options, "--", "-2").stdout)
    assert (given["message"], given["score"]) == (question["id"], -2)
    assert told("label", "rope", "--message", question["id"], "--store", store) == [given]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rope", "good"], "got 'good'"),
        (["rope", "nan"], "finite number"),
        (["rope", "up", "--message", "7"], "has 2 messages, numbered from 1; got '7'"),
        (["rope", "up", "--message", "0" * 32], "has no message '000"),
        (["rop", "up"], "Did you mean 'rope'?"),
    ],
)
def test_a_label_that_makes_no_sense_says_why_and_is_not_kept(
    store: str, arguments: list[str], expected: str
) -> None:
    ran = run("label", *arguments, "--store", store)
    assert ran.exit_code == 1
    assert expected in ran.stderr
    assert told("label", "rope", "--store", store) == []


@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        ("x.txt", ["--format", "openai"], "must end in .jsonl or .parquet"),
        ("x", ["--format", "openai"], "must end in .jsonl or .parquet"),
        ("x.txt", [], "a .zip file or a folder"),
        ("x.jsonl", [], "use --format"),
    ],
)
def test_export_refuses_endings_that_it_does_not_write(
    store: str, tmp_path: Path, path: str, options: list[str], told: str
) -> None:
    ran = run("export", str(tmp_path / path), *options, "--store", store)
    assert ran.exit_code == 1
    assert told in ran.stderr
    assert not (tmp_path / path).exists()


@pytest.mark.parametrize("command", ["ls", "show rope", "fs tree", "chat"])
def test_a_disk_that_is_full_is_one_line(store: str, command: str) -> None:
    words = [*command.split(), "--store", store]
    if command == "chat":  # it is asked for more than it can write
        words += ["--model", "openai:m", "--base-url", "http://127.0.0.1:9/v1", "--json"]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "sennit", *words],
            input=b"Hello\n",
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "OPENAI_API_KEY": "none"},
        )
    assert ran.returncode == 1
    assert ran.stderr.decode().endswith("sennit: No space left on device\n")
    assert b"Traceback" not in ran.stderr


def test_a_file_of_tokens_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "tokens.json", tmp_path / ("x" * 300)):
        for words in (["create"], ["ls"], ["revoke", "abc"]):
            ran = run("token", *words, "--tokens", str(path))
            assert isinstance(ran.exception, SystemExit | None), ran.exception
            assert "Traceback" not in ran.stderr
    ran = run("token", "create", "--tokens", str(tmp_path / "file" / "tokens.json"))
    assert ran.exit_code == 1
    assert ran.stderr.startswith("sennit: ")
    assert str(tmp_path / "file") in ran.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_stream_that_is_closed_is_one_that_is_empty(store: str, closed: str) -> None:
    script = f'"$0" -m sennit chat --model openai:m --store "$1" {closed}'
    ran = subprocess.run(
        ["sh", "-c", script, sys.executable, store],
        input=b"",
        capture_output=True,
        check=False,
        env={**os.environ, "OPENAI_API_KEY": "none"},
    )
    assert ran.returncode == 0, ran.stderr
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("server", ["a 'b", "http://[::1", "http://host:99999"])
def test_a_server_of_tools_that_cannot_be_named_so_is_one_line(server: str) -> None:
    ran = run("chat", "--model", "ollama:m", "--mcp", server)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("sennit: ")
    assert "MCP server" in ran.stderr
