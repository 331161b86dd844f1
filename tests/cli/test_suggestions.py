"""What is typed wrong is answered with the nearest right name, and with where to look it up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sennit
from sennit import AssistantResponseContent, Message, iModel
from sennit.cli.app import app
from sennit.errors import NotFoundError, ValidationError, listed
from tests.cli.talks import Desk


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("SENNIT_URL", "knots.db")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    with sennit.open("knots.db") as client:
        session = client.session("rope")
        session.add_message("user", "Name a knot")
        session.add_message(Message(AssistantResponseContent("A bowline.")), branches="main")
        session.fork("main", name="idea")
    (tmp_path / "dice.py").write_text('def roll(n: int) -> int:\n    "Roll."\n    return n\n')
    (tmp_path / "conversations.json").write_text("[]")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("shwo rope", "Did you mean 'show'?"),
        ("memory froget x", "Did you mean 'forget'?"),
        ("show rope --brnch main", "--branch"),
        ("chat --modle local", "--model"),
        ("show rpoe", "There is no session 'rpoe'. Did you mean 'rope'? sennit ls lists them."),
        ("show rope --branch ieda", "Did you mean 'idea'? There are: 'main', 'idea'."),
        ("diff rope mian idea", "Did you mean 'main'?"),
        ("show rope --message 9", "Branch 'idea' has 2 messages, numbered from 1; got '9'."),
        ("export x.jsonl --format opnai", "Did you mean 'openai' or 'openai-dpo'?"),
        ("import conversations.json --format chatgtp", "Did you mean 'chatgpt'?"),
        ("import convrsations.json", "Did you mean 'conversations.json'?"),
        ("memory ls --category event", "Did you mean 'events'? The categories are 'profile', "),
        ("find knot --category event", "Did you mean 'events'?"),
        ("chat --tool dise.py", "There is no file 'dise.py'. Did you mean 'dice.py'?"),
        ("chat --tool dice.py:rol", "Did you mean 'roll'?"),
        ("chat --tool calculater", "Did you mean 'calculator'?"),
        ("chat --model gpt-5", "Did you mean 'openai:gpt-5'?"),
        ("chat --model gtp-5", "Did you mean 'openai:gpt-5'?"),
        ("chat --model opnai:gpt-5", "Did you mean 'openai:gpt-5'?"),
        ("chat --model anthropic/claude-opus-5", "Did you mean 'anthropic:claude-opus-5'?"),
        ("models pull smolm2-135m", "Did you mean 'smollm2-135m'?"),
        ("ls --store knots.bd", "There is no store at 'knots.bd' yet; sennit chat creates one."),
        ("ls --store knots.bd", "Did you mean 'knots.db'?"),
    ],
)
def test_a_command_line_with_a_typo_is_answered_with_the_nearest_right_one(
    line: str, expected: str
) -> None:
    ran: Any = CliRunner().invoke(app, line.split())
    assert ran.exit_code in (1, 2)
    assert ran.stdout == ""
    assert expected in ran.stderr
    assert "[" not in ran.stderr.replace("[OPTIONS]", "").replace("[ARGS]", "")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/histroy", "Did you mean '/history'? /help lists the commands"),
        ("/swich idea", "Did you mean '/switch'?"),
        ("/model gtp-5", "Did you mean 'openai:gpt-5'?"),
        ("/model opnai:gpt-5", "Did you mean 'openai:gpt-5'?"),
    ],
)
def test_a_slash_command_with_a_typo_is_answered_with_the_nearest_right_one(
    typed: str, expected: str
) -> None:
    assert expected in " ".join(Desk([]).type(typed).split())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("openai:gtp-5", " Did you mean 'openai:gpt-5'?"),
        ("openai:gpt5-mini", " Did you mean 'openai:gpt-5-mini'?"),
        ("openai:gpt-5", ""),
        ("openai:gpt-99", ""),  # may be newer than the list of names
    ],
)
def test_a_key_that_is_missing_for_a_mistyped_model_does_not_hide_the_typo(
    name: str, hint: str
) -> None:
    missing = f"Model {name!r} needs an API key: set OPENAI_API_KEY, or pass api_key.{hint}"
    assert str(iModel(name).ready()) == missing


def test_names_are_listed_as_a_person_writes_them() -> None:
    assert listed([]) == "none yet"
    assert listed({"b", "a"}) == "'a', 'b'"
    assert listed(map(str, range(25))).endswith("'18', '19' and 5 more")
    with sennit.open(":memory:") as client:
        with pytest.raises(NotFoundError, match="there are: none yet"):
            client.session("s").get_branch("main")
        with pytest.raises(ValidationError, match=r"A filter has no kind|one of 'user', "):
            client.session("s").add_message({"role": "usr", "content": "Hello"})


def test_a_session_is_found_by_its_title_unless_it_is_to_be_deleted() -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, arguments)

    assert "1 user: Name a knot" in run("show", "name a KNOT").stdout
    assert run("show", "name a KNOT").stderr.startswith("rope · ")
    refused = run("rm", "Name a knot", "--yes")
    assert (refused.exit_code, "There is no session" in refused.stderr) == (1, True)
    with sennit.open("knots.db") as client:
        client.session("bend").set_title("Name a knot")
    several = run("show", "Name a knot").stderr
    assert "Several sessions have the title 'Name a knot': 'bend', 'rope'." in several


def test_deleting_goes_on_with_what_is_left_of_an_interrupted_call() -> None:
    ran = CliRunner().invoke(app, ["rm", "gone", "rope", "--yes"])
    assert (ran.exit_code, ran.stdout.split(";")[0]) == (1, "Deleted 1 session")
    assert "There is no session 'gone'." in ran.stderr
    with sennit.open("knots.db") as client:
        assert client.sessions() == []


def test_help_shows_the_whole_line_of_each_command_and_find_shows_scores_only_if_asked() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert "sessions, memories" in shown
    found = CliRunner().invoke(app, ["find", "bowline"]).stdout
    assert "score" not in found
    assert "score 1.00 = " in CliRunner().invoke(app, ["find", "bowline", "--explain"]).stdout


def test_a_number_that_no_list_of_sessions_had_is_explained() -> None:
    shown = " ".join(Desk([]).type("/open 9").split())
    assert shown == ("There is no session '9'. The last list has 0 sessions; /sessions lists them.")


def test_tabs_in_an_answer_are_spaces() -> None:
    assert Desk(["one\ttwo"]).type("Go") == "one    two\n"
