"""Stores that outlive a process, and the server that forks the processes that die on them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.torture.fork_server import ForkServer

pytest_plugins = ("tests.postgres",)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nothing is stored yet."""
    if request.param == "SQLite":
        return str(tmp_path / "sennit.db")
    return request.getfixturevalue("emptied")


@pytest.fixture(scope="session")
def fork_server() -> Generator[ForkServer]:
    """Where children are born to be killed; one for each test process."""
    with ForkServer() as fork_server:
        yield fork_server
