"""Connections to a SQLite file: pragmas, schema and errors.

Every connection has the same settings. An empty file gets its schema in one transaction; a file of
another program or with another schema version is refused and left unchanged.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from stat import S_IFDIR, S_IFMT, S_IFREG
from typing import Literal, TypeAlias

from sennit.errors import SennitError, StoreError
from sennit.stores.base import other_version
from sennit.stores.checksums import row_checksum
from sennit.stores.schema_version import SCHEMA_VERSION
from sennit.stores.sqlite import failpoints
from sennit.stores.sqlite import statements as sql

Durability: TypeAlias = Literal["full", "normal"]

_BUSY_TIMEOUT_S = 30.0
_WAL_SWITCH_TIMEOUT_S = 1.0
_AUTOCHECKPOINT_PAGES = 500  # 2 MB; other writers wait during a checkpoint
_PADDING = memoryview(bytes(256 * 1024))  # takes as long to write as a new file length
_CURRENT_HEADER = (SCHEMA_VERSION, sql.APPLICATION_ID)
DRIVER_ERRORS = (sqlite3.Error, OSError, UnicodeError, OverflowError)
"""Errors of the driver and the disk, and of values that no column can hold."""
ROW_ERRORS = (TypeError, ValueError, LookupError, AttributeError, struct.error)
"""Errors of decoding a row with damaged columns."""


def usable(path: Path) -> Path:
    """Return the absolute path of a database file that exists or can be created.

    Raises StoreError if it is no regular file or its folder is missing, and OSError.
    """
    path = path.absolute()
    try:
        kind = S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreError(
                f"The store {str(path)!r} cannot be created: there is no folder "
                f"{str(path.parent)!r}. Create it first, or check the path."
            ) from None
        return path
    if kind != S_IFREG:
        problem = (
            "a folder; name a file in it" if kind == S_IFDIR else "not a regular file; name one"
        )
        raise StoreError(f"The store {str(path)!r} is {problem}.")
    return path


def identity(path: Path) -> tuple[int, int]:
    """Return the device and inode of a file; raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def replaced(path: Path) -> StoreError:
    """Return the error for a database file or WAL that was deleted or replaced while open."""
    return StoreError(
        f"The file of the store {str(path)!r}, or its log, was deleted or replaced while it was "
        f"open; nothing was written. Close the store and open it again."
    )


