"""A real PostgreSQL for tests: one server per test process, a database per test.

SENNIT_TEST_POSTGRES names another server to use; tests that stop the server then are left out.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from sennit.stores.postgres import PostgresStore
from tests.postgres_server import OwnServer, Server, running

TABLES = ", ".join(
    f"sennit.{name}"
    for name in (
        "owners", "sessions", "messages", "words", "segments", "entries", "branches", "leases",
        "journals", "runs", "events", "receipts", "files", "versions", "evidence", "commits",
        "archived", "uses", "labels", "procrastinate_jobs", "procrastinate_workers",
    )
)  # fmt: skip


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    """The server of this test process."""
    given = os.environ.get("SENNIT_TEST_POSTGRES")
    if given:
        yield Server(given)
        return
    with running() as started:
        yield started


@pytest.fixture
def own_server(server: Server) -> OwnServer:
    """The server, if it may be stopped and started."""
    if not isinstance(server, OwnServer):
        pytest.skip("SENNIT_TEST_POSTGRES is not ours to stop")
    return server


@pytest.fixture
def database(server: Server) -> Generator[str]:
    """The name of a new empty database."""
    name = server.create()
    yield name
    server.drop(name)


@pytest.fixture
def url(server: Server, database: str) -> str:
    """The address of a new empty database."""
    return server.address(database)


@pytest.fixture(scope="session")
def shared_database(server: Server) -> Generator[str]:
    """A database that many tests use in turn."""
    name = server.create()
    PostgresStore(server.address(name)).close()
    yield name
    server.drop(name)


@pytest.fixture
def emptied(server: Server, shared_database: str) -> str:
    """The address of a database with empty tables, in a fifth of the time of a new one."""
    server.execute(f"TRUNCATE {TABLES} CASCADE", shared_database)
    return server.address(shared_database)


@pytest.fixture
def store(url: str) -> Generator[PostgresStore]:
    """A store in a new empty database."""
    opened = PostgresStore(url)
    yield opened
    opened.close()
