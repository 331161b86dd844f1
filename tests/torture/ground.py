"""Where crashes take place: a scene that is made once and copied for each, on either store."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from sennit import Client
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.sqlite.store import SQLiteStore
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
        self._folder = Path(mkdtemp(dir=folder))
        self._numbers = itertools.count()
        self._template = self._folder / "scene.db"
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
    """Databases of a PostgreSQL server.

    To copy one takes a second, to put back its rows a hundredth of that. So the scene is copied
    once, and its rows are put back each time; it is copied again where tables have been made.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._template = server.create()
        with replaying(1), opened(server.address(self._template)) as client:
            set_the_scene(client)
        server.execute(_KEEP, self._template)
        self._copy = ""

    @contextmanager
    def scene(self) -> Generator[str]:
        if not (self._copy and self._server.execute("SELECT kept.put_back()", self._copy)[0][0]):
            self._copy_anew()
        yield self._server.address(self._copy)

    def _copy_anew(self) -> None:
        if self._copy:
            self._server.drop(self._copy)
        self._copy = f"{self._template}_copy"
        how = f"TEMPLATE {self._template} STRATEGY file_copy"  # the quicker one of the two
        self._server.execute(f"CREATE DATABASE {{}} {how}", name=self._copy)

    @contextmanager
    def nothing(self) -> Generator[str]:
        name = self._server.create()
        yield self._server.address(name)
        self._server.drop(name)

    def cut_off(self, address: str) -> None:
        """Break all connections of stores to a database."""
        self._server.execute(_BREAK, str(conninfo_to_dict(address)["dbname"]))

    def close(self) -> None:
        """Remove what was made."""
        for name in filter(None, (self._copy, self._template)):
            self._server.drop(name)


_BREAK = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'sennit'"""
# Triggers are left out, as the rows they would make are among those that are put back.
_KEEP = """
    CREATE SCHEMA kept;
    CREATE TABLE kept.tables AS
    SELECT c.oid AS no, c.relname AS name, (
        SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ) AS columns
    FROM pg_class c WHERE c.relnamespace = 'sennit'::regnamespace AND c.relkind = 'r';
    CREATE TABLE kept.numbers AS
    SELECT sequencename AS name, coalesce(last_value, start_value) AS number,
           last_value IS NOT NULL AS taken
    FROM pg_sequences WHERE schemaname = 'sennit';
    DO $do$ DECLARE name text; BEGIN
        FOR name IN SELECT t.name FROM kept.tables t LOOP
            EXECUTE format('CREATE TABLE kept.%I AS TABLE sennit.%I', 'of_' || name, name);
        END LOOP;
    END $do$;

    CREATE FUNCTION kept.put_back() RETURNS boolean LANGUAGE plpgsql AS $body$
    DECLARE one record;
    BEGIN
        PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'sennit';
        IF EXISTS (
            SELECT FROM pg_class WHERE relnamespace = 'sennit'::regnamespace AND relkind = 'r'
            AND oid NOT IN (SELECT no FROM kept.tables)
        ) THEN
            RETURN false;
        END IF;
        PERFORM set_config('session_replication_role', 'replica', true);
        FOR one IN SELECT * FROM kept.tables LOOP
            EXECUTE format('DELETE FROM sennit.%I', one.name);
            EXECUTE format(
                'INSERT INTO sennit.%I (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM kept.%I',
                one.name, one.columns, one.columns, 'of_' || one.name);
        END LOOP;
        PERFORM setval(format('sennit.%I', name)::regclass, number, taken) FROM kept.numbers;
        RETURN true;
    END $body$;
"""
