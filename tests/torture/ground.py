"""Where crashes take place: a scene that is made once and copied for each, on either store."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from sennit import Client
from sennit.stores.postgres import PostgresStore
from sennit.stores.sqlite import SQLiteStore
from tests.torture.acts import replaying, set_the_scene

if TYPE_CHECKING:
    from tests.postgres import Server


def opened(address: str, **options: int) -> Client:
    """A client on a file or a database."""
    if address.startswith("/"):
        return Client(SQLiteStore(address))
    return Client(PostgresStore(address, **options))


class Files:
    """SQLite files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._template = folder / "scene.db"
        with replaying(1), opened(str(self._template)) as client:
            set_the_scene(client)

    @contextmanager
    def scene(self) -> Generator[str]:
        with self.nothing() as address:
            shutil.copy(self._template, address)
            yield address

    @contextmanager
    def nothing(self) -> Generator[str]:
        path = self._folder / f"{next(self._numbers)}.db"
        yield str(path)
        for file in self._folder.glob(f"{path.name}*"):
            file.unlink()


class Databases:
    """Databases of a PostgreSQL server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._template = server.create()
        with replaying(1), opened(server.address(self._template)) as client:
            set_the_scene(client)

    @contextmanager
    def scene(self) -> Generator[str]:
        name = f"{self._template}_copy"
        how = f"TEMPLATE {self._template} STRATEGY file_copy"  # the quicker one of the two
        self._server.execute(f"CREATE DATABASE {{}} {how}", name=name)
        yield self._server.address(name)
        self._server.drop(name)

    @contextmanager
    def nothing(self) -> Generator[str]:
        name = self._server.create()
        yield self._server.address(name)
        self._server.drop(name)

    def cut_off(self, address: str) -> None:
        """Break all connections of stores to a database."""
        name = conninfo_to_dict(address)["dbname"]
        self._server.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            f" WHERE datname = '{name}' AND application_name = 'sennit'"
        )

    def close(self) -> None:
        """Remove what was made."""
        self._server.drop(self._template)