def connect(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open a connection that any thread may use; raises sqlite3.Error."""
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=failpoints.connection_class(),
    )
    try:
        connection.execute(f"PRAGMA synchronous = {durability}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT_PAGES}")
        connection.create_function("folded", 1, _casefold, deterministic=True)
        connection.create_function("unhex", 1, bytes.fromhex, deterministic=True)  # new in 3.41
        connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _casefold(text: str | None) -> str | None:
    """Return the text in lower case; SQLite's lower() handles ASCII only."""
    return None if text is None else text.casefold()


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Turn errors of the driver and of damaged rows into StoreError."""
    try:
        yield
    except SennitError:
        raise
    except (*DRIVER_ERRORS, *ROW_ERRORS) as error:
        raise as_store_error(path, error) from error


def as_store_error(path: Path, error: Exception) -> StoreError:
    """Return a StoreError for a driver error, with advice."""
    if isinstance(error, ROW_ERRORS) and not isinstance(error, UnicodeEncodeError):
        return StoreError(
            f"The store {str(path)!r} contains rows that cannot be read ({type(error).__name__}: "
            f"{error}). Run `sennit doctor`, and restore a backup."
        )
    return StoreError(f"The store {str(path)!r} {_reason(error)} ({error}).")


def _reason(error: Exception) -> str:
    text = str(error).lower()
    reasons = {
        "locked": "is busy with another process; try again",
        "not a database": "is not a SQLite database",
        "malformed": "is damaged; restore a backup",
        "readonly": "cannot be written to; check its permissions",
        "unable to open": "cannot be opened; check the folder and its permissions",
        "full": "has no space left on its disk; free some and try again",
        "disk i/o": "could not reach its disk; check that it is there and not full",
    }
    return next(
        (reason for pattern, reason in reasons.items() if pattern in text), "could not be used"
    )


def check_header(path: Path) -> None:
    """Raise StoreError for a file of another program or with another schema version.

    A file with the current header is left to `prepare`. Any other is read through a read-only
    connection: closing a writable one would checkpoint the WAL of a killed program into the file.
    """
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    if not size or _header(path) == _CURRENT_HEADER:
        return
    wal = wal_path_of(path)
    mode = "mode=ro" if wal.exists() and wal.stat().st_size else "immutable=1"
    with (
        suppress(sqlite3.OperationalError),  # busy: `prepare` checks again
        closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)) as connection,
    ):
        connection.execute("BEGIN")
        _version(connection, path)


def _header(path: Path) -> tuple[int, int] | None:
    """Return user_version and application_id of the file without its WAL; None if unreadable.

    They are read through SQLite. Opening and closing the file in any other way would drop all POSIX
    locks of this process on it: another program could then delete the WAL as its last user, and
    later writes to it would be lost.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (program,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.DatabaseError:  # no database, or being changed
        return None
    return version, program


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the schema in an empty file; raises StoreError for a foreign or other version."""
    with _transaction(connection, "BEGIN"):
        version = _version(connection, path)
    if version == SCHEMA_VERSION:
        _return_to_wal(connection)
        return
    _use_wal(connection, _BUSY_TIMEOUT_S)
    with _transaction(connection, "BEGIN IMMEDIATE"):
        # Check again inside the transaction: two processes may create the file at once.
        if _version(connection, path) == 0:
            _create(connection)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Generator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 in an empty file; inside a transaction.

    Raises StoreError for a file of another program or with another version.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    program = connection.execute("PRAGMA application_id").fetchone()[0]
    if program != sql.APPLICATION_ID and (program or version or _has_tables(connection)):
        raise StoreError(f"{str(path)!r} is a database of another program; choose another file.")
    if program == sql.APPLICATION_ID and version != SCHEMA_VERSION:
        raise other_version(str(path), version)
    return version


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0


def _return_to_wal(connection: sqlite3.Connection) -> None:
    """Switch a file back to WAL mode after another program has changed its journal mode.

    If the file is busy or read-only, its mode stays: every mode is durable, but readers and writers
    then block one another.
    """
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    connection.execute(f"PRAGMA busy_timeout = {_WAL_SWITCH_TIMEOUT_S * 1000:.0f}")
    try:
        _use_wal(connection, _WAL_SWITCH_TIMEOUT_S)
    except sqlite3.OperationalError as error:
        if not any(reason in str(error) for reason in ("locked", "readonly")):
            raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_S * 1000:.0f}")


def _use_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to WAL mode, with retries: SQLite's busy timeout does not apply here."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _create(connection: sqlite3.Connection) -> None:
    script = files("sennit.stores.sqlite").joinpath("schema.sql").read_text()
    for statement in _split_statements(script):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _split_statements(script: str) -> list[str]:
    """Split a script into statements: executescript would commit the transaction.

    Comments and indentation are dropped, because SQLite stores the text of the schema in each file.
    """
    statements: list[str] = []
    statement = ""
    for line in map(str.strip, script.splitlines()):
        if not line.startswith("--"):
            statement += line + "\n"
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return statements


def wal_path_of(path: Path) -> Path:
    """Return the path of the write-ahead log."""
    resolved = path.resolve()
    return resolved.with_name(f"{resolved.name}-wal")


def preallocate_wal(wal: Path, size: int) -> None:
    """Pad the WAL to a multiple of the padding size; the caller holds the write lock.

    Otherwise SQLite extends it with each commit, and syncing the new file length takes half as long
    again. Bytes after the last commit are never read.
    """
    if missing := -size % len(_PADDING):
        with suppress(OSError), wal.open("r+b", buffering=0) as file:  # on a full disk it stays
            file.seek(size)
            if (file.write(_PADDING[:missing]) or 0) < missing:
                file.truncate(size)
