"""What a process leaves open is finished by the next one; what others are at is left to them."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import clock
from sennit.testing import ScriptedModel, faults
from tests.memory.remembering import memories, talk
from tests.memory.test_crashes import answers, begun, cut_off, seen, undisturbed
from tests.torture.fork_server import ForkServer

__all__ = ["undisturbed"]
pytest_plugins = ("tests.durable",)


def later(seconds: float) -> AbstractContextManager[None]:
    """Inside the block it is later than it is."""
    return clock.wall_clock_from(lambda: time.time_ns() + int(seconds * 1e9))


@pytest.mark.parametrize("step", ["archived", "thought", "write"])
def test_a_process_killed_in_mid_commit_is_finished_by_the_next(
    tmp_path: Path, fork_server: ForkServer, undisturbed: dict[str, Any], step: str
) -> None:
    path = tmp_path / "chat.db"
    begun(path)
    commit = {"do": "torture.commits.commit", "url": str(path), "session": "chat", "wait": False}
    assert fork_server.run({**commit, "point": f"memory.commit: {step}"})[0] == -9
    with later(61), sennit.open(path) as client:
        assert client.session("chat").current() == []  # this is not about the commit at all
    with sennit.open(path) as client:
        assert seen(client) == undisturbed
        assert client.doctor() == []


def test_what_another_process_may_still_be_at_is_left_to_it_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    begun(path)
    assert cut_off(path, "memory.commit: thought")
    with sennit.open(path) as client:
        client.session("chat").current()
    with sennit.open(path) as client:
        assert memories(client) == {}
        (result,) = client.finish_commits()  # for those who know better
        assert result.status == "committed"


def test_a_model_is_given_more_time_than_rules(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    class CutOffError(BaseException):
        """As if the process ended."""

    with sennit.open(path) as client:
        client.memory.use(model=ScriptedModel([CutOffError()]))
        talk(client.session("chat"), "Hello, my name is Ada.")
        with pytest.raises(CutOffError):
            client.session("chat").commit()
    for seconds, left in ((300, {}), (601, {"viking://user/memories/profile.md"})):
        with later(seconds), sennit.open(path) as client:
            client.memory.use(model=ScriptedModel(answers()))
            client.session("chat").current()
        with sennit.open(path) as client:
            assert set(memories(client)) == set(left)
    with sennit.open(path) as client:
        assert "The user is called Ada." in client.fs.read("viking://user/memories/profile.md")


def test_processes_that_commit_the_same_session_at_once_archive_and_write_it_once(
    address: str, fork_server: ForkServer, undisturbed: dict[str, Any]
) -> None:
    begun(address)
    commit = {"do": "torture.commits.commit", "url": address, "session": "chat", "wait": True}
    endings = fork_server.run_all([commit] * 4)
    assert [code for code, _ in endings] == [0] * 4, endings
    assert all(json.loads(said[0])["status"] == "committed" for _, said in endings)
    with sennit.open(address) as client:
        assert seen(client) == undisturbed
        assert client.doctor() == []


def test_processes_that_commit_sessions_of_one_user_at_once_remember_each_thing_once(
    address: str, fork_server: ForkServer
) -> None:
    with sennit.open(address) as client:
        for number in range(4):
            said = f"My name is Ada. My brother is called Brother{number}."
            talk(client.session(f"chat {number}"), said)
    commits = [
        {"do": "torture.commits.commit", "url": address, "session": f"chat {number}", "wait": True}
        for number in range(4)
    ]
    endings = fork_server.run_all(commits)
    assert [code for code, _ in endings] == [0] * 4, endings
    assert all(json.loads(said[0])["status"] == "committed" for _, said in endings)
    with sennit.open(address) as client:
        profile = client.memory.get("viking://user/memories/profile.md")
        assert profile.text.count("My name is Ada.") == 1
        assert len(profile.evidence) == 4
        kept = "\n".join(memories(client).values())
        assert all(kept.count(f"Brother{number}") == 1 for number in range(4))
        assert client.doctor() == []


def test_a_commit_that_somebody_else_has_finished_by_now_tells_what_came_of_it(
    address: str,
) -> None:
    with sennit.open(address) as client, sennit.open(address) as other:
        talk(client.session("chat"), "My name is Ada.")

        def finish(_: str) -> None:
            assert [one.status for one in other.finish_commits()] == ["committed"]

        with faults.arm("memory.commit: archived", finish):
            result = client.session("chat").commit()
        assert (result["archived"], result["memories_extracted"]) == (True, 1)
        assert result == client.get_task(result.task_id or "")


def test_a_commit_that_comes_while_another_thinks_doubles_nothing(address: str) -> None:
    with sennit.open(address) as client, sennit.open(address) as other:
        for name, one in (("chat 1", client), ("chat 2", other)):
            talk(one.session(name), "My name is Ada.")

        def meanwhile(_: str) -> None:
            assert other.session("chat 2").commit().status == "committed"

        with faults.arm("memory.commit: thought", meanwhile, at=1):
            assert client.session("chat 1").commit().status == "committed"
        profile = client.memory.get("viking://user/memories/profile.md")
        assert profile.text.count("My name is Ada.") == 1
        assert len(profile.evidence) == 2
