"""Connections to a SQLite file: pragmas, schema and errors.

Every connection has the same settings. An empty file gets its tables in one transaction; a file of
another program, or of another version of the tables, is refused and left as it is.
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

_BUSY_SECONDS = 30.0
_RETURN_SECONDS = 1.0  # for which opening waits to have a file in WAL again
_LOG_PAGES = 500  # 2 MB: copied into the file by some writer, while all others wait
_ZEROS = memoryview(bytes(256 * 1024))  # as long to write as the new length of a file
_OURS = (SCHEMA_VERSION, sql.APPLICATION_ID)
OF_DRIVER = (sqlite3.Error, OSError, UnicodeError, OverflowError)
"""What using a file may raise, also for a value that no column can hold."""
OF_ROWS = (TypeError, ValueError, LookupError, AttributeError, struct.error)
"""What reading a row may raise whose columns hold other values than were written."""


def usable(path: Path) -> Path:
    """Return the absolute path of a database, checked.

    Raises StoreError if something else is there, or no folder for it, OSError if nothing can be.
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
        what = "a folder; name a file in it" if kind == S_IFDIR else "not a regular file; name one"
        raise StoreError(f"The store {str(path)!r} is {what}.")
    return path


def identity(path: Path) -> tuple[int, int]:
    """Return what tells a file from another that takes its path; raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def replaced(path: Path) -> StoreError:
    """The error for a file that was deleted or replaced while a program has it open, or its log."""
    return StoreError(
        f"The file of the store {str(path)!r}, or its log, was deleted or replaced while it was "
        f"open; nothing was written. Close the store and open it again."
    )


def connect(path: Path, durability: Durability) -> sqlite3.Connection:
    """A new connection, for any thread; raises sqlite3.Error."""
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        factory=failpoints.connection_class(),
    )
    try:
        connection.execute(f"PRAGMA synchronous = {durability}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        connection.create_function("folded", 1, _folded, deterministic=True)
        connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _folded(text: str | None) -> str | None:
    """Lower a text; SQLite's own lower() knows ASCII only."""
    return None if text is None else text.casefold()


@contextmanager
def translated(path: Path) -> Generator[None]:
    """Turn what the driver raises, or a row of damaged values, into errors of ours."""
    try:
        yield
    except SennitError:
        raise
    except (*OF_DRIVER, *OF_ROWS) as error:
        raise as_store_error(path, error) from error


def as_store_error(path: Path, error: Exception) -> StoreError:
    """Return a driver error as one of ours, with advice."""
    if isinstance(error, OF_ROWS) and not isinstance(error, UnicodeEncodeError):
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
        "full": "has no room left on its disk; free some and try again",
        "disk i/o": "could not reach its disk; check that it is there and not full",
    }
    return next((said for sign, said in reasons.items() if sign in text), "could not be used")


def refuse_foreign(path: Path) -> None:
    """Raise StoreError for a file that is not ours or of another version.

    A file whose header says that it is ours and of this version is left for `prepare` to look at.
    Any other is asked through a connection that cannot write: closing one that can would copy the
    log of a killed program into the file.
    """
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    if not size or _header(path) == _OURS:
        return
    log = log_of(path)
    mode = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    with (
        suppress(sqlite3.OperationalError),  # in use just now: `prepare` asks again
        closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)) as connection,
    ):
        connection.execute("BEGIN")
        _version(connection, path)


def _header(path: Path) -> tuple[int, int] | None:
    """Return the version and the program that the file names, whatever its log says; None if none.

    SQLite reads it. Whoever opens and closes the file in any other way ends all locks that this
    process has on it: another program then takes itself for the last user and deletes the log,
    and all that is written to that later is lost.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (program,) = connection.execute("PRAGMA application_id").fetchone()
    except sqlite3.DatabaseError:  # no database, or in the middle of a change
        return None
    return version, program


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file; raises StoreError for one that is not ours."""
    with _transaction(connection, "BEGIN"):
        version = _version(connection, path)
    if version == SCHEMA_VERSION:
        _return_to_wal(connection)
        return
    _use_wal(connection, _BUSY_SECONDS)
    with _transaction(connection, "BEGIN IMMEDIATE"):
        # Asked again inside the transaction: two processes may open a new file at once.
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
    """The version of our tables, 0 in an empty file; inside a transaction.

    Raises StoreError for a file of another program or of another version.
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
    """Switch a file back that another program has taken out of WAL.

    Where others use it just now, or it cannot be written to, it is used as it is: in any mode all
    is kept, though readers and writers wait for one another.
    """
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    connection.execute(f"PRAGMA busy_timeout = {_RETURN_SECONDS * 1000:.0f}")
    try:
        _use_wal(connection, _RETURN_SECONDS)
    except sqlite3.OperationalError as error:
        if not any(sign in str(error) for sign in ("locked", "readonly")):
            raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000:.0f}")


def _use_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """Switch to WAL; SQLite does not wait for others who do the same, so we have to."""
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)


def _create(connection: sqlite3.Connection) -> None:
    script = files("sennit.stores.sqlite").joinpath("schema.sql").read_text()
    for statement in _statements(script):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _statements(script: str) -> list[str]:
    """The statements of a script, one by one: executescript would end the transaction.

    They go without comments and indentation: SQLite keeps them in each file as they are.
    """
    found: list[str] = []
    rest = ""
    for line in map(str.strip, script.splitlines()):
        if not line.startswith("--"):
            rest += line + "\n"
        if sqlite3.complete_statement(rest):
            found.append(rest)
            rest = ""
    return found


def log_of(path: Path) -> Path:
    """Return the path of the write-ahead log."""
    real = path.resolve()
    return real.with_name(f"{real.name}-wal")


def lengthen(log: Path) -> None:
    """Have the log end at a whole number of steps; for whoever may write to it just now.

    SQLite lengthens it with each commit, and then the disk has to write down the new length too:
    that takes half as long again. What lies behind the last commit is never read.
    """
    try:
        size = os.stat(log).st_size
        if missing := -size % len(_ZEROS):
            _add_zeros(log, size, missing)
    except OSError:
        pass  # there is none yet, or no room: then it grows as it is needed


def _add_zeros(log: Path, size: int, missing: int) -> None:
    with log.open("r+b", buffering=0) as file:
        file.seek(size)
        if (file.write(_ZEROS[:missing]) or 0) < missing:
            file.truncate(size)
