"""Processes that write at the same time lose, double and reorder nothing, on either store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture import processes
from tests.torture.fork_server import ForkServer

pytest_plugins = ("tests.durable",)

Count = Callable[[str, dict[str, int]], None]


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def address(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A store that nobody has opened yet."""
    return str(tmp_path / "sennit.db") if kind == "SQLite" else request.getfixturevalue("url")


@pytest.fixture
def judge(kind: str, record_property: Callable[[str, object], None]) -> Count:
    def judge(where: str, counts: dict[str, int]) -> None:
        record_property("counted", [f"processes {where}, {kind}", counts])
        assert (counts["lost"], counts["doubled"], counts["disordered"]) == (0, 0, 0)

    return judge


def test_eight_processes_on_one_branch_all_land_each_in_its_order(
    fork_server: ForkServer, address: str, judge: Count
) -> None:
    counts = processes.on_one_branch(fork_server, address, 8, 20)
    judge("on one branch", counts)
    assert counts["appends"] == 160


def test_sixteen_processes_on_sessions_of_their_own_all_land(
    fork_server: ForkServer, address: str, judge: Count
) -> None:
    counts = processes.on_their_own(fork_server, address, 16, 10)
    judge("on their own sessions", counts)
    assert counts["appends"] == 160
