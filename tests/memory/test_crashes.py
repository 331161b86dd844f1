"""A commit that was cut off anywhere is finished later, with the same result and nothing doubled.

Deaths by `kill -9` at the statements of a store are in `tests/stores`, with all other changes. Here
are the steps of a commit itself, and a whole process that dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import sennit
from sennit import Client, StoreError
from sennit.testing import ScriptedModel, faults
from tests.memory.remembering import TALK, memories, talk

STEPS = ["archived", "read", "thought", "write", "finished"]


class CutOffError(BaseException):
    """The process ends here, as far as the program can tell."""


def begun(path: Path | str) -> None:
    """A session with something to commit, and something used."""
    with sennit.open(path) as client:
        client.fs.write("viking://resources/guide.md", "How to tie a bowline.")
        session = client.session("chat")
        talk(session, *TALK)
        session.used(contexts=["viking://resources/guide.md"])


def cut_off(path: Path, point: str, at: int = 1) -> bool:
    """Commit until a point is reached, and stop there; False if it was not reached."""
    with faults.record():
        client = sennit.open(path)
    try:
        with faults.arm(point, faults.raising(CutOffError()), at=at) as armed:
            client.session("chat").commit()
        return bool(armed.fired)
    except CutOffError:
        return True
    finally:
        client._store.close()


def seen(client: Client) -> dict[str, Any]:
    """All that a commit leaves behind, less what depends on when it was made."""
    fs = client.fs
    archive = "viking://session/chat/history/archive_001"
    diff = json.loads(fs.read(f"{archive}/memory_diff.json"))
    return {
        "memories": memories(client),
        "versions": [one.version for one in client.memory.all()],
        "history": [one.name for one in fs.ls("viking://session/chat/history")],
        "overview": fs.read(f"{archive}/.overview.md"),
        "diff": [(one["did"], one["uri"].split("#")[0]) for one in diff["memories"]],
        "active": fs.stat("viking://resources/guide.md").active_count,
        "current": len(client.session("chat").current()),
    }


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, Any]:
    """What is left when nothing happens."""
    begun(tmp_path / "undisturbed.db")
    with sennit.open(tmp_path / "undisturbed.db") as client:
        client.session("chat").commit()
        return seen(client)


FINISHERS: dict[str, Callable[[Client], object]] = {
    "the next commit": lambda client: client.session("chat").commit(),
    "finish_commits": lambda client: (client.finish_commits(), client.session("chat").commit()),
}


@pytest.mark.parametrize("finisher", FINISHERS)
@pytest.mark.parametrize("step", STEPS)
def test_a_commit_cut_off_at_a_step_is_finished_later(
    tmp_path: Path, undisturbed: dict[str, Any], step: str, finisher: str
) -> None:
    path = tmp_path / "chat.db"
    begun(path)
    assert cut_off(path, f"memory.commit: {step}")
    with sennit.open(path) as client:
        for _ in range(2):
            FINISHERS[finisher](client)
            assert seen(client) == undisturbed
        assert client.doctor() == []


def test_a_commit_cut_off_at_any_statement_is_finished_later(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    begun(tmp_path / "points.db")
    with faults.record("sqlite.*") as points, sennit.open(tmp_path / "points.db") as client:
        session = client.session("chat")
        points.clear()
        session.commit()
        reached = len(points)
    assert reached > 50
    for at in range(1, reached, 9):
        path = tmp_path / f"{at}.db"
        begun(path)
        assert cut_off(path, "sqlite.*", at)
        with sennit.open(path) as client:
            client.session("chat").commit()
            assert seen(client) == undisturbed, at
            assert client.session("chat").commit()["archived"] is False


def answers() -> list[str]:
    """What a model says of a short talk: memories, then a summary."""
    claims = [{"category": "profile", "content": "The user is called Ada.", "evidence": [1]}]
    summary = {
        "topic": "Names", "intent": "Say hello", "result": "Greeted", "status": "Done",
        "analysis": [], "request": "Hello", "concepts": [], "pending": [],
    }  # fmt: skip
    return [json.dumps({"memories": claims}), json.dumps(summary)]


def test_a_model_is_not_asked_again_for_what_it_has_said(tmp_path: Path) -> None:
    model = ScriptedModel(answers())
    with sennit.open(tmp_path / "a.db") as client:
        client.memory.use(model=model)
        talk(client.session("chat"), "Hello, my name is Ada.")
        with (
            faults.arm("memory.commit: marked", faults.raising(CutOffError())),
            pytest.raises(CutOffError),
        ):
            client.session("chat").commit()
        assert memories(client) == {}
    assert len(model.requests) == 2
    with sennit.open(tmp_path / "a.db") as client:
        client.memory.use(model=ScriptedModel([]))
        (result,) = client.finish_commits()
        assert (result["method"], result["model_calls"]) == ("model", 2)
        assert "The user is called Ada." in client.fs.read("viking://user/memories/profile.md")


def test_a_model_that_fails_leaves_it_to_rules_and_says_so(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        client.memory.use(model=ScriptedModel([sennit.ModelError("gone")] * 3))
        talk(client.session("chat"), "Hello, my name is Ada.")
        result = client.session("chat").commit()
        assert (result.status, result["method"]) == ("committed", "rules")
        assert result["warnings"]
        assert result["model_calls"] <= 3
        assert "Ada" in client.fs.read("viking://user/memories/profile.md")


def test_a_full_disk_leaves_the_commit_open_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    begun(path)
    with faults.record(), sennit.open(path) as client:
        full = faults.raising(OSError("database or disk is full"))
        with faults.arm("sqlite.before: INSERT INTO files", full):
            result = client.session("chat").commit()
        assert result.status == "failed"
        assert "no space left" in result.reasons[0]
        assert client.get_task(result.task_id or "").status == "pending"
        assert client.session("chat").commit().status == "committed"
        assert memories(client)


def test_a_disk_that_is_full_at_once_archives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    begun(path)
    with faults.record(), sennit.open(path) as client:
        full = faults.raising(OSError("database or disk is full"))
        with (
            faults.arm("sqlite.before: INSERT INTO commits", full),
            pytest.raises(StoreError, match="no space left"),
        ):
            client.session("chat").commit()
        assert len(client.session("chat").current()) == 2 * len(TALK)


def test_a_process_killed_in_the_middle_of_a_background_commit_loses_nothing(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    path = tmp_path / "chat.db"
    begun(path)
    program = dedent(
        """
        import sys
        import sennit
        from sennit.testing import faults

        with faults.arm("memory.commit: write", faults.kill):
            client = sennit.open(sys.argv[1])
            client.session("chat").commit(wait=False)
            client.close()
        """
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    with sennit.open(path) as client:
        assert len(client.session("chat").current()) == 0
        assert memories(client) == {}
        (result,) = client.finish_commits()
        assert result.status == "committed"
        assert seen(client) == undisturbed
