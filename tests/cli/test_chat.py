"""`sennit chat` as a whole, with the embedded model, as a stranger would run it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminals import environment, terminal

ROOT = Path(__file__).parent.parent.parent
SENNIT = [sys.executable, "-m", "sennit"]


def run(
    folder: Path, *arguments: str, said: bytes = b"", program: list[str] = SENNIT, **env: str
) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [*program, *arguments],
        input=said,
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=environment(folder, **env),
    )
    return subprocess.CompletedProcess(
        ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode()
    )


def test_lines_from_a_pipe_are_answered_without_a_key_and_remembered_by_the_next_start(
    tmp_path: Path,
) -> None:
    short = ["chat", "--max-tokens", "2", "--system", "Be brief."]
    first = run(tmp_path, *short, said=b"My name is Ada.\nWhat did I just say?\n")
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("\n") >= 2
    assert "tiny" in first.stderr
    assert "--model openai:gpt-5" in first.stderr
    second = run(tmp_path, *short, "--json", said=b"Who am I?\n")
    assert second.returncode == 0, second.stderr
    assert "tiny" not in second.stderr
    shown = run(tmp_path, "show", "chat").stdout
    assert shown.count("Be brief.") == 1
    for said in ("My name is Ada.", "What did I just say?", "Who am I?"):
        assert re.search(rf"user: {re.escape(said)}\n\d assistant: ", shown)


def test_an_interrupted_pipe_keeps_what_was_said(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*SENNIT, "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(tmp_path),
    ) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write(b"Tell a very long story.\n")
        chat.stdin.flush()
        first = os.read(chat.stdout.fileno(), 4).decode()
        chat.send_signal(signal.SIGINT)
        chat.communicate()
    assert chat.returncode == 130
    assert f"assistant: {first}" in run(tmp_path, "show", "chat").stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_chat_prints_nothing_but_answers(tmp_path: Path) -> None:
    made = ["make", "-o", ".venv/.chat", f"BIN={Path(sys.executable).parent}", "chat"]
    ran = run(tmp_path, "ARGS=--max-tokens 3 --json", said=b"Hello\n", program=made)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith('{"answer": ')
    assert ran.stdout.count("\n") == 1


def test_the_first_start_on_a_terminal_says_who_answers(tmp_path: Path) -> None:
    with terminal(["-m", "sennit", "chat", "--max-tokens", "3"], tmp_path) as chat:
        chat.expect("Starting…")
        chat.expect("chat (new) · local")
        chat.expect("It is tiny")
        chat.expect("--model openai:gpt-5")
        chat.say("Hello", "cut off")
        chat.expect("›")
        chat.type("\x04")
        assert chat.end() == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [*SENNIT, "ls", "--json", "--store", str(_store(tmp_path))],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        env=environment(tmp_path),
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


def _store(folder: Path) -> Path:
    import sennit

    with sennit.open(folder / "some.db") as client:
        client.session("one")
    return folder / "some.db"
