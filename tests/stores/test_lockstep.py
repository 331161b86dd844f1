"""Memory, SQLite and PostgreSQL in lock step; see `tests.torture.lockstep`."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.torture.acts import tiny_pieces
from tests.torture.lockstep import PHASES, Kit, Lockstep

if TYPE_CHECKING:
    from tests.postgres import Server

pytest_plugins = ("tests.postgres",)


@pytest.fixture(scope="module", autouse=True)
def stores(
    tmp_path_factory: pytest.TempPathFactory, shared_database: str, server: Server
) -> Generator[None]:
    path = tmp_path_factory.mktemp("lockstep") / "sennit.db"
    Lockstep.kit = Kit(str(path), server.address(shared_database))
    with tiny_pieces():
        yield
    Lockstep.kit.close()


TestLockstep = pytest.mark.timeout(300)(Lockstep.TestCase)  # three stores, one of them a server
TestLockstep.settings = settings(max_examples=8, stateful_step_count=40, phases=PHASES)


class LongLockstep(Lockstep):
    """The same, longer."""


TestLongLockstep = pytest.mark.slow(pytest.mark.timeout(900)(LongLockstep.TestCase))
TestLongLockstep.settings = settings(max_examples=200, stateful_step_count=80, phases=PHASES)
