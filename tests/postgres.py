"""A real PostgreSQL for tests: one server per test process, a database per test.

SENNIT_TEST_POSTGRES names another server to use; tests that stop the server then are left out.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from sennit.stores.postgres.store import PostgresStore
from tests.postgres_server import OwnServer, Server, running

# Deleting a few rows takes a third of the time of truncating twenty tables.
EMPTY_ALL = """
DO $$
DECLARE filled regclass;
BEGIN
    SET LOCAL session_replication_role = replica;  -- no foreign keys are looked at, no triggers run
    FOR filled IN
        SELECT oid FROM pg_class
        WHERE relnamespace = 'sennit'::regnamespace AND relkind = 'r' AND relname <> 'schema'
    LOOP
        -- Rows that were deleted stay for a while and make all that follows slow, if they are many.
        IF pg_relation_size(filled) > 200000 THEN
            EXECUTE format('TRUNCATE %s CASCADE', filled);
        ELSE
            EXECUTE format('DELETE FROM %s', filled);
        END IF;
    END LOOP;
END $$
"""


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
    """The address of a database with empty tables, in a fraction of the time of a new one."""
    server.execute(EMPTY_ALL, shared_database)
    return server.address(shared_database)


@pytest.fixture
def store(url: str) -> Generator[PostgresStore]:
    """A store in a new empty database."""
    opened = PostgresStore(url)
    yield opened
    opened.close()
