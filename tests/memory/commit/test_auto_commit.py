"""Commits that nobody asks for: by messages, by tokens, after a pause."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest

import sennit
from sennit import Client, StoreError, ValidationError, clock
from sennit.memory.commit.auto_commit import AutoCommit
from sennit.memory.commit.background_worker import BackgroundWorker
from sennit.memory.memory import engine_of
from sennit.stores.in_memory.store import MemoryStore
from sennit.testing import faults


def archives(client: Client) -> list[str]:
    return [one.name for one in client.fs.ls("viking://session/chat/history")]


def committed(path: Path, policy: AutoCommit, talk: Callable[[Client], object]) -> list[str]:
    """The archives there are when a client that was told a policy has closed."""
    with sennit.open(path) as client:
        client.memory.auto(policy)
        talk(client)
    with sennit.open(path) as client:
        return archives(client)


def say(client: Client, count: int, text: str = "hello") -> None:
    for _ in range(count):
        client.session("chat").add_message("user", text)


def test_so_many_messages_are_committed_by_themselves(tmp_path: Path) -> None:
    found = committed(tmp_path / "a.db", AutoCommit(messages=4), lambda client: say(client, 9))
    assert found
    with sennit.open(tmp_path / "a.db") as client:
        assert len(client.session("chat").current()) <= 5


def test_fewer_are_not(tmp_path: Path) -> None:
    assert committed(tmp_path / "a.db", AutoCommit(messages=4), lambda c: say(c, 3)) == []


def test_so_many_tokens_are_committed_by_themselves(tmp_path: Path) -> None:
    policy = AutoCommit(tokens=100)
    assert committed(tmp_path / "few.db", policy, lambda c: say(c, 3)) == []
    long = "a rope " * 100
    assert committed(tmp_path / "many.db", policy, lambda c: say(c, 1, long)) == ["archive_001"]


def test_the_last_messages_can_stay(tmp_path: Path) -> None:
    policy = AutoCommit(messages=4, keep_recent=2)
    committed(tmp_path / "a.db", policy, lambda client: say(client, 4))
    with sennit.open(tmp_path / "a.db") as client:
        assert len(client.session("chat").current()) == 2


def test_a_pause_commits(tmp_path: Path) -> None:
    done = Event()

    def notice(_: str) -> Any:
        done.set()

    with faults.arm("memory.commit: finished", notice), sennit.open(tmp_path / "a.db") as client:
        client.memory.auto(AutoCommit(idle=0.01))
        say(client, 1)
        assert done.wait(30)
        assert archives(client)[0] == "archive_001"


def test_a_pause_that_is_not_over_when_the_client_closes_commits_nothing(tmp_path: Path) -> None:
    assert committed(tmp_path / "a.db", AutoCommit(idle=3600), lambda c: say(c, 1)) == []


@pytest.mark.parametrize(
    ("policy", "text"), [(AutoCommit(messages=4), "hello"), (AutoCommit(tokens=40), "a rope " * 5)]
)
def test_a_count_goes_on_where_the_program_before_stopped(
    tmp_path: Path, policy: AutoCommit, text: str
) -> None:
    for number in range(1, 4):
        assert committed(tmp_path / "a.db", policy, lambda c: say(c, 1, text)) == [], number
    assert committed(tmp_path / "a.db", policy, lambda c: say(c, 1, text)) == ["archive_001"]
    assert committed(tmp_path / "a.db", policy, lambda c: say(c, 1, text)) == ["archive_001"]


def test_what_was_left_current_is_not_counted_again_by_the_next_program(tmp_path: Path) -> None:
    policy = AutoCommit(messages=4, keep_recent=3)
    assert committed(tmp_path / "a.db", policy, lambda c: say(c, 4)) == ["archive_001"]
    for _ in range(3):
        assert committed(tmp_path / "a.db", policy, lambda c: say(c, 1)) == ["archive_001"]
    found = committed(tmp_path / "a.db", policy, lambda c: say(c, 1))
    assert found == ["archive_001", "archive_002"]


def test_a_pause_whose_end_no_program_saw_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    assert committed(tmp_path / "a.db", AutoCommit(idle=3600), lambda c: say(c, 1)) == []
    done = Event()
    with (
        clock.wall_clock_from(lambda: time.time_ns() + 3601 * 10**9),
        clock.monotonic_clock_from(lambda: 1000 * time.monotonic()),
        faults.arm("memory.commit: finished", lambda _: done.set()),
        sennit.open(tmp_path / "a.db") as client,
    ):
        client.memory.auto(AutoCommit(idle=0.2))
        assert done.wait(30)
    with sennit.open(tmp_path / "a.db") as client:
        assert archives(client)[0] == "archive_001"


def test_of_pauses_that_no_program_saw_the_first_is_made_up_for_first(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        for key, text in (("one", "I live in Lisbon."), ("two", "I moved to Berlin.")):
            client.session(key).add_message("user", text)
    both = Semaphore(0)
    with (
        clock.wall_clock_from(lambda: time.time_ns() + 3601 * 10**9),
        faults.arm("memory.commit: finished", lambda _: both.release(), at=None),
        sennit.open(tmp_path / "a.db") as client,
    ):
        client.memory.auto(AutoCommit(idle=0.01))
        assert both.acquire(timeout=30)
        assert both.acquire(timeout=30)
        profile = client.fs.read("viking://user/memories/profile.md")
        assert profile.splitlines()[-1] == "- I moved to Berlin."


def test_a_session_deleted_meanwhile_is_no_trouble() -> None:
    client = Client(MemoryStore())
    client.memory.auto(AutoCommit(messages=1))
    for _ in range(20):
        client.session("chat").add_message("user", "hello")
        client.delete_session("chat")
    client.memory.auto(None)
    say(client, 5)
    client.close()


@pytest.mark.parametrize(
    "wrong", [{"messages": 0}, {"tokens": -1}, {"idle": float("nan")}, {"keep_recent": -1}]
)
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AutoCommit(**wrong)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"messages": "4"}, "messages"),
        ({"tokens": 0}, "tokens"),
        ({"idle": -1}, "idle"),
        ({"messages": 4, "keep_recent": "all"}, "keep_recent"),
    ],
)
def test_a_policy_that_makes_no_sense_names_what_is_wrong(wrong: Any, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        AutoCommit(**wrong)


def test_a_job_that_fails_in_an_unforeseen_way_does_not_stop_those_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[int] = []
    worker = BackgroundWorker("test")
    worker.submit(lambda: 1 / 0)
    worker.submit(lambda: done.append(1))
    worker.close()
    assert done == [1]
    assert "ZeroDivisionError" in caplog.text


def test_a_closed_worker_runs_nothing_more() -> None:
    worker = BackgroundWorker("test")
    done: list[str] = []
    worker.submit(lambda: done.append("queued"))
    worker.close()
    worker.submit(lambda: done.append("submitted"))
    worker.schedule("key", 0, lambda: done.append("scheduled"))
    worker.close()
    assert (done, worker.closed) == (["queued"], True)


def test_a_closed_client_refuses_a_commit_in_the_background_before_it_archives() -> None:
    store = MemoryStore()
    client = Client(store)
    session = client.session("chat")
    session.add_message("user", "I live in Lisbon.")
    engine_of(client.memory).close()
    with pytest.raises(StoreError, match="pass wait=True"):
        session.commit(wait=False)
    assert len(session.current()) == 1
    assert store.open_commits(engine_of(Client(store).memory).scope.user) == []
    assert session.commit().status == "committed"
