"""Connections to PostgreSQL: pool, retry, errors and schema.

After a connection is lost during a write, it is unknown whether the write was committed. So each
transaction inserts a receipt under an id of its own: a retry on a new connection that finds the
receipt does nothing, waiting if need be for the first attempt to end. Old receipts are deleted now
and then. Driver errors become Sennit errors, which name the database without its password.
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
from sennit.stores.database_url import redact_url, secrets_in, without_secrets
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
_WRITES_PER_CLEANUP = 1000  # of old receipts
# Values that no column or index can hold.
_VALUE_ERRORS = (psycopg.DataError, pg.ProgramLimitExceeded, UnicodeError, struct.error)
# Conflicts with another writer, or a prepared statement that the server has dropped.
_RETRYABLE_ERRORS = (pg.DeadlockDetected, pg.SerializationFailure, pg.InvalidSqlStatementName)
_DRIVER_ERRORS = (*_VALUE_ERRORS, psycopg.Error, OSError)

# Without logging configured, Python would write the pool's warnings to stderr; errors say enough.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Database:
    """A connection pool that retries work on another connection if one is lost."""

    def __init__(self, url: str, *, pool_size: int) -> None:
        """Connect, and create the schema `sennit` if there is none.

        Raises StoreError if the server cannot be reached or rejects the login, or if the schema has
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
        """Refuse all calls in a forked child; see `sennit.stores.after_fork`."""
        self._forked = True
        return [self._pool]

    @property
    def address(self) -> str:
        """The URL with its password, which only the pool keeps."""
        return str(self._pool.conninfo)

    def close(self) -> None:
        """Close the connections."""
        if self._forked:
            return
        self._closed = True
        self._pool.close()

    def refuse_if_closed(self) -> None:
        """Raise StoreError if the store was closed, or opened before a fork."""
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
        """Return the error as a cause, or None if its text contains the password."""
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
                # Other pooled connections are most likely lost too.
                self._pool.check()

    def _store_error(self, error: Exception) -> SennitError:
        """Return a Sennit error for a driver error, with advice and without the password."""
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
        receipt = uuid4()  # not from `ids`, which tests may make deterministic
        results: list[_T] = []

        def change(connection: PreparedConnection) -> _T:
            with connection.transaction():
                if not connection.execute(sql.ADD_RECEIPT, (receipt,)).rowcount:
                    return results[-1]  # committed, only the acknowledgement was lost
                result = work(connection)
                results.append(result)
            if connection.closed:  # then the driver silently skips the commit
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
        # The driver's message would repeat the URL with its password.
        raise StoreError("The PostgreSQL URL is invalid.") from None
    if "://" in url:
        return redact_url(url)
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _options(url: str) -> dict[str, Any]:
    """Return the connection options: autocommit, and defaults for those not in the URL."""
    options: dict[str, Any] = {"autocommit": True}
    parameters = conninfo_to_dict(url)
    options |= {"connect_timeout": 10} if "connect_timeout" not in parameters else {}
    options |= {"application_name": "sennit"} if "application_name" not in parameters else {}
    return options


def _plan_once(connection: Connection) -> None:
    connection.execute(sql.PLAN_ONCE)


def _is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Return whether a connection is lost; close it then, so that the pool drops it."""
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
        "no space left": "has no space left on its disk; free some and try again",
        "deadlock": "is busy with other writers; try again",
        "serialize": "is busy with other writers; try again",
    }
    if reason := next((advice for pattern, advice in reasons.items() if pattern in text), None):
        return reason
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError)):
        return "cannot be reached; check the address, and that the server runs"
    return "could not do it"


def _prepare(connection: Connection, name: str) -> None:
    """Create the schema if there is none, under an advisory lock.

    Raises StoreError for a database of another program or with another version.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"The store {name!r} must have the encoding UTF8, not {encoding!r}.")
    if _schema_version(connection) == SCHEMA_VERSION:
        return
    with connection.transaction():
        # Check again under the lock: many processes may start at once.
        connection.execute(sql.LOCK_SCHEMA)
        version = _schema_version(connection)
        if version is None:
            _create(connection, name)
        elif version != SCHEMA_VERSION:
            raise other_version(name, version)


def _create(connection: Connection, name: str) -> None:
    """Create the schema and its tables, inside a transaction."""
    from sennit.stores.postgres.job_queue import create  # late: imports procrastinate

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
