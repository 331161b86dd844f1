"""Connections to PostgreSQL: pool, retry, errors and schema.

A connection that dies in mid-write leaves open whether the write was made. So a write leaves a
receipt, under an id of its own, in the same transaction: made again on a fresh connection, it finds
its receipt and is left alone, waiting if need be for the first attempt to end. Old receipts are
thrown away now and then. Whatever the driver raises becomes an error of ours, which names the
database without its password.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypeVar
from uuid import uuid4

from sennit.errors import SennitError, StoreError, ValidationError
from sennit.stores import after_fork
from sennit.stores.base import other_version
from sennit.stores.database_url import secrets_in, shown_address, without_secrets
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.driver import ConnectionPool, PoolTimeout, conninfo_to_dict, pg, psycopg
from sennit.stores.postgres.failpoints import connection_class
from sennit.stores.postgres.prepared_connection import PreparedConnection
from sennit.stores.postgres.session_writer import Connection, fetch_one
from sennit.stores.schema_version import SCHEMA_VERSION

_T = TypeVar("_T")

_POOL_TIMEOUT_S = 15.0
_MAX_CONFLICT_RETRIES = 5
_MAX_RECONNECTS = 4
_WRITES_PER_CLEANUP = 1000  # writes after which old receipts are thrown away
# What no column can hold, or no index.
_VALUE_ERRORS = (psycopg.DataError, pg.ProgramLimitExceeded, UnicodeError, struct.error)
# Another writer was in the way, or the server has forgotten what was prepared: done anew.
_RETRYABLE_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure, pg.InvalidSqlStatementName)
_DRIVER_ERRORS = (*_VALUE_ERRORS, psycopg.Error, OSError)

# Errors say what is wrong; what the pool notes besides goes to whoever set up logging, and else
# nowhere, where Python would write it to stderr.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Database:
    """Runs work on connections, and again on another where one is lost."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        """Connect, and create the tables in the schema `sennit` if there are none.

        Raises StoreError if the server cannot be reached or refuses us, or if the tables are of
        another version.
        """
        if pool_size < 1:
            raise ValidationError(f"pool_size must be at least 1, got {pool_size}.")
        self._secrets = secrets_in(url)
        self.name = _public_name(url)
        self._closed = False
        self._forked = False
        self._changes = 0
        try:
            kind = connection_class()
            with kind.connect(url, **_options(url)) as connection:
                _prepare(connection, self.name)
            self._pool = ConnectionPool(
                url,
                connection_class=kind,
                min_size=1,
                max_size=pool_size,
                timeout=_POOL_TIMEOUT_S,
                kwargs=_options(url),
                configure=_plan_once,
                open=True,
            )
        except _DRIVER_ERRORS as error:
            raise self._store_error(error) from self._cause(error)
        after_fork.watch(self)

    def disown(self) -> list[object]:
        """Refuse everything from now on, in a forked child; see `sennit.stores.after_fork`."""
        self._forked = True
        return [self._pool]

    @property
    def address(self) -> str:
        """The URL with its secrets; only the pool keeps it."""
        return str(self._pool.conninfo)

    def close(self) -> None:
        """Close the connections."""
        if self._forked:
            return
        self._closed = True
        self._pool.close()

    def refuse_if_closed(self) -> None:
        """Raise StoreError if it was closed, or opened before this process was forked."""
        if self._forked:
            raise after_fork.forked(self.name)
        if self._closed:
            raise StoreError(f"The store {self.name!r} is closed; open it again.")

    def run(self, work: Callable[[PreparedConnection], _T]) -> _T:
        """Run work on a pooled connection, and again on another one if the connection is lost."""
        try:
            return self._run(work)
        except _DRIVER_ERRORS as error:
            raise self._store_error(error) from self._cause(error)

    def _cause(self, error: Exception) -> Exception | None:
        """Return what was raised, unless it tells the password."""
        text = str(error)
        return error if without_secrets(text, self._secrets) == text else None

    def _run(self, work: Callable[[PreparedConnection], _T]) -> _T:
        reconnects, conflicts = 0, 0
        while True:
            self.refuse_if_closed()
            connection = self._pool.getconn()
            try:
                return work(connection)
            except _RETRYABLE_ERRORS:
                conflicts += 1
                if conflicts > _MAX_CONFLICT_RETRIES:
                    raise
            except psycopg.Error as error:
                reconnects += 1
                if not _is_lost(connection, error) or reconnects > _MAX_RECONNECTS:
                    raise
            finally:
                self._pool.putconn(connection)
            if reconnects:
                # The others have most likely died with it, or are just about to.
                self._pool.check()

    def _store_error(self, error: Exception) -> SennitError:
        """Return the driver's error as one of ours, with advice."""
        if isinstance(error, _VALUE_ERRORS):
            text = without_secrets(str(error), self._secrets)
            return ValidationError(f"PostgreSQL cannot store this value ({text}).")
        self.refuse_if_closed()
        message = without_secrets(str(error).strip().partition("\n")[0], self._secrets)
        return StoreError(f"The store {self.name!r} {_reason(error)} ({message}).")

    def read(self, work: Callable[[PreparedConnection], _T]) -> _T:
        """Run work in one read-only snapshot."""

        def read(connection: PreparedConnection) -> _T:
            with connection.transaction():
                connection.execute(sql.SNAPSHOT)
                return work(connection)

        return self.run(read)

    def change(self, work: Callable[[PreparedConnection], _T]) -> _T:
        """Run work in one transaction, rolled back if it raises."""
        receipt = uuid4()  # not by `ids`, which tests may have give the same ones again
        results: list[_T] = []

        def change(connection: PreparedConnection) -> _T:
            with connection.transaction():
                if not connection.execute(sql.ADD_RECEIPT, (receipt,)).rowcount:
                    return results[-1]  # it was made, and only its acknowledgement was lost
                result = work(connection)
                results.append(result)
            if connection.closed:  # then the driver leaves out the commit and says nothing
                raise psycopg.OperationalError("the connection was lost before the commit")
            return result

        result = self.run(change)
        self._drop_old_receipts()
        return result

    def _drop_old_receipts(self) -> None:
        """Delete old receipts every so many writes; a receipt is needed until its write returns."""
        self._changes += 1
        if self._changes % _WRITES_PER_CLEANUP == 1:
            self.run(lambda connection: connection.execute(sql.DROP_RECEIPTS))


