"""A process that dies at any statement leaves a SQLite file whole; `make torture` does them all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import sennit
from sennit.testing import faults
from tests.torture.acts import ACTS, Act
from tests.torture.crashes import Crashes, rehearse, share
from tests.torture.fork_server import ForkServer
from tests.torture.ground import Files

pytest_plugins = ("tests.durable",)

EVERY = 40


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("crashes"))


@pytest.fixture
def crashes(
    files: Files, fork_server: ForkServer, record_property: Callable[[str, object], None]
) -> Generator[Crashes]:
    crashes = Crashes(files, fork_server)
    yield crashes
    record_property("counted", ["crash points on SQLite", crashes.tally.counts])


@pytest.mark.parametrize("act", ACTS.values(), ids=lambda act: act.name)
def test_an_act_that_is_killed_is_done_or_not_done(crashes: Crashes, act: Act) -> None:
    rehearsal = rehearse(crashes.ground, act)
    for point in share(rehearsal.points, EVERY, act.name):
        crashes.kill(rehearsal, point)
    assert crashes.tally.trouble == []
    assert crashes.tally.killed


def test_a_new_file_whose_making_was_killed_can_be_opened(crashes: Crashes) -> None:
    for point in share(crashes.opening_points(), EVERY):
        crashes.kill_opening(point)
    assert crashes.tally.trouble == []


def test_what_lies_between_two_steps_would_be_noticed(
    files: Files, fork_server: ForkServer
) -> None:
    crashes = Crashes(files, fork_server)
    rehearsal = rehearse(files, ACTS["expire"])
    del rehearsal.states[1:-1]
    commits = [
        point for point in rehearsal.points if point[0] == "sqlite.after: UPDATE sessions SET"
    ]
    for point in commits:
        crashes.kill(rehearsal, point)
    assert len(commits) == 3
    assert crashes.tally.torn == 2


def test_a_file_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    # SQLite says so at once when two switch to WAL: of sixteen processes fourteen gave up.
    busy = faults.raising(sqlite3.OperationalError("database is locked"))
    switching = "sqlite.before: PRAGMA journal_mode WAL"
    with faults.arm(switching, busy) as armed, sennit.open(tmp_path / "sennit.db") as client:
        client.session("chat").add_message("user", "hello")
    assert (armed.fired, armed.reached) == (1, 2)
