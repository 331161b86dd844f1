"""`sennit worker` as a program: a line per commit, and an end in good order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sennit
from sennit.cli.app import app
from tests.cli.terminals import environment
from tests.memory.remembering import talk
from tests.postgres_server import OwnServer, Server

pytest_plugins = ("tests.postgres",)


@contextmanager
def worker(folder: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """The program, ended afterwards whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sennit", "worker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(folder),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def served(url: str, server: Server, database: str) -> str:
    """The address of a store that a worker has just said it serves."""
    sennit.open(url).close()
    server.execute("INSERT INTO sennit.procrastinate_workers DEFAULT VALUES", database)
    return url


def left(url: str, said: str) -> str:
    """Commit something that a worker is to finish; gives its task id."""
    with sennit.open(url) as client:
        session = client.session("chat")
        talk(session, said)
        result = session.commit(wait=False)
        assert result.status == "pending"
        return result["task_id"]


def test_a_worker_tells_of_each_commit_and_ends_when_told_to(served: str, tmp_path: Path) -> None:
    url, task = served, left(served, "My name is Ada.")
    with worker(tmp_path, "--store", url, "--concurrency", "2") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert f" committed {task}: 1 memory, by rules\n" in first
        task = left(url, "I live in Lisbon.")
        assert task in process.stdout.readline()
        with sennit.open(url) as client:
            assert client.get_task(task).status == "committed"
        process.send_signal(signal.SIGTERM)
        _, notes = process.communicate(timeout=60)
        assert process.returncode == 0
        assert notes.endswith("Done: 2 commits.\n")
        assert "Ada" not in first + notes


@pytest.mark.slow
def test_a_worker_comes_back_to_a_server_that_was_gone(
    served: str, own_server: OwnServer, tmp_path: Path
) -> None:
    task = left(served, "My name is Ada.")
    with worker(tmp_path, "--store", served) as process:
        assert process.stdout is not None
        assert task in process.stdout.readline()
        own_server.stop()
        own_server.start()
        task = left(served, "I live in Lisbon.")
        assert task in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, notes = process.communicate(timeout=60)
        assert process.returncode == 0
        assert notes.endswith("Done: 2 commits.\n")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_ends_when_told_to_while_the_server_is_gone(
    own_server: OwnServer, served: str, tmp_path: Path
) -> None:
    left(served, "I live in Lisbon.")
    with worker(tmp_path, "--store", served) as process:
        assert process.stdout is not None
        assert " committed " in process.stdout.readline()
        own_server.stop()
        try:
            process.send_signal(signal.SIGTERM)
            assert process.wait(50) == 0
        finally:
            own_server.start()


def test_a_drain_ends_by_itself_and_can_tell_programs(served: str) -> None:
    task = left(served, "My name is Ada.")
    ran = CliRunner().invoke(app, ["worker", "--drain", "--json", "--store", served])
    assert ran.exit_code == 0
    told = json.loads(ran.stdout)
    assert (told["task_id"], told["status"]) == (task, "committed")
    assert "Done: 1 commit." in ran.stderr


def test_a_file_has_no_workers_and_the_error_says_who_does_it(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["worker", "--store", str(tmp_path / "some.db")])
    assert ran.exit_code == 1
    assert "finish_commits()" in ran.stderr
    assert "Working" not in ran.stderr
