"""Failpoints: who is told of them, and what they can do."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import sennit
from sennit import StoreError, ValidationError, failpoints
from sennit.stores.statement_failpoints import named
from sennit.testing import faults


def reach(*points: str) -> None:
    for point in points:
        failpoints.reach(point)


def test_a_point_nobody_listens_to_does_nothing() -> None:
    assert not failpoints.has_listener()
    reach("anything")


def test_an_armed_point_acts_at_the_nth_time_and_only_then() -> None:
    seen = list[str]()
    with faults.arm("a", seen.append, at=2) as armed:
        reach("a", "b", "a", "a")
    assert seen == ["a"]
    assert (armed.reached, armed.fired) == (3, 1)
    reach("a")
    assert armed.reached == 3


def test_a_star_means_every_point_that_begins_so() -> None:
    seen = list[str]()
    with faults.arm("turn.*", seen.append, at=None):
        reach("turn.begin", "store.begin", "turn.end")
    assert seen == ["turn.begin", "turn.end"]


def test_blocks_inside_each_other_are_all_told() -> None:
    with faults.record("a*") as outer, faults.record() as inner:
        reach("a", "b")
    assert (outer, inner) == (["a"], ["a", "b"])
    assert not failpoints.has_listener()


def test_an_armed_error_is_raised_at_the_point() -> None:
    with faults.arm("a", faults.raising(OSError("gone"))), pytest.raises(OSError, match="gone"):
        reach("b", "a")


def test_points_are_counted_across_threads() -> None:
    with faults.arm("a", lambda _: None, at=None) as armed:
        threads = [threading.Thread(target=reach, args=["a"] * 500) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert armed.reached == 2000


def test_a_count_from_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="from 1"), faults.arm("a", faults.kill, at=0):
        pass


def test_kill_ends_the_process_as_kill_9_does() -> None:
    script = (
        "import atexit\n"
        "from sennit import failpoints\n"
        "from sennit.testing import faults\n"
        "atexit.register(print, 'tidied up')\n"
        "with faults.arm('a', faults.kill):\n"
        "    failpoints.reach('a')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-9, b"")


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("-- why\n  INSERT INTO entries(a) VALUES (?)", "INSERT INTO entries"),
        ("SELECT a,\n b FROM sennit.messages WHERE a = 1", "SELECT FROM sennit.messages"),
        ("SELECT pg_backend_pid()::text", "SELECT pg_backend_pid ::text"),
        ("PRAGMA user_version = 1", "PRAGMA user_version 1"),
        ("COMMIT", "COMMIT"),
    ],
)
def test_a_point_is_named_after_its_statement(statement: str, name: str) -> None:
    assert named(statement) == name


def test_every_statement_of_a_watched_store_is_a_point_before_and_after(tmp_path: Path) -> None:
    with faults.record("sqlite.*") as points, sennit.open(tmp_path / "sennit.db") as client:
        client.session("chat").add_message("user", "hello")
    before = [point.partition(": ")[2] for point in points if ".before" in point]
    after = [point.partition(": ")[2] for point in points if ".after" in point]
    assert before == after
    assert {"BEGIN IMMEDIATE", "INSERT INTO messages", "COMMIT"} <= set(before)


def test_a_store_that_is_opened_unwatched_stays_so(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db") as client, faults.record() as points:
        client.session("chat").add_message("user", "hello")
    assert not [point for point in points if "INSERT" in point]


@pytest.mark.parametrize("point", ["before: COMMIT", "after: INSERT INTO entries"])
def test_an_error_at_a_point_is_a_store_error_and_leaves_no_trace(
    tmp_path: Path, point: str
) -> None:
    with faults.record(), sennit.open(tmp_path / "sennit.db") as client:
        session = client.session("chat")
        session.add_message("user", "before")
        lost = faults.raising(OSError("the disk is gone"))
        with (
            faults.arm(f"sqlite.{point}", lost),
            pytest.raises(StoreError, match="the disk is gone"),
        ):
            session.add_message("user", "lost")
        session.add_message("user", "after")
        texts = [one.content.to_dict()["instruction"] for one in session.default_branch.messages]
        assert texts == ["before", "after"]
        assert client.doctor() == []
