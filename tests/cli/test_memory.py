"""Memory on the command line: remembered, shown with its evidence, corrected and forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sennit
from sennit import StoreError
from sennit.cli.app import app
from sennit.memory.commit.finalize import CommitFinalizer
from tests.cli.forking import run_forked
from tests.cli.talks import Desk
from tests.cli.terminals import SCRIPTED_CHAT, environment

PROFILE = "viking://user/memories/profile.md"
SAID = "My name is Ada and I live in Lisbon."


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with a session in which something worth remembering was said."""
    file = tmp_path / "some.db"
    monkeypatch.setenv("SENNIT_URL", str(file))
    with sennit.open(file) as client:
        session = client.session("first")
        session.add_message("user", SAID)
        session.add_message("assistant", "I see.")
    return str(file)


@pytest.fixture
def committed(store: str) -> dict[str, Any]:
    """What the commit of that session was told as."""
    del store
    return told("commit", "first")


def run(*arguments: str, typed: str | None = None) -> Any:
    return CliRunner().invoke(app, arguments, input=typed)


def told(*arguments: str) -> Any:
    ran = run(*arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_commit_says_what_was_remembered_how_and_from_what(store: str) -> None:
    del store
    ran = run("commit", "first")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("committed: 2 created, by rules (archive_001)\n")
    assert "  - I live in Lisbon.\n" in ran.stdout
    assert f"in first: “{SAID}”" in ran.stdout
    assert run("commit", "first").stdout.startswith("Nothing to commit")


def test_a_commit_that_failed_says_so_and_can_be_tried_again(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store

    def fails(*_: Any) -> None:
        raise RuntimeError("no thoughts")

    with monkeypatch.context() as broken:
        broken.setattr(CommitFinalizer, "_digest", fails)
        ran = run("commit", "first")
    assert ran.exit_code == 1
    assert "failed: no memories found" in ran.stdout
    assert "no thoughts" in ran.stdout
    task = ran.stdout.split()[-1]
    assert f"sennit memory retry {task}" in ran.stdout
    assert "committed: 2 created" in run("memory", "retry", task).stdout


def test_memories_are_listed_with_what_was_said(committed: dict[str, Any]) -> None:
    (one,) = told("memory", "ls")
    (said,) = one["evidence"]
    assert (one["uri"], one["commit"]) == (PROFILE, committed["task_id"])
    assert (said["text"], said["session"], said["role"]) == (SAID, "first", "user")
    listed = run("memory", "ls", "--category", "profile").stdout
    assert PROFILE in listed
    assert f"in first: “{SAID}”" in listed
    assert told("memory", "ls", "--category", "events") == []


def test_what_held_at_some_time_is_listed(committed: dict[str, Any]) -> None:
    del committed
    assert run("memory", "ls", "--at", "2020-01-01").stderr.startswith("No memory was valid")
    (held,) = told("memory", "ls", "--at", "2999-01-01")
    assert "I live in Lisbon." in held["text"]
    assert told("find", "Lisbon", "--at", "2020-01-01", "--category", "profile") == []
    assert len(told("find", "Lisbon", "--at", "2999-01-01", "--category", "profile")) == 1


def test_a_memory_whose_session_is_deleted_says_that_the_words_are_gone(
    store: str, committed: dict[str, Any]
) -> None:
    del committed
    with sennit.open(store) as client:
        client.delete_session("first")
    assert "was deleted" in run("memory", "show", PROFILE).stdout
    (one,) = told("memory", "ls")
    assert list(one["evidence"][0]) == ["message"]


def test_a_memory_and_its_versions_are_shown(store: str, committed: dict[str, Any]) -> None:
    shown = run("memory", "show", PROFILE).stdout
    assert f"commit {committed['task_id']}" in shown
    assert SAID in shown
    with sennit.open(store) as client:
        client.session("second").add_message("user", "I moved to Berlin.")
    told("commit", "second")
    versions = told("memory", "history", PROFILE)
    assert [one["did"] for one in versions] == ["created", "updated"]
    assert "I moved to Berlin." in run("memory", "history", PROFILE).stdout


def test_a_commit_is_undone(committed: dict[str, Any]) -> None:
    assert run("memory", "undo", committed["task_id"]).stdout == f"removed: {PROFILE}\n"
    assert told("memory", "ls") == []
    assert run("memory", "undo", "nonsense").exit_code == 1


def test_forgetting_asks_first(committed: dict[str, Any]) -> None:
    del committed
    assert run("memory", "forget", PROFILE, typed="n\n").exit_code == 1
    assert len(told("memory", "ls")) == 1
    assert run("memory", "forget", PROFILE, typed="y\n").exit_code == 0
    assert told("memory", "ls") == []


def test_one_line_of_the_profile_is_forgotten(committed: dict[str, Any]) -> None:
    diff = f"viking://session/first/history/{committed['archive']}/memory_diff.json"
    line = json.loads(told("fs", "cat", diff)["text"])["memories"][1]["uri"]
    assert told("memory", "forget", line, "--yes") == {"sessions": 0, "files": 1}
    assert told("memory", "show", PROFILE)["text"] == "# Profile\n\n- My name is Ada.\n"


def test_a_session_is_forgotten_with_all_that_rests_on_it(committed: dict[str, Any]) -> None:
    del committed
    ran = run("memory", "forget", "--session", "first", "--yes")
    assert ran.stdout == "Forgotten: 1 session and 1 file.\n"
    assert (told("memory", "ls"), told("ls")) == ([], [])


def test_what_came_from_a_deleted_session_is_forgotten_by_its_name(
    store: str, committed: dict[str, Any]
) -> None:
    del committed
    with sennit.open(store) as client:
        client.delete_session("first")
    assert told("memory", "forget", "--session", "first", "--yes") == {"sessions": 0, "files": 1}
    assert told("memory", "ls") == []
    again = run("memory", "forget", "--session", "first", "--yes")
    assert (again.exit_code, "no session 'first'" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["commit", "firs"], "Did you mean 'first'?"),
        (["memory", "show", "viking://user/memories/profil.md"], f"Did you mean '{PROFILE}'?"),
        (["memory", "ls", "--category", "event"], "Did you mean 'events'?"),
        (["memory", "forget", "--yes"], "Pass either a URI or --session NAME"),
        (
            ["memory", "forget", PROFILE, "--session", "first", "--yes"],
            "Pass either a URI or --session NAME",
        ),
        (["memory", "forget", "viking://user/nowhere", "--yes"], "nowhere"),
        (["fs", "cat", "viking://user/../other"], "'..'"),
        (["fs", "ls", "viking://nowhere"], "nowhere"),
        (["fs", "grep", "("], "not a valid regular expression"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    committed: dict[str, Any], arguments: list[str], expected: str
) -> None:
    del committed
    ran = run(*arguments)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert expected in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_files_are_listed_drawn_read_and_searched(committed: dict[str, Any]) -> None:
    del committed
    assert run("fs", "ls", "viking://user/memories").stdout.endswith("  profile.md\n")
    assert run("fs", "ls").stdout.startswith("session/\n")  # no column where nothing has a size
    assert told("fs", "ls", "viking://user/memories")[-1]["uri"] == PROFILE
    assert "profile.md" in run("fs", "tree", "viking://user").stdout
    near = told("fs", "tree", "viking://user", "--depth", "1")
    assert [one["name"] for one in near] == ["memories"]
    assert "- My name is Ada.\n" in run("fs", "cat", PROFILE).stdout
    assert "My name is Ada." in told("fs", "cat", PROFILE)["text"]
    found = run("fs", "grep", "lisbon", "viking://user", "-i")
    assert found.stdout == f"{PROFILE}:4: - I live in Lisbon.\n"
    assert told("fs", "grep", "Lisbon", "viking://user")[0]["number"] == 4
    assert run("fs", "grep", "Paris", "viking://user").exit_code == 1


def test_memories_are_edited_in_a_folder(committed: dict[str, Any], tmp_path: Path) -> None:
    del committed
    folder = tmp_path / "mine"
    assert run("fs", "export", str(folder), "viking://user/memories").stdout.startswith("1 file in")
    file = folder / "profile.md"
    file.write_text(file.read_text(encoding="utf-8").replace("Lisbon", "Porto"), encoding="utf-8")
    ran = run("fs", "import", str(folder), "viking://user/memories")
    assert ran.stdout == "0 created, 1 updated, 0 unchanged, 0 skipped\n"
    assert "Porto" in run("fs", "cat", PROFILE).stdout


def test_what_is_shown_cannot_command_the_terminal(store: str) -> None:
    with sennit.open(store) as client:
        client.fs.write("viking://user/memories/events/evil.md", "\x1b]0;owned\x07 hello")
    for arguments in (["memory", "ls"], ["fs", "cat", "viking://user/memories/events/evil.md"]):
        assert "\x1b" not in run(*arguments).stdout
    assert "← written by hand" in run("memory", "ls").stdout


def piped(folder: Path, said: str, *arguments: str) -> tuple[str, str]:
    """What a chat in a pipe prints, and what it says beside that."""
    ran = run_forked([SCRIPTED_CHAT, *arguments], said, environment(folder))
    ran.check_returncode()
    return ran.stdout, ran.stderr


def test_in_a_pipe_too_a_new_session_recognises_who_speaks(tmp_path: Path) -> None:
    store = str(tmp_path / "chat.db")
    out, notes = piped(tmp_path, SAID, "--commit", store, "Hello, Ada.")
    assert out == "Hello, Ada.\n"
    assert "committed: 2 created, by rules" in notes
    assert SAID in notes
    out, _ = piped(tmp_path, "Who am I?", "--session", "later", store, "what you said")
    assert "- My name is Ada." in out
    out, _ = piped(tmp_path, "Me?", "--session", "other", "--no-memory", store, "what you said")
    assert out == "Me?\n"


def test_the_chat_shows_nothing_where_nothing_is_remembered() -> None:
    desk = Desk([])
    assert "No memories yet" in desk.type("/memory")
    assert "Nothing to commit" in desk.type("/commit")


def test_a_commit_in_the_chat_is_of_the_branch_one_is_on() -> None:
    desk = Desk(["Hello.", "I see."])
    desk.type("Good morning!")
    desk.type("/fork idea")
    desk.type("My sister is called Grace.")
    assert "Grace" in desk.type("/commit")
    assert "“My sister is called Grace.”" in desk.type("/memory")


def test_a_store_that_fails_in_a_commit_is_one_line_and_the_talk_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(["Hello."])
    desk.type(SAID)

    def broken(*_: Any, **__: Any) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(type(desk.talk.session), "commit", broken)
    assert desk.type("/commit") == "The disk is full.\n"