def _public_name(url: str) -> str:
    """Return the URL without its password; raises StoreError if it is invalid."""
    try:
        parts = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        # What the driver says of it would show the address, and with it the password.
        raise StoreError("The PostgreSQL URL is invalid.") from None
    if "://" in url:
        return shown_address(url)
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _options(url: str) -> dict[str, Any]:
    """Return the connection options; without BEGIN, each statement is its own transaction."""
    options: dict[str, Any] = {"autocommit": True}
    parameters = conninfo_to_dict(url)
    options |= {"connect_timeout": 10} if "connect_timeout" not in parameters else {}
    options |= {"application_name": "sennit"} if "application_name" not in parameters else {}
    return options


def _plan_once(connection: Connection) -> None:
    connection.execute(sql.PLAN_ONCE)


def _is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Return whether a connection is gone; then it is closed, so that the pool does not lend it
    again.
    """
    lost = connection.closed or isinstance(error, (pg.AdminShutdown, pg.CrashShutdown))
    if lost:
        connection.close()
    return lost


def _reason(error: Exception) -> str:
    if isinstance(error, PoolTimeout):
        return "cannot be reached, or has too few connections; try again later"
    text = str(error).lower()
    reasons = {
        "permission denied": "does not allow this; grant the user rights on the schema sennit",
        "authentication": "refuses this user and password",
        "password": "refuses this user and password",
        'role "': "refuses this user and password",
        'database "': "has no such database; create it first",
        "no space left": "has no room left on its disk; free some and try again",
        "deadlock": "is busy with other writers; try again",
        "serialize": "is busy with other writers; try again",
    }
    if reason := next((advice for pattern, advice in reasons.items() if pattern in text), None):
        return reason
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError)):
        return "cannot be reached; check the address, and that the server runs"
    return "could not do it"


def _prepare(connection: Connection, name: str) -> None:
    """Create the tables where there are none, one server at a time.

    Raises StoreError for a database that is not ours, or of another version.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"The store {name!r} must have the encoding UTF8, not {encoding!r}.")
    if _schema_version(connection) == SCHEMA_VERSION:
        return
    with connection.transaction():
        # Asked again behind the lock: many servers may start at once.
        connection.execute(sql.LOCK_SCHEMA)
        version = _schema_version(connection)
        if version is None:
            _create(connection, name)
        elif version != SCHEMA_VERSION:
            raise other_version(name, version)


def _create(connection: Connection, name: str) -> None:
    """Create the tables, inside a transaction."""
    from sennit.stores.postgres.job_queue import create  # imports all that a worker needs: late

    if fetch_one(connection.execute(sql.IS_TAKEN))[0]:
        raise StoreError(
            f"The store {name!r} already has a schema 'sennit' of another program; choose another "
            f"database."
        )
    connection.execute(sql.ADD_SCHEMA)
    queue = create(connection)
    connection.execute(files("sennit.stores.postgres").joinpath("schema.sql").read_bytes())
    connection.execute(sql.SET_VERSION, (SCHEMA_VERSION, queue))


def _schema_version(connection: Connection) -> int | None:
    """Return the schema version of the database; None if it has no Sennit tables."""
    if not fetch_one(connection.execute(sql.HAS_SCHEMA))[0]:
        return None
    return fetch_one(connection.execute(sql.VERSION))[0]
