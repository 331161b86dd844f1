"""A run that is killed at any point of its journal is gone on with to the same end.

Here at a share of the points; `make torture` takes all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from sennit import SessionOptions
from tests.torture.crashes import share
from tests.torture.fork_server import ForkServer
from tests.torture.ground import opened
from tests.torture.turns import SCENARIOS, Killing, rehearse

pytest_plugins = ("tests.durable",)
Count: TypeAlias = Callable[[str, object], None]


def kill_some(killing: Killing, scenario: str, every: int) -> None:
    rehearsal = rehearse(killing.address, killing.folder, scenario)
    for point in share(rehearsal.points, every, scenario):
        killing.kill(rehearsal, point)
    assert killing.tally.trouble == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_run_that_is_killed_comes_to_the_same_end(
    tmp_path: Path, fork_server: ForkServer, scenario: str, record_property: Count
) -> None:
    killing = Killing(str(tmp_path / "sennit.db"), tmp_path, fork_server)
    kill_some(killing, scenario, every=20)
    record_property("counted", ["conversations killed on SQLite", killing.tally.counts])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scenario", ["a tool that must run once", "calls at once"])
def test_a_run_that_is_killed_comes_to_the_same_end_on_postgresql(
    emptied: str, tmp_path: Path, fork_server: ForkServer, scenario: str, record_property: Count
) -> None:
    killing = Killing(emptied, tmp_path, fork_server)
    kill_some(killing, scenario, every=20)
    record_property("counted", ["conversations killed on PostgreSQL", killing.tally.counts])


def test_a_call_that_was_done_behind_a_slower_one_keeps_its_result(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    killing = Killing(str(tmp_path / "sennit.db"), tmp_path, fork_server)
    rehearsal = rehearse(killing.address, tmp_path, "a call that is done behind a slower one")
    with opened(killing.address) as client:
        world = killing.left_at(client, rehearsal, ("journal.after: tool.result_buffered", 1))
        assert world is not None
        assert asyncio.run(world.go_on()).success
        assert world.transcript == rehearsal.transcript
        assert world.done == ["book"]


def test_a_fork_takes_the_result_of_a_call_that_was_done_behind_a_slower_one(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    killing = Killing(str(tmp_path / "sennit.db"), tmp_path, fork_server)
    rehearsal = rehearse(killing.address, tmp_path, "a call that is done behind a slower one")
    with opened(killing.address) as client:
        world = killing.left_at(client, rehearsal, ("journal.after: tool.result_buffered", 1))
        assert world is not None
        fork = world.session.fork(world.branch, resources=True)
        request = world.conversation.request
        tools = list(request.tools.values())
        conversation = world.session.conversation(fork, model=request.model, tools=tools)
        assert conversation.run(SessionOptions(allow_parallel_tools=True)).success
        assert "booked" in [str(one.content.to_dict().get("result")) for one in fork.messages]
        assert world.done == ["book"]


def test_another_end_than_the_rehearsed_one_would_be_noticed(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    killing = Killing(str(tmp_path / "sennit.db"), tmp_path, fork_server)
    rehearsal = rehearse(killing.address, tmp_path, "a tool with an idempotency key")
    point = next(one for one in rehearsal.points if one[0] == "tool.after: pay")
    rehearsal.transcript.pop()
    rehearsal.done = 2
    killing.kill(rehearsal, point)
    assert (killing.tally.killed, killing.tally.torn) == (1, 1)
    rehearsal.done = 0
    killing.kill(rehearsal, point)
    assert killing.tally.doubled == 1
